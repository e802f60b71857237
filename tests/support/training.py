"""Runs trained in this process, in the current folder, and what they leave there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from mxrun.commands.train import train
from mxrun.options.train import TrainOptions
from mxrun.train.checkpoint import Checkpoint
from mxrun.train.checkpoint_manager import newest_checkpoint
from mxrun.train.observer import Observer
from mxrun.train.replay import NullObserver

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
