"""Row D6: bad records end a run, or are left out, counted and listed, in every command."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import mxrun, succeeded
from PIL import Image
from training import NoteRecorder, json_lines, run_training

from mxrun.base.errors import UserError
from mxrun.commands.evaluate import evaluate
from mxrun.commands.infer import infer
from mxrun.device.cpu.pool import available_cores
from mxrun.options.evaluate import EvaluateOptions
from mxrun.options.infer import InferOptions
from mxrun.train.checkpoint import checkpoint_folder, load_checkpoint
from mxrun.train.checkpoint_manager import saved_steps
from mxrun.train.observer import EpochDone

RUN = Path("runs/net")
SKIP = ("data.on_bad_record=skip", "data.max_bad_records=8")
TWO = "context=[cpu:0, cpu:1]"
two_cores = pytest.mark.skipif(available_cores() < 2, reason="two CPU contexts need two cores")
COUNT = 18
BAD = (3, 4, 5, 6, 7, 13)
CONFIG = """\
name: net
threads: 1
network:
  inputs: {data: [1, 4, 4], label: []}
  layers:
    - FullyConnected: {name: fc, num_hidden: 2}
    - SoftmaxOutput: {name: softmax, label: label}
data:
  batch_size: 4
  workers: 2
  train: {dataset: image_folder, path: train, split: all}
  eval: {dataset: image_folder, path: train, split: all}
train:
  epochs: 3
  optimizer: {sgd: {lr: 0.1, momentum: 0.9}}
"""


def image(number: int) -> np.ndarray:
    return (np.arange(16) * (3 * number + 5) % 256).astype(np.uint8).reshape(4, 4)


@pytest.fixture
def files(empty_folder: Path) -> list[str]:
    """Write a config and its images; those of `BAD` are damaged, 4 .. 7 are a complete batch."""
    names = [f"train/{'ab'[number // 9]}/{number:02}.png" for number in range(COUNT)]
    for number, name in enumerate(names):
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image(number)).save(name)
        if number in BAD:
            Path(name).write_bytes(b"no image")
    Path("net.yaml").write_text(CONFIG)
    return names


def listed() -> list[dict[str, Any]]:
    path = RUN / "bad_records.jsonl"
    return json_lines(path) if path.exists() else []


def state() -> dict[str, bytes]:
    checkpoint = load_checkpoint(checkpoint_folder(RUN, saved_steps(RUN)[-1]))
    groups = (checkpoint.parameters, checkpoint.optimizer, checkpoint.auxiliary)
    return {name: array.tobytes() for group in groups for name, array in group.items()}


def test_D6_a_bad_record_ends_the_run_and_is_named(files: list[str]) -> None:
    with pytest.raises(UserError) as caught:
        run_training()
    problem = caught.value.diagnostics[0].problem
    assert problem.startswith("record 3 of data set 'image_folder'")
    assert files[3] in problem


@pytest.mark.parametrize(
    "overrides",
    [
        (),
        ("data.last_batch=discard",),
        ("data.last_batch=roll_over",),
        ("train.accumulate=2",),
        ("data.train.shuffle=true", "data.workers=1"),
        ("engine=naive",),
        pytest.param((TWO,), marks=two_cores),
    ],
)
def test_D6_bad_records_are_left_out_counted_and_listed(files, overrides):
    summary = run_training(*SKIP, *overrides)
    assert summary["bad_records"] == {"train": len(BAD), "eval": len(BAD)}
    for section in ("train", "eval"):
        found = [each for each in listed() if each["data"] == section]
        assert sorted(each["record"] for each in found) == list(BAD)
        for each in found:
            assert each["file"].endswith(files[each["record"]])
            assert files[each["record"]] in each["reason"]
            assert (each["number"], each["byte"]) == (0, 0)
            assert set(each) == {"data", "record", "file", "number", "byte", "reason"}
    assert math.isfinite(summary["eval"]["loss"])
    assert all(np.isfinite(np.frombuffer(each, "f4")).all() for each in state().values())


def test_D6_a_run_without_the_bad_records_has_the_same_loss(files):
    """Losses and metrics are those of the good records alone."""
    run_training(*SKIP, "train.epochs=1", "train.optimizer.sgd.lr=0")
    with_bad = json.loads((RUN / "metrics.jsonl").read_text())
    for number in BAD:
        Path(files[number]).unlink()
    run_training("train.epochs=1", "train.optimizer.sgd.lr=0", overwrite=True)
    without = json.loads((RUN / "metrics.jsonl").read_text())
    for part in ("train", "eval"):
        for name, value in without[part].items():
            assert with_bad[part][name] == pytest.approx(value, rel=1e-6), name


def test_D6_too_many_end_the_run_with_their_number(files):
    with pytest.raises(UserError, match="too many bad records") as caught:
        run_training("data.on_bad_record=skip", "data.max_bad_records=4")
    first = caught.value.diagnostics[0]
    assert "too many bad records of data set 'image_folder'" in first.problem
    assert all(files[number] in first.problem for number in BAD[:3])
    assert (first.expected, first.got) == ("at most 4 of 18 records", "5")
    assert "after step 1, saved in runs/net" in caught.value.diagnostics[1].problem
    # Records over the limit are not left out, so that they are not listed.
    assert [each["record"] for each in listed()] == [3]
    resumed = run_training(*SKIP, resume=True)
    assert resumed["bad_records"] == {"train": 6, "eval": 6}
    after = state(), listed()
    run_training(*SKIP, overwrite=True)
    assert (state(), listed()) == after


class EndAfter(NoteRecorder):
    def epoch_done(self, event: EpochDone) -> None:
        if event.epoch == 2:
            raise KeyboardInterrupt


def test_D6_a_resumed_run_lists_each_record_once(files):
    words = (*SKIP, "data.train.shuffle=true")
    run_training(*words)
    expected = state(), listed()
    with pytest.raises(KeyboardInterrupt):
        run_training(*words, observer=EndAfter(), overwrite=True)
    path = RUN / "bad_records.jsonl"
    # A process that was killed while it wrote.
    path.write_bytes(path.read_bytes() + b'{"data": "tra')
    summary = run_training(*words, resume=True)
    assert summary["resumed_from"]
    assert (state(), listed()) == expected
    assert summary["bad_records"] == {"train": 6, "eval": 6}


def test_D6_evaluate_and_infer_leave_them_out(files):
    run_training(*SKIP)
    prepared = evaluate(EvaluateOptions(run=Path("net"), split="train", errors=3))
    evaluation = prepared.run()
    good = [number for number in range(COUNT) if number not in BAD]
    assert evaluation.records == len(good)
    assert [each["record"] for each in evaluation.bad_records] == list(BAD)
    assert "bad records of data set 'image_folder' are left out: record 3: " in evaluation.notes[-1]
    inference = infer(InferOptions(run=Path("net"), split="train"))
    rows = list(inference.rows())
    assert [row["input"] for row in rows] == [files[number] for number in good]
    expected = {row["input"]: row["top"] for row in rows}
    # Files, in place of a data set.
    inference = infer(InferOptions(run=Path("net"), inputs=("train",)))
    assert {row["input"]: row["top"] for row in inference.rows()} == expected
    assert [each["file"] for each in inference.bad_records] == [files[number] for number in BAD]


def test_D6_the_command_line_tells_of_them(files):
    trained = succeeded(mxrun("train", "net.yaml", *SKIP, "train.epochs=1"))
    assert "train records left out" in trained.stdout
    evaluated = succeeded(mxrun("evaluate", "runs/net", "--json"))
    assert len(json.loads(evaluated.stdout)["bad_records"]) == len(BAD)
    assert "bad records" in evaluated.stderr
