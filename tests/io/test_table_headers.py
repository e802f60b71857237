"""First rows that may be names or a record: what is decided, and the note that says so."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from commands import mxrun, refused, succeeded

from mxrun.base.tensor import TensorSpec
from mxrun.commands.init import init
from mxrun.io.dataset.dataset import Dataset
from mxrun.io.dataset.request import open_datasets, request_dataset
from mxrun.options.init import InitOptions
from mxrun.survey.data_sections import open_sections

HINT = "write `header: false` if it is a record, or `header: true` if it names the columns"
CONFIG = """
name: c
network: {inputs: {data: [2], label: []}, layers: [FullyConnected: {num_hidden: 1}, \
LinearRegressionOutput: {label: label}]}
data: {batch_size: 8, train: {dataset: csv, path: t.csv}}
train: {epochs: 1, optimizer: {sgd: {lr: 0.0}}}
"""


def rows(kinds: str, count: int = 30) -> list[list[str]]:
    """Return rows of cells: f a fraction, i a class, w a word."""
    draw = random.Random(kinds)
    cells = {
        "f": lambda: f"{draw.random():.3f}",
        "i": lambda: str(draw.randrange(2)),
        "w": lambda: draw.choice(("red", "blue")),
    }
    return [[cells[kind]() for kind in kinds] for _ in range(count)]


def opened(path: Path, first: str, others: list[list[str]], **options: object) -> Dataset:
    path.write_text("".join(f"{line}\n" for line in (first, *map(",".join, others))))
    request = request_dataset("csv", {"path": str(path), "columns": "auto", **options}, None)
    inputs = {"label": TensorSpec((), "int32" if others[0][-1] in "01redblue" else "float32")}
    return open_datasets({"it": request}, inputs)["it"]


@pytest.mark.parametrize(
    ("first", "kinds", "doubt"),
    [
        ("2018,2019,2020", "fff", "is read as a record: its numbers rise by 1, as in no row below"),
        ("0,5,10,15", "ffff", "is read as a record: its numbers rise by 5, as in no row below"),
        (",0,1,2", "ffff", "is read as a record: its numbers rise by 1, as in no row below"),
        (
            "1017,2033,1442",
            "fff",
            "is read as a record: its whole numbers are far from those",
        ),
        ("2018,2019", "ff", "is read as a record: its whole numbers are far from those"),
        ("2019,2020,y", "fii", "is read as a record: the word 'y' stands above numbers"),
        ("shade,kind", "ww", "is taken for the names of the columns: all cells of the table are"),
        # What holds nothing to doubt.
        ("0.5,0.25,0.125", "fff", ""),
        ("0.5,0,1", "fii", ""),
        ("red,blue", "ww", ""),
        ("a,b,c", "fff", ""),
        ("3,1,2", "iii", ""),
    ],
)
def test_a_doubtful_first_row_is_said(tmp_path, first, kinds, doubt):
    others = rows(kinds)
    dataset = opened(tmp_path / "t.csv", first, others)
    is_header = bool(dataset.columns)
    assert len(dataset) == len(others) + (not is_header)
    found = [note for note in dataset.notes if "first row" in note]
    assert len(found) == bool(doubt)
    assert not doubt or f"{tmp_path / 't.csv'}:1: the first row {doubt}" in found[0]
    assert not doubt or HINT in found[0]
    for header in (True, False):
        if not header and not first.replace(",", "").replace(".", "").isdigit():
            # Words in the place of numbers are refused, or classes.
            continue
        decided = opened(tmp_path / "t.csv", first, others, header=header)
        assert not [note for note in decided.notes if "first row" in note]
        assert len(decided) == len(others) + (not header)
        assert not header or decided.columns == tuple(first.split(",")[:-1])


def test_counted_rows_are_no_header(tmp_path):
    """Rows that all rise by a constant say nothing about the first one."""
    others = [[str(row), str(row + 1), str(row + 2)] for row in range(1, 9)]
    assert opened(tmp_path / "t.csv", "0,1,2", others).notes == ()


def test_commands_that_read_the_table_and_init_say_it(empty_folder):
    Path("c.yaml").write_text(CONFIG)
    table = "2018,2019,2020\n" + "".join(f"{','.join(row)}\n" for row in rows("fff"))
    Path("t.csv").write_text(table)
    expected = "t.csv:1: the first row is read as a record: its numbers rise by 1"
    assert expected in succeeded(mxrun("train", "c.yaml", cwd=empty_folder)).stderr
    assert expected in open_sections("c.yaml").notes[0]
    (warning,) = init(InitOptions(source="t.csv", to=Path("made.yaml"))).survey.warnings
    assert expected in warning
    # Classes that do not fit may be those of the header.
    Path("c.yaml").write_text(CONFIG.replace("LinearRegression", "Softmax"))
    classes = "2018,2019,2020\n" + "".join(f"{','.join(row)}\n" for row in rows("ffi"))
    Path("t.csv").write_text(classes)
    said = " ".join(refused("train", "c.yaml", "--overwrite", cwd=empty_folder).split())
    assert "write num_hidden: 2021; note:" in said
    assert expected in said


@pytest.mark.parametrize("first", ["a (m; s),b,kind", '"a\tb",b,kind'])
def test_the_delimiter_is_the_one_that_separates_all_rows(tmp_path, first):
    dataset = opened(tmp_path / "t.csv", first, rows("ffi"))
    assert (len(dataset.columns), dataset.notes) == (2, ())


def test_two_possible_delimiters_are_said(tmp_path):
    others = [[f"{row};{row + 1}", str(row % 2)] for row in range(8)]
    dataset = opened(tmp_path / "t.csv", "a;b,c", others)
    (note,) = dataset.notes
    assert note.endswith(
        "t.csv:1: the columns are separated by ';', but ',' would do as well; "
        "write `delimiter: ...`"
    )
    assert opened(tmp_path / "t.csv", "a;b,c", others, delimiter=",", columns={"*": "category"})


def test_words_among_numbers_are_said(tmp_path):
    others = [["left" if row % 4 == 0 else str(row), str(row % 2)] for row in range(20)]
    dataset = opened(tmp_path / "t.csv", "age,kind", others)
    assert dataset.notes == (
        "column 'age' is read as a category: 5 of 20 cells are words, such as 'left', and the "
        "others numbers",
    )
    forms = {"age": "category"}
    assert opened(tmp_path / "t.csv", "age,kind", others, columns=forms).notes == ()
