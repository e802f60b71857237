"""Tables of numbers: roles of columns, and rows that are not numbers."""

from __future__ import annotations

import os
import random
from pathlib import Path

import numpy as np
import pytest
from commands import python_output
from damage import damage
from refusals import only_problem

from mxrun.base.errors import SourceLocation, UserError
from mxrun.base.tensor import TensorSpec
from mxrun.io.dataset.dataset import Dataset
from mxrun.io.dataset.fields import Field
from mxrun.io.dataset.fingerprint import fingerprint
from mxrun.io.dataset.request import open_datasets, request_dataset
from mxrun.io.tables.text import TableForm, parse_table

PLACE = SourceLocation("c.yaml", 7, 3)
TABLE = "height,width,kind\n1.5,2,0\n\n3,-4e-1, 2\n5,6,1\n"


def inputs(shape: tuple[int, ...] = (2,), label: str = "int32") -> dict[str, TensorSpec]:
    return {"data": TensorSpec(shape), "label": TensorSpec((), label)}


def open_csv(path: Path, wanted=None, split: object = None, **options: object) -> Dataset:
    request = request_dataset("csv", {"path": str(path), **options}, split, {"path": PLACE})
    return open_datasets({"it": request}, wanted or inputs())["it"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "table.csv"
    file.write_text(TABLE)
    return file


def test_the_last_column_is_the_label_by_default(path):
    dataset = open_csv(path, header=True)
    data = dataset.fields["data"].records
    assert data.dtype == np.float32
    assert data.tolist() == np.array([[1.5, 2], [3, -0.4], [5, 6]], np.float32).tolist()
    assert dataset.fields["label"].records.tolist() == [0, 2, 1]
    assert dataset.fields["label"].records.dtype == np.int32
    # Numbers alone have no names: other records may have more of them.
    assert dataset.classes == ()
    part = open_csv(path, split={"of": "all", "range": [1, 3]}, header=True)
    assert part.fields["label"].records.tolist() == [2, 1]


def test_columns_are_named_or_counted(path):
    by_name = open_csv(
        path, data=["width", "kind"], label="height", header=True, wanted=inputs(label="float32")
    )
    by_number = open_csv(path, data=[1, -1], label=0, header=True, wanted=inputs(label="float32"))
    for dataset in (by_name, by_number):
        assert dataset.fields["data"].records[:, 1].tolist() == [0, 2, 1]
        assert dataset.fields["label"].records.tolist() == [1.5, 3, 5]
        assert dataset.fields["label"].records.dtype == np.float32
        assert dataset.classes == ()
    alone = open_csv(path, wanted={"data": TensorSpec((3,))}, label=None, header=True)
    assert set(alone.fields) == {"data"}


def test_rows_take_the_shape_of_the_network(tmp_path):
    file = tmp_path / "t.csv"
    file.write_bytes(b"\xef\xbb\xbf1;2;3;4;0\r\n5;6;7;8;1")
    dataset = open_csv(file, wanted=inputs((1, 2, 2)), delimiter=";")
    assert dataset.fields["data"].records.tolist() == [[[[1, 2], [3, 4]]], [[[5, 6], [7, 8]]]]


@pytest.mark.parametrize(
    ("text", "options", "words"),
    [
        ("1,2,3\n4,x,6\n", {}, (":2:2: byte 8:", "not a number", "'x'")),
        ("1,2,3\n4,,6\n", {}, (":2:2: byte 8:", "''")),
        ("1,2,3\n4,nan,6\n", {}, (":2:2: byte 8:", "'nan'")),
        ("1,2,3\n4,5,inf\n", {}, (":2:3: byte 10:",)),
        ("a,b,c\n4,5,6\n", {"header": False}, (":1:1: byte 0:", "header: true")),
        ("a,b,c\nd,5,6\n", {"header": None}, (":2:1: byte 6:", "columns: auto")),
        (
            "1,2,3\n\n4,5\n",
            {},
            (":3:2: byte 7:", "number of columns differs", "expected: 3 columns"),
        ),
        ("1,2,3\n4,5,6,7\n", {}, (":2:4: byte 6:", "got: 4")),
        ("1,2,3\n4,5,0.5\n", {}, (":2:3:", "cannot be converted to int32", "got: 0.5")),
        ("1,2,3\n4,5,3e9\n", {}, (":2:3:", "within int32")),
        ("1,2,3\n4,1e39,3\n", {}, (":2:2:", "within float32")),
        ("", {}, ("byte 0:", "no rows")),
        ("a,b,c\n", {"header": True}, ("byte 6:", "no rows")),
        ("1,2,3\n", {"label": "kind"}, ("named 'kind'", "one of 1, 2, 3")),
        ("1,2,3\n", {"label": "kind", "header": False}, ("named 'kind'", "header: true")),
        ("a,b,kind\n1,2,3\n", {"label": "kin", "header": True}, ("'kind'", "did you mean")),
        ("1,2,3\n", {"label": 3}, ("no column 3", "-3 to 2")),
        ("1,2,3\n", {"data": [0, -4]}, ("no column -4",)),
        ("7\n", {}, ("no column is left",)),
        ("\0,1\n", {}, (":1:1: byte 0: not UTF-8", "the byte 0x00", "utf-16")),
        ("1;2;3\n", {"delimiter": ","}, ("no column is left", "delimiter: ';'")),
        ("a;b\n", {"delimiter": ",", "header": True, "label": "b"}, ("'b'", "delimiter: ';'")),
        ("a,b,c\n1,x,3\n", {"header": True}, (":2:2: byte 8: column 'b'", "'x'", "categories")),
        ("a,b,c\n1,,3\n", {"header": True}, (":2:2:", "column 'b'", "fill the gap in")),
        ("a,b,c\n1,2,\n", {"header": True}, (":2:3:", "column 'c'", "fill the gap in")),
        (
            "1;2,5;3\n",
            {"delimiter": ";", "label": 0},
            (":1:2:", "if a comma stands before decimals"),
        ),
        (
            "1;1.002,5;3\n",
            {"delimiter": ";", "label": 0, "decimal": ","},
            (":1:2:", "if a point stands between thousands"),
        ),
    ],
)
def test_what_is_wrong_is_told_with_row_column_and_byte(tmp_path, text, options, words):
    file = tmp_path / "t.csv"
    file.write_bytes(text.encode("latin-1"))
    with pytest.raises(UserError) as caught:
        open_csv(file, **options)
    found, *_ = caught.value.diagnostics
    assert found.place == PLACE
    assert all(word in str(found) for word in (str(file), *words)), str(found)


def test_a_file_that_is_none_is_told(tmp_path):
    for path in (tmp_path, tmp_path / "none.csv", Path("a\0b")):
        with pytest.raises(UserError, match=r"cannot be read|no such file"):
            open_csv(path)


def test_damaged_files_give_an_error_or_a_valid_data_set(tmp_path):
    file, draw = tmp_path / "t.csv", random.Random(5)
    content = "".join(f"{n / 8},{n * n},{n % 3}\n" for n in range(20)).encode()
    refused, valid = [], 0
    for _ in range(300):
        file.write_bytes(damage(content, draw))
        try:
            dataset = open_csv(file)
        except UserError as error:
            refused.append(str(error))
        else:
            assert np.isfinite(dataset.fields["data"].records).all()
            valid += 1
    assert len(refused) > 50
    # A row may have lost the same column as all others: that is no mistake of the file.
    assert all(str(file) in text or "does not fit data set" in text for text in refused)
    assert valid > 50


@pytest.mark.parametrize("label", ["kind", -1])
def test_words_are_classes_by_their_sorted_names(tmp_path, label):
    file = tmp_path / "t.csv"
    file.write_text('a,b,kind\n1,2,"red, dark"\n3,4,blue\n5,6,"red, dark"\n')
    dataset = open_csv(file, header=True, label=label)
    assert dataset.classes == ("blue", "red, dark")
    assert dataset.fields["label"].records.tolist() == [1, 0, 1]
    assert dataset.fields["label"].records.dtype == np.int32
    assert dataset.fields["data"].records.tolist() == [[1, 2], [3, 4], [5, 6]]
    assert dataset.columns == ("a", "b")
    # A single word turns the numbers above it into names, too.
    file.write_text("1,2,1\n3,4,0\n5,6,x\n")
    dataset = open_csv(file)
    assert dataset.classes == ("0", "1", "x")
    assert dataset.fields["label"].records.tolist() == [1, 0, 2]


@pytest.mark.parametrize("gap", ["NA", "nan", "Null", " none ", "?", "", '""'])
@pytest.mark.parametrize("others", [("yes", "no"), ("1", "0")])
def test_a_gap_is_no_class(tmp_path, gap, others):
    file, (first, second) = tmp_path / "t.csv", others
    for row, labels in ((2, (gap, first, second)), (4, (first, second, gap))):
        file.write_text("a,b,kind\n" + "".join(f"1,2,{label}\n" for label in labels))
        with pytest.raises(UserError, match="the label is missing") as caught:
            open_csv(file, header=True)
        (found,) = caught.value.diagnostics
        assert f"{file}:{row}:3: byte " in found.problem
        assert "column 'kind'" in found.problem
        assert (found.place, found.got) == (PLACE, repr(gap.strip()))
        assert "remove the rows without a label" in found.hint
        hint = f'quote the cell if it is a word: "{gap.strip()}"'
        assert (hint in found.hint) == bool(gap.strip('"'))


@pytest.mark.parametrize("word", ["NA", "nan", "none", "?"])
def test_a_gap_in_quotes_is_a_word(tmp_path, word):
    file = tmp_path / "t.csv"
    file.write_text(f'1,2,"{word}"\n3,4,yes\n')
    assert set(open_csv(file).classes) == {word, "yes"}


def test_words_that_look_alike_are_one_class(tmp_path):
    file = tmp_path / "t.csv"
    file.write_text("1,2,caf\u00e9\n3,4,cafe\u0301\n5,6,bar\n", encoding="utf-8")
    dataset = open_csv(file)
    assert dataset.classes == ("bar", "caf\u00e9")
    assert dataset.fields["label"].records.tolist() == [1, 1, 0]
    # Training's spelling is everybody's.
    known = dataset.with_classes(("cafe\u0301", "bar"))
    assert known.classes == ("cafe\u0301", "bar")
    assert known.fields["label"].records.tolist() == [0, 0, 1]


def test_words_are_no_numbers(tmp_path):
    file = tmp_path / "t.csv"
    file.write_text("1,2,red\n")
    with pytest.raises(UserError, match="not a number") as caught:
        open_csv(file, wanted=inputs(label="float32"))
    assert "SoftmaxOutput" in caught.value.diagnostics[0].hint


def test_columns_that_are_not_asked_for_may_hold_anything(tmp_path):
    file = tmp_path / "t.csv"
    file.write_text("id,a,b,kind\nx1,1,2,0\n,3,4,1\n")
    dataset = open_csv(file, header=True, data=["b", "a"], label="kind")
    assert dataset.fields["data"].records.tolist() == [[2, 1], [4, 3]]
    assert dataset.columns == ("b", "a")


@pytest.mark.parametrize(
    ("header", "options"),
    [
        ("a,a,b,kind", {"data": ["a", "b"]}),
        ("a,a,b,kind", {"data": [0, 2]}),
        ("a,b,a,kind", {}),
        ("a,b,c,a", {"data": ["b", "c"], "label": "a"}),
    ],
)
def test_columns_of_one_name_are_refused(tmp_path, header, options):
    file = tmp_path / "t.csv"
    file.write_text(f"\n{header}\n1,2,3,0\n")
    found = only_problem(open_csv, file, header=True, **options)
    places = [str(at + 1) for at, name in enumerate(header.split(",")) if name == "a"]
    assert f"{file}:2:{places[1]}: the header has the name 'a' 2 times" in found.problem
    assert found.got == f"'a' in columns {', '.join(places)}"
    # Columns that are not read may be called anything.
    file.write_text("a,b,x,x,kind\n1,2,3,4,0\n")
    assert open_csv(file, header=True, data=["b", "a"]).columns == ("b", "a")


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_what_divides_the_columns_is_seen(tmp_path, delimiter):
    file = tmp_path / "t.csv"
    rows = [["a", "b", '"x; y,\tz"'], ["1", "2", "0"], ["3", "4", "1"]]
    file.write_text("".join(f"{delimiter.join(row)}\n" for row in rows))
    dataset = open_csv(file, header=True)
    assert dataset.fields["data"].records.tolist() == [[1, 2], [3, 4]]


FINGERPRINT = """
import sys
import numpy as np
from mxrun.io.dataset.dataset import Dataset
from mxrun.io.dataset.fields import Field
from mxrun.io.dataset.fingerprint import fingerprint
classes = bytes.fromhex(sys.argv[1]).decode().split()
print(fingerprint(Dataset("csv", {"label": Field(np.zeros(1, np.int32))}, tuple(classes))))
"""


def test_the_fingerprint_of_words_is_that_of_every_locale():
    """Tested with file names in another encoding than UTF-8, as in a bare container."""
    words = "ä b".encode()
    classes = tuple(words.decode().split())
    here = fingerprint(Dataset("csv", {"label": Field(np.zeros(1, np.int32))}, classes))
    locale = {"PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "LC_ALL": "C"}
    env = {**os.environ, **locale}
    assert python_output("-c", FINGERPRINT, words.hex(), env=env).strip() == here


def columns_of(row: str) -> list[str]:
    """Return the names in a header; a character at a time, as a quote that opens a cell hides
    commas.
    """
    cells, quotes = [""], 0
    for character in row:
        quotes += character == '"'
        if character == "," and not (cells[-1].lstrip().startswith('"') and quotes % 2):
            cells.append("")
            quotes = 0
        else:
            cells[-1] += character
    return [name_in(cell.strip()) for cell in cells]


def name_in(cell: str) -> str:
    is_quoted = len(cell) > 1 and cell[0] == cell[-1] == '"'
    return cell[1:-1].replace('""', '"').strip() if is_quoted else cell


def test_quotes_keep_commas_within_a_cell():
    draw, form = random.Random(3), TableForm(delimiter=",", header="yes")
    letters, often = '", abc', (3, 3, 1, 2, 2, 2)
    rows = ["".join(draw.choices(letters, often, k=1 + n % 20)) + "." for n in range(800)]
    # A header may have a name only once.
    named = [row for row in rows if len({*columns_of(row)}) == len(columns_of(row))]
    assert len(named) > 200
    assert sum(len(columns_of(row)) > 2 for row in named) > 50
    for row in named:
        numbers = ",".join("1" * len(columns_of(row)))
        table = parse_table(f"{row}\n{numbers}\n".encode(), "t.csv", form, "")
        assert list(table.names) == columns_of(row), row


def test_a_quote_that_is_never_closed_takes_the_rest_of_the_row():
    row = 'a,"' + "b," * 200_000
    table = parse_table(f"{row}\n1,2\n".encode(), "t.csv", TableForm(",", "yes"), "")
    assert table.names == ("a", row[2:])


MEMORY = """
import resource, sys
from mxrun import library
from mxrun.base.tensor import TensorSpec
from mxrun.io.dataset.request import open_datasets, request_dataset

library.load()
def peak():
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for path in sys.argv[1:]:
    before = peak()
    request = request_dataset("csv", {"path": path}, None, {})
    inputs = {"data": TensorSpec((20,)), "label": TensorSpec((), "int32")}
    open_datasets({"train": request}, inputs)
    print(peak() - before)
"""


@pytest.mark.full
def test_reading_takes_little_more_than_the_numbers(tmp_path):
    cells = ",".join(f"{number}.{number:03}" for number in range(20))
    # The first table pays for what is imported and allocated once.
    for name, rows in (("small.csv", 5_000), ("large.csv", 60_000)):
        (tmp_path / name).write_text("".join(f"{cells},{row % 3}\n" for row in range(rows)))
    output = python_output("-c", MEMORY, str(tmp_path / "small.csv"), str(tmp_path / "large.csv"))
    assert int(output.split()[1]) < 2.5 * (tmp_path / "large.csv").stat().st_size


@pytest.mark.parametrize(
    "text",
    [
        '1,2,"0\n3,4,1\n',
        '1,2,0\n3,4," 1',
        # The next quote stands within a cell.
        '1,"5 inch,0\n2,6" pipe,1\n',
        '1,"5 inch,0\n2,6" and "7,1\n3,8",1\n',
    ],
)
def test_a_cell_in_quotes_that_does_not_end_is_told(tmp_path, text):
    (tmp_path / "a.csv").write_text(text)
    with pytest.raises(UserError, match=r"the cell in quotes does not end in this line"):
        open_csv(tmp_path / "a.csv")


def test_json_is_no_table(tmp_path):
    (tmp_path / "a.json").write_text('[{"a": 1, "b": 2, "c": 0}]')
    with pytest.raises(UserError, match=r"a\.json:1: JSON, not a table\n(.*\n)*.*read_json"):
        open_csv(tmp_path / "a.json")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"sep=;\r\n1;2;0\r\n", "a.csv:1: the line names a separator"),
        ("1,2,0\n".encode("utf-16-le"), "encoding: utf-16le, or convert it: iconv -f UTF-16LE"),
    ],
)
def test_what_spreadsheets_write_is_told(tmp_path, content, message):
    (tmp_path / "a.csv").write_bytes(content)
    with pytest.raises(UserError) as caught:
        open_csv(tmp_path / "a.csv")
    assert message in str(caught.value)
