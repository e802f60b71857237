"""`mxrun evaluate`, and `mxrun infer` with KEY=VALUE, as a user runs them."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from commands import mxrun, refused, result, succeeded
from consoles import printed

from mxrun.report.evaluation import evaluation_tables

TABLE = """\
network:
  inputs: {data: [2], label: []}
  layers:
    - FullyConnected: {name: fc, num_hidden: 3}
    - SoftmaxOutput: {label: label}
data:
  batch_size: 10
  train: {dataset: csv, path: rows.csv, header: true, label: kind}
  eval: {dataset: csv, path: test.csv}
train: {epochs: 30, optimizer: {sgd: {lr: 0.5}}}
"""
KINDS = ("a class with a long name", "bee", "cat")


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a trained run on tables."""
    folder = tmp_path_factory.mktemp("evaluate")
    random = np.random.default_rng(2)
    for name, count in (("rows", 60), ("test", 30)):
        rows = [
            f"{x:.3f},{y:.3f},{KINDS[i % 3]}"
            for i in range(count)
            for x, y in [random.normal((i % 3, -(i % 3)), 0.6)]
        ]
        (folder / f"{name}.csv").write_text("x,y,kind\n" + "\n".join(rows) + "\n")
    (folder / "table.yaml").write_text(TABLE)
    result("train", "table.yaml", cwd=folder)
    return folder


def test_json_has_everything_that_the_tables_show(work: Path) -> None:
    report = result("evaluate", "table", "--errors", "3", cwd=work)
    assert (report["run"], report["records"]) == ("table", 30)
    assert report["source"] == "data.eval: csv test.csv, all"
    (head,) = report["heads"]
    assert head["classes"] == list(KINDS)
    assert sum(map(sum, head["confusion_matrix"])) == 30
    hits = sum(head["confusion_matrix"][number][number] for number in range(3))
    assert report["metrics"]["accuracy"] == pytest.approx(hits / 30)
    assert [error["input"] for error in head["errors"]] == ["test.csv"] * 3
    done = succeeded(mxrun("evaluate", "table", "--errors", "3", cwd=work))
    for text in ("weighted average", "confusion matrix", "worst records", *KINDS):
        assert text in done.stdout
    assert f"{report['metrics']['accuracy']:.4f}" in done.stdout
    assert "checkpoint-180" in done.stderr
    assert "30 records, " in done.stderr


def test_tables_fit_into_the_terminal(work: Path) -> None:
    report = result("evaluate", "table", "--split", "train", "--errors", "2", cwd=work)
    assert (report["records"], report["source"]) == (60, "data.train: csv rows.csv, all")
    for width in (80, 120, 200):
        shown = printed(*evaluation_tables(report), width=width)
        assert max(map(len, shown.splitlines())) <= width
        for text in ("a class with a long name", "rows.csv", "precision", "support"):
            assert text in shown
        # No heading is broken over lines or cut.
        worst = shown[shown.index("worst records") :]
        assert re.search(r"input +record +label +prediction +probability", worst)


def test_many_classes_show_the_worst_and_the_most_confused() -> None:
    classes = [f"class {number}" for number in range(300)]
    row = {"precision": 1.0, "recall": 1.0, "f1": 1.0, "support": 3}
    rows = [
        {"class": number, "name": name, **row, "f1": number / 300}
        for number, name in enumerate(classes)
    ]
    head = {
        "name": "softmax",
        "kind": "classes",
        "metrics": {},
        "forecasts": [],
        "classes": classes,
        "rows": rows,
        "averages": {"macro": row, "weighted": row},
        "confusion_matrix": None,
        "mistakes": [{"label": 7, "predicted": 9, "count": 4}],
        "errors": [],
    }
    report = {"run": "net", "step": 1, "records": 900, "source": "here", "loss": 0.5}
    shown = printed(*evaluation_tables({**report, "metrics": {}, "heads": [head]}), width=80)
    assert "40 classes with the lowest F1, of 300" in shown
    assert "class 39" in shown
    assert "class 40" not in shown
    assert ["class", "7", "class", "9", "4"] in [line.split() for line in shown.splitlines()]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("table", "nothere.csv"), ("nothere.csv: there is no such file or folder",)),
        (("table", "rows.csv", "test.csv"), ("one path can be evaluated at a time",)),
        (("table", "wrong.csv"), ("does not know: wasp", "classes of training: ", "bee, cat")),
        (("table", "label=king"), ("no column is named 'king'", "did you mean 'kind'?")),
    ],
)
def test_mistakes_are_explained(work: Path, arguments: list[str], words: list[str]) -> None:
    (work / "wrong.csv").write_text("x,y,kind\n1,2,wasp\n3,4,bee\n")
    said = refused("evaluate", *arguments, cwd=work)
    for word in words:
        assert word in said


def test_other_names_of_the_command_are_known(work: Path) -> None:
    assert "Did you mean 'evaluate'?" in refused("test", "table", cwd=work)


def test_inference_reads_tables_of_any_form(work: Path) -> None:
    expected = result("infer", "table", "test.csv", cwd=work)["results"]
    rows = [line.split(",") for line in (work / "test.csv").read_text().splitlines()]
    (work / "mixed.csv").write_text("".join(f"{k};n/a;{y};{x}\n" for x, y, k in rows))
    for arguments in (("mixed.csv",), ("mixed.csv", "label=kind", "header=true")):
        found = result("infer", "table", *arguments, cwd=work)["results"]
        assert [row["top"] for row in found] == [row["top"] for row in expected]
    numbered = "".join(f"{kind}|{x}|{y}\n" for x, y, kind in rows[1:])
    (work / "numbered.csv").write_text(numbered)
    settings = ("data=[1, 2]", "header=false", "delimiter='|'")
    found = result("infer", "table", "numbered.csv", *settings, cwd=work)["results"]
    assert [row["top"] for row in found] == [row["top"] for row in expected]
    part = result("infer", "table", "--split", "eval", "path=mixed.csv", cwd=work)
    assert [row["top"] for row in part["results"]] == [row["top"] for row in expected]
    assert [row["label_name"] for row in part["results"]] == [row[2] for row in rows[1:]]
    shown = succeeded(mxrun("infer", "table", "--split", "eval", cwd=work)).stdout
    assert re.search(r"test\.csv +1 +bee +", shown)


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("labl=kind", "unknown parameter 'labl'"),
        ("path=rows.csv", "path= is no setting of files"),
    ],
)
def test_wrong_settings_of_inference_are_refused(work: Path, setting: str, words: str) -> None:
    assert words in refused("infer", "table", "test.csv", setting, cwd=work)
