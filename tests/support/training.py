"""Runs trained in this process, in the current folder, and what they leave there."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from mxrun.base.flags import runs_folder
from mxrun.commands.train import train
from mxrun.frontend import ModelDefinition
from mxrun.graph.phases import TRAIN
from mxrun.options.train import TrainOptions
from mxrun.preparation.planning import load
from mxrun.run.open_run import open_run
from mxrun.run.run import Run
from mxrun.train.checkpoint import Checkpoint
from mxrun.train.checkpoint_manager import newest_checkpoint
from mxrun.train.divergence import Located
from mxrun.train.host_arrays import slots
from mxrun.train.observer import Observer
from mxrun.train.replay import CheckedLoop, NullCheckpointing, NullObserver

SUMMARY_FIELDS = {
    "steps",
    "epochs",
    "stopped_early",
    "resumed_from",
    "started_from",
    "best",
    "eval",
    "step_ms",
    "first_step_s",
    "data_wait_share",
    "classes",
    "core_wait_share",
    "synthetic_data",
    "threads",
    "memory",
    "storage",
    "micro_batches",
    "contexts",
    "recompute",
    "run_dir",
    "variables",
    "ended",
    "same_as_loss",
    "data_wait_advice",
    "data_stages",
    "python_transforms",
    "bad_records",
}


class NoteRecorder(NullObserver):
    """Observer that records notes."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        """Record a note."""
        self.notes.append(text)


def run_training(
    *overrides: str,
    config: str | Path = "net.yaml",
    observer: Observer | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Train a config and return the summary of the run as JSON; options: of `mxrun train`."""
    chosen = TrainOptions(config=str(config), overrides=overrides, **options)
    return train(chosen, observer or NullObserver()).summary.to_json()


def run_with_notes(*overrides: str, **options: Any) -> tuple[dict[str, Any], list[str]]:
    """Train as `run_training` does; return the summary and the notes."""
    recorder = NoteRecorder()
    return run_training(*overrides, observer=recorder, **options), recorder.notes


def prepare(built: ModelDefinition) -> Run:
    """Return an initialised run. Raises UserError if data or memory do not permit it."""
    run = open_run(built, runs_folder())
    run.initialise()
    return run


def checked_message(
    overrides: Sequence[str] = (), change: tuple[str, int, float] | None = None
) -> str:
    """Return the message of a run in checked mode, from its first step, that is not finite.

    change: a tensor, the index of one of its numbers, and the number's value before the first step.
    """
    with closing(prepare(load("net.yaml", overrides))) as run:
        loop = run.loop(NullObserver(), CheckedLoop)
        run.restore(None, loop)
        if change is not None:
            tensor, index, value = change
            run.executor.tensor(tensor).mirror().array[index] = value
        with pytest.raises(Located) as caught:
            loop.run(NullCheckpointing(), lambda: False)
    return str(caught.value.diagnostic)


def take_steps(run: Run, steps: int) -> None:
    """Take the first steps of the first epoch, with the run's own batches."""
    iterator = run.iterators["train"]
    places = slots(run.executor, iterator).arrays
    iterator.reset(1)
    for _ in range(steps):
        assert iterator.next_into(places) is not None
        run.executor.run(TRAIN)


def mean_loss(run: Run, epoch: int, loss: str = "softmax_loss") -> float:
    """Take the steps of an epoch; return its mean loss; `loss` is a tensor of the sum of losses."""
    iterator = run.iterators["train"]
    places = slots(run.executor, iterator).arrays
    iterator.reset(epoch)
    total, rows = 0.0, 0
    while (batch := iterator.next_into(places)) is not None:
        run.executor.run(TRAIN)
        total += float(run.executor.result(TRAIN, loss).values()[0])
        rows += batch.valid
    return total / rows


def newest(name: str) -> Checkpoint:
    """Return the newest checkpoint of a run."""
    found = newest_checkpoint(Path("runs") / name).checkpoint
    assert found is not None
    return found


def metrics(name: str) -> list[dict[str, Any]]:
    """Return the lines of a run's metrics.jsonl."""
    return json_lines(Path("runs") / name / "metrics.jsonl")


def json_lines(path: Path) -> list[dict[str, Any]]:
    """Return the JSON values of a file's lines."""
    return [json.loads(line) for line in path.read_text().splitlines()]
