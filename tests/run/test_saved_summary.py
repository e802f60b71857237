"""Files that a run reads back may be edited or damaged: they are used, refused, or noted."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from consoles import printed
from sealed import spelled
from training import NoteRecorder, json_lines, run_training

from mxrun.base.errors import UserError
from mxrun.commands.evaluate import evaluate
from mxrun.commands.runs import list_runs
from mxrun.options.evaluate import EvaluateOptions
from mxrun.options.runs import RunsOptions
from mxrun.report.tables import train_table
from mxrun.run.learning_curves import learning_curves
from mxrun.run.saved_runs import read_run
from mxrun.run.train_summary import TrainSummary
from mxrun.train.checkpoint import read_manifest
from mxrun.train.checkpoint_manager import saved_steps
from mxrun.train.run_directory import RunDirectory

CONFIG = """\
name: one
threads: 1
network:
  inputs: {data: [4], label: []}
  layers: [FullyConnected: {num_hidden: 2}, SoftmaxOutput: {label: label}]
data:
  batch_size: 8
  on_bad_record: skip
  train: {dataset: npz, path: rows.npz}
  eval: {dataset: npz}
train:
  epochs: 2
  log_every: 2
  metrics: [accuracy, confusion_matrix]
  optimizer: {sgd: {lr: 0.1}}
  schedule: {plateau: {}}
  start_from: {run: runs/start}
  early_stopping: {metric: accuracy, patience: 5}
"""
RUN = Path("runs/one")
OF_RUN = EvaluateOptions(run=RUN)
# A value that stands for a key that is missing.
MISSING = object()
WRONG = [MISSING, "text", [], {}, None, True, -1, 10**400, 1e308]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a finished run, which began with the weights of another."""
    folder = tmp_path_factory.mktemp("finished")
    random = np.random.default_rng(0)
    label = np.arange(24) % 2
    rows = (random.normal(size=(24, 4)) + label[:, None]).astype("f4")
    np.savez(folder / "rows.npz", data=rows, label=label)
    (folder / "net.yaml").write_text(CONFIG)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        run_training("name=start", "train.start_from=null")
        run_training()
    line = {"data": "train", "record": 3, "file": "a", "number": 1, "byte": 0, "reason": "torn"}
    (folder / RUN / "bad_records.jsonl").write_bytes(spelled(line))
    return folder


@pytest.fixture
def here(finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in a copy of the folder."""
    shutil.copytree(finished, tmp_path / "copy")
    monkeypatch.chdir(tmp_path / "copy")
    return tmp_path / "copy"


def paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the paths of all values within a JSON value, and its own; of lists the first two."""
    yield path
    parts: dict[Any, Any] = value if isinstance(value, dict) else {}
    if isinstance(value, list):
        parts = dict(enumerate(value[:2]))
    for key, part in parts.items():
        yield from paths(part, (*path, key))


def changed(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    """Return a copy with another value at a path."""
    if not path:
        return {} if new is MISSING else new
    copy = json.loads(json.dumps(value))
    parent = copy
    for key in path[:-1]:
        parent = parent[key]
    if new is MISSING:
        del parent[path[-1]]
    else:
        parent[path[-1]] = new
    return copy


def every_change(value: Any) -> Iterator[Any]:
    for path in list(paths(value)):
        for new in WRONG:
            yield changed(value, path, new)


def is_refused(function: Callable[[], object]) -> bool:
    """Return whether a call raises UserError; other exceptions fail the test."""
    try:
        function()
    except UserError:
        return True
    return False


def test_any_other_summary_is_ignored_or_shown(here: Path) -> None:
    content = json.loads((RUN / "summary.json").read_text())
    sound = TrainSummary.from_json(content)
    assert sound is not None
    assert json.loads(json.dumps(sound.to_json())) == content
    known = 0
    for other in every_change(content):
        found = TrainSummary.from_json(other) if isinstance(other, dict) else None
        if found is not None:
            known += 1
            assert printed(train_table(found.to_json()))
    # Such as another loss, or null where a number may be unknown.
    assert known > 50


@pytest.mark.parametrize("path", [("best",), ("best", "value"), ("step_ms",), ("started_from",)])
def test_a_finished_run_with_another_summary_gets_a_new_one(
    path: tuple[str, ...], here: Path
) -> None:
    before = json.loads((RUN / "summary.json").read_text())
    (RUN / "summary.json").write_text(json.dumps(changed(before, path, {})))
    (run,) = (run for run in list_runs(RunsOptions())["runs"] if run["name"] == "one")
    assert (run["state"], run["problem"]) == ("damaged", "summary.json is damaged")
    assert run_training(resume=True)["best"] == before["best"]
    after = json.loads((RUN / "summary.json").read_text())
    assert after["eval"] == before["eval"]


def test_times_that_are_not_known_are_nan(here: Path) -> None:
    content = json.loads((RUN / "summary.json").read_text())
    found = TrainSummary.from_json(changed(content, ("step_ms", "min"), None))
    assert found is not None
    assert np.isnan(found.step_ms.min)


@pytest.mark.full
def test_any_other_records_are_listed_or_named_as_damaged(here: Path) -> None:
    lines = json_lines(RUN / "metrics.jsonl")
    assert {"eval" in line for line in lines} == {True, False}
    for number, line in enumerate(lines):
        for other in every_change(line):
            text = [json.dumps(other if at == number else each) for at, each in enumerate(lines)]
            (RUN / "metrics.jsonl").write_text("\n".join(text) + "\n")
            run = read_run(RUN)
            assert run.best is None or run.last
            assert is_refused(lambda: learning_curves(RUN)) == bool(run.problem)


@pytest.mark.parametrize("name", ["metrics.jsonl", "timing.jsonl", "bad_records.jsonl"])
def test_a_run_goes_on_whatever_its_lines_hold(name: str, here: Path) -> None:
    lines = json_lines(RUN / name)
    others = [json.dumps(other) for line in lines for other in every_change(line)]
    (RUN / name).write_text("\n".join([*others, "[" * 100_000, "\ufffd", ""]))
    run_training("train.epochs=3", resume=True)
    assert len((RUN / "timing.jsonl").read_text().splitlines()) >= 1


@pytest.mark.full
def test_any_other_manifest_is_refused_or_used(here: Path) -> None:
    """Also with a digest of its own, as of a program that writes manifests."""
    folder = RUN / f"checkpoint-{saved_steps(RUN)[-1]}"
    content = json.loads((folder / "manifest.json").read_bytes())
    for step in saved_steps(RUN)[:-1]:
        shutil.rmtree(RUN / f"checkpoint-{step}")
    shutil.copytree("runs", "before")
    del content["sha256"]
    read = 0
    for other in every_change(content):
        sealed = other if isinstance(other, dict) else {}
        own = {"sha256": hashlib.sha256(spelled(sealed)).hexdigest()}
        (folder / "manifest.json").write_bytes(spelled({**sealed, **own}))
        if is_refused(lambda: read_manifest(folder)):
            continue
        read += 1
        if read % 4 == 0:
            is_refused(lambda: evaluate(OF_RUN).run())
        is_refused(lambda: run_training(resume=True, observer=NoteRecorder()))
        shutil.rmtree("runs")
        shutil.copytree("before", "runs")
    assert read > 10


@pytest.mark.parametrize("content", ["[" * 100_000, "[1]", "{", "\xff"])
def test_what_is_no_mapping_is_no_summary(content: str, tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "one", "name: one\n", False)
    (run.path / "summary.json").write_text(content, encoding="latin-1")
    assert run.summary() is None
    (run.path / "metrics.jsonl").write_text(f"{content}\n{json.dumps({'epoch': 'x'})}\n")
    run.remove_records_from(2)
    assert (run.path / "metrics.jsonl").read_bytes() == b""
