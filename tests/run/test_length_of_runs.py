"""Ends of runs: a number of steps, epochs, early stopping; records of steps."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from commands import digests
from training import metrics, prepare, run_training

from mxrun.preparation.planning import load
from mxrun.report.epoch_table import EpochTable
from mxrun.report.progress import EpochLines
from mxrun.train.observer import EpochDone, RunStarted, StepLogged
from mxrun.train.replay import NullCheckpointing, NullObserver

CONFIG = """\
name: one
network:
  inputs: {data: [12], label: []}
  layers:
    - FullyConnected: {name: fc1, num_hidden: 8}
    - Activation: {act_type: tanh}
    - Dropout: {p: 0.2}
    - FullyConnected: {name: fc2, num_hidden: 4}
    - SoftmaxOutput: {name: softmax, label: label}
data:
  batch_size: 16
  train: {dataset: npz, path: records.npz, shuffle: true}
  eval: {dataset: npz, path: records.npz}
train:
  optimizer: {sgd: {lr: 0.1, momentum: 0.9}}
  checkpoint: {keep: 9, best: accuracy}
"""
# 160 records in batches of 16.
EPOCH = 10


@pytest.fixture(autouse=True)
def _project(empty_folder: Path) -> None:
    generator = np.random.default_rng(0)
    data = generator.normal(size=(160, 12)).astype("f4")
    labels = generator.integers(0, 4, 160).astype("i4")
    np.savez(empty_folder / "records.npz", data=data, label=labels)
    (empty_folder / "net.yaml").write_text(CONFIG)


def test_max_steps_ends_a_run_within_an_epoch_with_an_evaluation_and_a_checkpoint() -> None:
    summary = run_training("train.max_steps=25")
    assert (summary["steps"], summary["epochs"]) == (25, 2)
    assert summary["ended"] == "max_steps 25 reached"
    assert not summary["stopped_early"]
    last = metrics("one")[-1]
    assert (last["epoch"], last["step"]) == (3, 25)
    assert last["eval"]["loss"] == summary["eval"]["loss"]
    assert Path("runs/one/checkpoint-25").is_dir()
    again = run_training("train.max_steps=25", resume=True)
    assert (again["steps"], again["resumed_from"]) == (25, None)
    # In the order of the output, not of the file.
    assert list(again["eval"]) == list(summary["eval"]) == ["loss", "accuracy", "cross_entropy"]


def test_a_run_that_was_killed_before_its_summary_has_its_last_evaluation() -> None:
    words = ("train.max_steps=25", "train.log_every=4")
    summary, before = run_training(*words), metrics("one")
    Path("runs/one/summary.json").unlink()
    again = run_training(*words, resume=True)
    assert metrics("one") == before
    assert again["eval"] == summary["eval"]


@pytest.mark.parametrize("longer", [["train.max_steps=27"], ["train.max_steps=40"]])
def test_a_run_goes_on_with_more_steps_to_the_same_bytes(longer: list[str]) -> None:
    run_training("train.max_steps=25", "train.log_every=4")
    summary = run_training(*longer, "train.log_every=4", resume=True)
    assert summary["resumed_from"] == 25
    extended = digests(Path("runs/one"))
    run_training(*longer, "train.log_every=4", overwrite=True)
    # Only the shorter run has saved and evaluated at its end.
    without = {name for name in extended if "checkpoint-25" in name}
    assert without
    assert {k: v for k, v in extended.items() if k not in without} == digests(Path("runs/one"))


def test_a_schedule_spreads_over_max_steps() -> None:
    cosine = ("train.schedule=cosine", "train.checkpoint={}")
    run_training("train.max_steps=20", "train.epochs=7", *cosine)
    by_steps = metrics("one")
    run_training("train.epochs=2", *cosine, overwrite=True)
    assert metrics("one") == by_steps


def test_records_of_steps_are_those_of_an_uninterrupted_run_after_a_resume() -> None:
    every = ("train.epochs=3", "train.log_every=4", "train.checkpoint={every: 3 steps, keep: 99}")
    run_training(*every)
    whole = Path("runs/one/metrics.jsonl").read_bytes()
    steps = [record["step"] for record in metrics("one") if "eval" not in record]
    assert steps == [4, 8, 12, 16, 20, 24, 28]
    first = metrics("one")[0]
    assert first.keys() == {"epoch", "step", "learning_rate", "train"}
    assert first["train"].keys() == {"loss", "accuracy", "cross_entropy"}
    for last in (27, 18, 15, 9, 3):
        for folder in Path("runs/one").glob("checkpoint-*"):
            if int(folder.name.split("-")[1]) > last:
                shutil.rmtree(folder)
        Path("runs/one/summary.json").unlink()
        assert run_training(*every, resume=True)["resumed_from"] == last
        assert Path("runs/one/metrics.jsonl").read_bytes() == whole


class TableLines(NullObserver):
    """Observer that collects the lines of the table on a terminal of 80 columns."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def run_started(self, event: RunStarted) -> None:
        self.table = EpochTable(event)

    def step_logged(self, event: StepLogged) -> None:
        self.lines += self.table.step_lines(event, 80)

    def epoch_done(self, event: EpochDone) -> None:
        self.lines += self.table.epoch_lines(event, 80)


def test_steps_and_epochs_have_one_line_each_and_one_heading() -> None:
    steps = ("train.epochs=2", "train.log_every=5")
    measured = "train.metrics=[accuracy, {f1: {average: macro}}, confusion_matrix]"
    table = TableLines()
    run_training(*steps, measured, observer=table)
    heading, *lines = table.lines
    columns = heading.split("  ")
    assert [name for name in columns if "epoch" in name or "step" in name] == ["epoch", "step"]
    assert ["loss" in heading, "f1_macro" in heading] == [True, True]
    assert "confusion" not in heading
    assert [line.split()[:2] for line in lines] == [
        ["1/2", "5"],
        ["1/2", "10"],
        ["2/2", "15"],
        ["2/2", "20"],
    ]
    plain: list[str] = []
    run_training(*steps, observer=EpochLines(plain.append), overwrite=True)
    assert [line.split()[3] for line in plain[2:]] == ["5", "10", "15", "20"]
    assert [record["step"] for record in metrics("one")] == [5, 10, 10, 15, 20, 20]


@pytest.mark.parametrize(
    ("settings", "ended"),
    [
        (["train.epochs=2"], "all 2 epochs"),
        (["train.epochs=1"], "the only epoch"),
        (
            ["train.epochs=9", "train.early_stopping={patience: 2, min_delta: 9.0}"],
            "early stopping: loss has not improved for 2 evaluations",
        ),
    ],
)
def test_the_summary_says_why_a_run_ended_and_what_was_best(
    settings: list[str], ended: str
) -> None:
    summary = run_training(*settings)
    assert summary["ended"] == ended
    best = summary["best"]
    figures = {record["epoch"]: record["eval"]["accuracy"] for record in metrics("one")}
    assert best["value"] == max(figures.values()) == figures[best["epoch"]]
    assert best["checkpoint"] == f"runs/one/checkpoint-{best['step']}"
    assert Path(best["checkpoint"]).is_dir()
    assert summary["same_as_loss"] == ["cross_entropy"]


def test_smoothed_labels_have_a_cross_entropy_of_its_own() -> None:
    smoothed = CONFIG.replace("label: label}", "label: label, smooth_alpha: 0.1}")
    Path("net.yaml").write_text(smoothed)
    assert run_training("train.epochs=1")["same_as_loss"] == []


def test_waits_before_the_first_step_are_no_waits_of_training() -> None:
    run = prepare(load("net.yaml", ["train.max_steps=2"]))
    # As after a look at the first batches, before another run is overwritten.
    run.iterators["train"].waited_seconds = 100.0
    result = run.loop(NullObserver()).run(NullCheckpointing(), lambda: False)
    run.close()
    assert result.waited_seconds == 0
