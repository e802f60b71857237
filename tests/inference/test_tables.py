"""Tables in training and inference: inherited options, and selection of columns."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from commands import result
from layer_configs import classifier, config_file, network_text
from refusals import only_problem
from training import run_training

from mxrun.base.errors import Diagnostic, UserError
from mxrun.commands.infer import infer
from mxrun.io.dataset.dataset import Dataset
from mxrun.io.dataset.request import open_datasets
from mxrun.options.infer import InferOptions
from mxrun.preparation.planning import load

CONFIG = (
    network_text(classifier(3), inputs="{data: [2], label: []}")
    + """\
train: {epochs: 20, optimizer: {sgd: {lr: 0.5}}}
data:
  batch_size: 8
  train: {dataset: csv, path: table.csv, header: true, label: kind, shuffle: true}
  eval: {dataset: csv, path: other.csv}
"""
)
KINDS = ("low", "mid", "top")


def rows(order: tuple[str, ...], count: int, delimiter: str = ";") -> str:
    """Return a table with a header; the columns of each kind are apart from the others'."""
    lines = [delimiter.join(order)]
    for number in range(count):
        kind = number % 3
        cells = {
            "a": f"{(kind == 0) + number / 1000}",
            "b": f"{(kind == 2) + number / 1000}",
            "kind": KINDS[kind],
            "more": "0.5",
        }
        lines.append(delimiter.join(cells[name] for name in order))
    return "".join(f"{line}\n" for line in lines)


def written(folder: Path) -> Path:
    (folder / "table.csv").write_text(rows(("a", "kind", "b"), 48))
    (folder / "other.csv").write_text(rows(("a", "kind", "b"), 12, ","))
    return config_file(folder, CONFIG)


def datasets(path: Path) -> dict[str, Dataset]:
    built = load(path)
    return open_datasets(built.data, built.model.records)


def problem(path: Path) -> Diagnostic:
    built = load(path)
    return only_problem(open_datasets, built.data, built.model.records)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tables")
    result("train", str(written(folder)), cwd=folder)
    return folder


def kinds(folder: Path, name: str, text: str) -> list[str]:
    """Return the classes that the run of `folder` predicts for a table."""
    (folder / name).write_text(text)
    options = InferOptions(run=folder / "runs" / "net", inputs=(str(folder / name),))
    inference = infer(options)
    return [row["top"][0]["name"] for row in inference.rows()]


def test_evaluation_takes_over_how_a_table_is_read(tmp_path: Path) -> None:
    built = load(written(tmp_path))
    parts = open_datasets(built.data, built.model.records)
    assert parts["eval"].classes == KINDS
    assert parts["eval"].fields["label"].records.tolist() == [0, 1, 2] * 4
    assert parts["eval"].columns == ("a", "b")


@pytest.mark.parametrize("label", ["label: kind", "label: 1"])
@pytest.mark.parametrize("data", ["", ", data: [0, 2]"])
def test_evaluation_finds_columns_by_the_names_of_training(
    tmp_path: Path, label: str, data: str
) -> None:
    path = written(tmp_path)
    path.write_text(CONFIG.replace("label: kind", label + data))
    expected = datasets(path)["eval"]
    for order in (("b", "a", "kind"), ("kind", "more", "b", "a")):
        (tmp_path / "other.csv").write_text(rows(order, 12))
        found = datasets(path)["eval"]
        assert found.columns == ("a", "b")
        assert found.classes == KINDS
        for name, column in expected.fields.items():
            assert np.array_equal(found.fields[name].records, column.records)
    (tmp_path / "other.csv").write_text(rows(("a", "kind", "more"), 12))
    assert "other.csv: no column is named 'b'" in problem(path).problem


def test_evaluation_may_say_its_columns_itself(tmp_path: Path) -> None:
    path = written(tmp_path)
    path.write_text(CONFIG.replace("path: other.csv", "path: other.csv, data: [b, a]"))
    assert datasets(path)["eval"].columns == ("b", "a")
    # Without a header there are no names to find.
    (tmp_path / "other.csv").write_text(rows(("a", "kind", "b"), 12).partition("\n")[2])
    path.write_text(CONFIG.replace("other.csv", "other.csv, header: false, label: 1"))
    assert datasets(path)["eval"].fields["label"].records.tolist() == [0, 1, 2] * 4


def test_inference_of_a_split_finds_columns_by_name(folder: Path) -> None:
    """The evaluation table has changed since training: its columns are in another order."""
    table = folder / "other.csv"
    before = table.read_text()
    options = InferOptions(run=folder / "runs" / "net", split="eval")
    expected = list(infer(options).rows())
    table.write_text(rows(("b", "more", "kind", "a"), 12))
    assert list(infer(options).rows()) == expected
    table.write_text(before)


def test_inference_of_a_split_finds_a_numbered_label_by_its_name(empty_folder: Path) -> None:
    path = written(empty_folder)
    path.write_text(CONFIG.replace("label: kind", "label: 1"))
    run_training("train.epochs=1")
    options = InferOptions(run=Path("runs/net"), split="eval")
    expected = list(infer(options).rows())
    Path("other.csv").write_text(rows(("b", "more", "kind", "a"), 12))
    assert list(infer(options).rows()) == expected


def test_who_is_at_fault_is_told(tmp_path: Path) -> None:
    """An inherited option that does not fit a section's file is reported at that file."""
    path = written(tmp_path)
    (tmp_path / "other.csv").write_text(rows(("a", "b"), 3))
    found = problem(path)
    assert "other.csv: no column is named 'kind'" in found.problem
    assert str(found.place) == f"{path}:11:30"
    # The section names a column that the inherited file lacks: the error is at the section's
    # option.
    path.write_text(CONFIG.replace("path: other.csv", "label: sort"))
    found = problem(path)
    assert "table.csv: no column is named 'sort'" in found.problem
    assert str(found.place) == f"{path}:11:19"


def test_inference_reads_the_table_that_was_trained_on(folder: Path) -> None:
    expected = list(KINDS) * 4
    assert kinds(folder, "same.csv", rows(("a", "kind", "b"), 12)) == expected
    assert kinds(folder, "commas.csv", rows(("a", "kind", "b"), 12, ",")) == expected


def test_inference_finds_columns_by_name(folder: Path) -> None:
    expected = list(KINDS) * 4
    assert kinds(folder, "unlabelled.csv", rows(("b", "a"), 12)) == expected
    assert kinds(folder, "another.csv", rows(("kind", "b", "a"), 12)) == expected
    bare = rows(("a", "b"), 12).partition("\n")[2]
    assert kinds(folder, "bare.csv", bare) == expected
    with pytest.raises(UserError, match="the header has the name 'a' 2 times"):
        kinds(folder, "twice.csv", rows(("a", "b", "a"), 12))
    with pytest.raises(UserError, match="no column is named 'b'"):
        kinds(folder, "lacking.csv", rows(("a", "kind"), 12))


def numbered(count: int, last: str) -> str:
    """Return a table without header whose label is the row number, and a word in the last row."""
    kinds = [*map(str, range(count - 1)), last]
    return "".join(f"{number},{number % 2},{kind}\n" for number, kind in enumerate(kinds))


NUMBERED = (
    CONFIG.replace("num_hidden: 3", "num_hidden: 12")
    .replace("epochs: 20", "epochs: 1")
    .replace("header: true, label: kind, ", "")
)


def test_words_are_no_classes_where_training_has_numbers(empty_folder: Path) -> None:
    """Numbers among words are sorted as words: 2 would be a different class than in training."""
    (empty_folder / "table.csv").write_text(numbered(12, "11"))
    (empty_folder / "other.csv").write_text(numbered(12, "x"))
    path = config_file(empty_folder, NUMBERED)
    found = problem(path)
    assert "data.eval (csv all) has labels that are words" in found.problem
    assert "those of training are numbers" in found.problem
    assert str(found.place) == f"{path}:11:19"
    assert found.expected == "labels that are numbers"
    assert found.got.startswith("0, 1, 10, 2, ")
    # The same of a part that is read after training.
    (empty_folder / "other.csv").write_text(numbered(12, "11"))
    run_training()
    options = InferOptions(run=empty_folder / "runs" / "net", split="eval")
    assert [row["label"] for row in infer(options).rows()] == list(range(12))
    (empty_folder / "other.csv").write_text(numbered(12, "x"))
    with pytest.raises(UserError, match="has labels that are words"):
        infer(options)


TABLE = ((0, 2, 1), (1, 0, 2))


@pytest.mark.parametrize(
    "taken", ["data: [1, 0]", "data: [2, 1], label: 0", "data: [2, 0], label: 1"]
)
def test_inference_takes_columns_in_the_order_of_training(empty_folder: Path, taken: str) -> None:
    """A table without a label has the columns that training read, in the order of their numbers."""
    columns = sorted(map(int, taken.partition("[")[2].partition("]")[0].split(",")))
    for name, numbers in (("table.csv", [0, 1, 2]), ("alone.csv", columns)):
        lines = (",".join(str(row[number]) for number in numbers) for row in TABLE)
        (empty_folder / name).write_text("".join(f"{line}\n" for line in lines))
    text = NUMBERED.replace("csv, path: table.csv", f"csv, path: table.csv, {taken}")
    config_file(empty_folder, text.partition("  eval:")[0])
    run_training()

    def scores(name: str) -> list[object]:
        options = InferOptions(run=Path("runs/net"), inputs=(str(empty_folder / name),))
        return [row["top"] for row in infer(options).rows()]

    assert scores("alone.csv") == scores("table.csv")
