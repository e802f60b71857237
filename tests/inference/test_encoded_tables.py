"""Tables with words, categories and gaps: from training to inference, and what is learned."""

from __future__ import annotations

import csv
import gzip
import io
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import mxrun, refused, result, succeeded
from interrupted_runs import go_on, left
from killed_runs import Moment, chain
from passengers import passengers
from training import run_training

import mxrun as package
from mxrun.base.errors import UserError
from mxrun.io.dataset.request import open_datasets
from mxrun.preparation.planning import load
from mxrun.train.checkpoint import read_manifest

COLUMNS = (
    "columns: {pclass: category, name: ignore, ticket: ignore, cabin: ignore, "
    "age: {number: {missing: median, indicator: true}}}"
)
INPUTS = (
    *("pclass=1", "pclass=2", "pclass=3", "sex=female", "sex=male", "age", "age missing"),
    *("sibsp", "parch", "fare", "embarked=C", "embarked=Q", "embarked=S", "embarked=missing"),
)
CONFIG = f"""\
name: killed
threads: 1
network:
  inputs: {{data: [14], label: []}}
  layers:
    - FullyConnected: {{name: fc1, num_hidden: 16}}
    - Activation: {{act_type: relu}}
    - FullyConnected: {{name: fc2, num_hidden: 2}}
    - SoftmaxOutput: {{name: softmax, label: label}}
data:
  batch_size: 32
  train:
    dataset: csv
    path: titanic.csv
    label: survived
    {COLUMNS}
    split: {{share: 0.8, stratify: true}}
    shuffle: true
  eval: {{dataset: csv, split: rest}}
train:
  epochs: 4
  optimizer: {{adam: {{lr: 0.01}}}}
  metrics: [accuracy]
  checkpoint: {{every: 7 steps, keep: 2, best: accuracy}}
"""


def write(folder: Path, config: str = CONFIG) -> Path:
    (folder / "titanic.csv").write_text(passengers())
    (folder / "net.yaml").write_text(config)
    return folder / "net.yaml"


def table() -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(passengers())))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tables")
    summary = result("train", str(write(folder)), cwd=folder)
    assert summary["eval"]["accuracy"] > 0.7
    return folder


def manifest(folder: Path) -> Any:
    return read_manifest(sorted((folder / "runs/killed").glob("checkpoint-*"))[-1])


def test_what_is_learned_comes_from_the_training_part_alone(folder: Path) -> None:
    built = load(folder / "net.yaml")
    parts = open_datasets(built.data, built.model.records)
    encoding = parts["train"].encoding
    assert encoding is not None
    assert encoding.inputs == INPUTS
    assert manifest(folder).encoding == encoding
    rows = table()
    numbers = parts["train"].numbers
    assert numbers is not None
    fares = np.array([float(rows[number]["fare"]) for number in numbers])
    (column,) = [each for each in encoding.columns if each.name == "fare"]
    assert (column.center, column.spread) == pytest.approx((fares.mean(), fares.std()), rel=1e-12)
    ages = [rows[number]["age"] for number in numbers]
    median = np.median([float(age) for age in ages if age])
    (age,) = [each for each in encoding.columns if each.name == "age"]
    assert age.fill == median
    # Records are what the formulas say, of evaluation with training's numbers.
    for part in parts.values():
        assert part.numbers is not None
        data = part.fields["data"].records
        for row, number in zip(data, part.numbers, strict=True):
            cells = rows[number]
            value = float(cells["age"]) if cells["age"] else median
            expected = {
                **{
                    name: float(cells[name.split("=")[0]] == name.split("=")[1])
                    for name in INPUTS
                    if "=" in name
                },
                "embarked=missing": float(cells["embarked"] == ""),
                "age": (value - age.center) / age.spread,
                "age missing": float(cells["age"] == ""),
                "fare": (float(cells["fare"]) - column.center) / column.spread,
            }
            for name, each in expected.items():
                assert row[INPUTS.index(name)] == np.float32(each), name


def test_evaluation_of_another_table_uses_what_training_learned(folder: Path) -> None:
    rows = table()[:100]
    names = ["survived", "fare", "sex", "parch", "sibsp", "embarked", "pclass", "age", "more"]
    lines = [";".join(names)]
    lines += [";".join(row.get(name, "x") for name in names) for row in rows]
    (folder / "other.csv").write_text("\n".join(lines) + "\n")
    found = result("evaluate", "runs/killed", "other.csv", cwd=folder)
    (folder / "same.csv").write_text("".join(passengers().splitlines(True)[:101]))
    expected = result("evaluate", "runs/killed", "same.csv", cwd=folder)
    assert found["metrics"] == expected["metrics"]
    missing = sum(row["age"] == "" for row in rows)
    assert found["columns"]["age"] == {"missing": missing, "unknown": 0, "unknown_words": []}


ROWS = (
    "age,sex,pclass,fare,embarked,sibsp,parch\n"
    ",male,3,7.5,X,0,0\n20,other,1.0,99,S,1,1\nNA,female,2,5,,0,0\n"
)


def test_unknown_categories_and_gaps_are_answered_and_counted(folder: Path) -> None:
    (folder / "new.csv").write_text(ROWS)
    done = succeeded(mxrun("infer", "runs/killed", "new.csv", "--json", cwd=folder))
    found = json.loads(done.stdout)
    assert len(found["results"]) == 3
    assert found["columns"] == {
        "age": {"missing": 2, "unknown": 0, "unknown_words": []},
        "embarked": {"missing": 1, "unknown": 1, "unknown_words": ["X"]},
        "sex": {"missing": 0, "unknown": 1, "unknown_words": ["other"]},
    }
    assert "categories that training did not have: sex 1 ('other'), embarked 1 ('X')" in done.stderr
    assert "missing values: age 2, embarked 1" in done.stderr
    # The table that was trained on has a label, and columns that are left out.
    whole = result("infer", "runs/killed", "titanic.csv", cwd=folder)
    assert len(whole["results"]) == 900
    (folder / "bad.csv").write_text(ROWS.replace("99", "much"))
    assert "bad.csv:3:4: byte 72: column 'fare': not a number" in refused(
        "infer", "runs/killed", "bad.csv", cwd=folder
    )


def test_rows_in_python_are_encoded(folder: Path) -> None:
    (folder / "new.csv").write_text(ROWS)
    model = package.load(folder / "runs/killed")
    expected = model.predict(folder / "new.csv")
    rows = list(csv.DictReader(io.StringIO(ROWS)))
    names = ("pclass", "sex", "age", "sibsp", "parch", "fare", "embarked")
    by_name = {name: [row[name] for row in rows] for name in names}
    by_name["pclass"] = [3, 1.0, 2]
    by_name["age"] = [None, 20, float("nan")]
    cells = [[row[name] for name in names] for row in rows]
    for data in (by_name, cells, np.array(cells)):
        found = model.predict(data)
        assert [*found.outputs] == [*expected.outputs]
        for name, values in expected.outputs.items():
            assert np.array_equal(found.outputs[name], values)
        assert any("'other'" in note for note in found.notes)
    with pytest.raises(UserError, match="does not have the columns of training's table"):
        model.predict([row[:5] for row in cells])
    labels = np.array([0, 1, 1])
    assert model.evaluate((np.array(cells), labels)).records == 3


def test_a_killed_run_resumes_to_the_same_bytes(tmp_path: Path) -> None:
    for name in ("uninterrupted", "killed"):
        (tmp_path / name).mkdir()
        write(tmp_path / name)
    go_on(tmp_path / "uninterrupted", config=CONFIG)
    chain(tmp_path / "killed", [Moment(9), Moment(40, operation=4)], config=CONFIG)
    assert left(tmp_path / "killed") == left(tmp_path / "uninterrupted")


def test_a_run_does_not_resume_with_other_columns(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path / "run")
    path = tmp_path / "run"
    (path / "net.yaml").write_text(CONFIG.replace("median", "mean"))
    found = refused("train", "net.yaml", "--resume", cwd=path)
    assert "data.train.columns.age.number.missing: median then, mean now" in found
    (path / "net.yaml").write_text(CONFIG)
    lines = passengers().splitlines(True)
    # The fare of the first passenger changes its mean.
    cells = lines[1].rsplit(",", 4)
    lines[1] = ",".join([cells[0], "1000", *cells[2:]])
    (path / "titanic.csv").write_text("".join(lines))
    found = refused("train", "net.yaml", "--resume", cwd=path)
    assert "data.train: its records have changed" in found
    assert "column fare: fill " in found


def test_the_width_and_the_columns_are_told(tmp_path: Path) -> None:
    write(tmp_path, CONFIG.replace("data: [14]", "data: [7]"))
    found = refused("train", "net.yaml", cwd=tmp_path)
    assert f"expected: float32[14], the columns {', '.join(INPUTS)}" in found
    assert "hint: declare it in network.inputs as data: [14]" in found
    assert found.count("does not fit") == 1


def test_columns_that_cannot_be_data_are_told_at_once(tmp_path: Path) -> None:
    write(tmp_path, CONFIG.replace(COLUMNS, "columns: auto"))
    found = refused("train", "net.yaml", cwd=tmp_path)
    for at, name in ((2, "name"), (7, "ticket"), (9, "cabin")):
        assert f"titanic.csv:2:{at}: column '{name}' has " in found
        assert f"columns: {{'{name}': ignore}}" in found
    assert "net.yaml" in found


def test_without_columns_a_table_of_words_is_refused_with_the_way_out(tmp_path: Path) -> None:
    write(tmp_path, CONFIG.replace(f"    {COLUMNS}\n", ""))
    found = refused("train", "net.yaml", cwd=tmp_path)
    assert "titanic.csv:2:2: byte " in found
    assert "`columns: auto` makes numbers of categories and fills gaps" in found
    assert "reading has ended after 19 problems" in found


def trained(folder: Path, config: str) -> package.Model:
    """Train in this process, in the current folder, and return the run."""
    write(folder, config.replace("epochs: 4", "epochs: 1"))
    run_training()
    return package.load(folder / "runs/killed")


def test_columns_that_are_left_out_may_be_among_the_data(empty_folder: Path) -> None:
    names = "data: [fare, name, sex, age]"
    columns = "columns: {name: ignore, age: {number: {missing: 0}}}"
    text = CONFIG.replace(COLUMNS, f"{names}\n    {columns}").replace("[14]", "[4]")
    model = trained(empty_folder, text)
    parts = [model.evaluate(part) for part in ("train", "eval")]
    assert sum(part.records for part in parts) == 900
    right = sum(part.records * part.metrics["accuracy"] for part in parts)
    found = model.evaluate("titanic.csv")
    assert found.metrics["accuracy"] == pytest.approx(right / 900)
    Path("new.csv").write_text(ROWS)
    assert len(model.predict("new.csv").sources) == 3
    Path("new.csv.gz").write_bytes(gzip.compress(ROWS.encode()))
    assert len(model.predict("new.csv.gz").sources) == 3
    assert model.evaluate("titanic.csv").records == 900


def test_a_table_without_a_header_is_encoded_by_number(empty_folder: Path) -> None:
    columns = 'columns: {"0": category, "1": ignore, "6": ignore, "8": ignore}'
    text = CONFIG.replace(COLUMNS, columns).replace("label: survived", "label: -1")
    lines = passengers().splitlines(True)[1:]
    write(empty_folder, text)
    Path("titanic.csv").write_text("".join(lines))
    Path("net.yaml").write_text(text.replace("[14]", "[13]").replace("epochs: 4", "epochs: 1"))
    run_training()
    model = package.load("runs/killed")
    expected = model.predict("titanic.csv")
    cells = [row[:-1] for row in csv.reader(lines)]
    bare = [",".join(row[at] for at in (0, 2, 3, 4, 5, 7, 9)) for row in cells]
    Path("bare.csv").write_text("\n".join(bare))
    found = model.predict("bare.csv")
    for name, values in expected.outputs.items():
        assert np.array_equal(found.outputs[name], values)
    assert model.evaluate("titanic.csv").records == 900
