"""Summary of a training run, as in its summary.json and in `mxrun train --json`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from mxrun.base.params import Parameters, check
from mxrun.train.checkpoint import StartedFrom, checkpoint_folder
from mxrun.train.checkpoint_manager import saved_steps
from mxrun.train.progress import Best, Count, Counts, Progress

# Null in JSON stands for NaN.
Milliseconds = Annotated[
    float,
    Field(allow_inf_nan=True),
    BeforeValidator(lambda value: math.nan if value is None else value),
]
Figure = float | Counts | None


class StepTimes(Parameters):
    """Quantiles of the times of steps, in ms."""

    median: Milliseconds
    p90: Milliseconds
    p99: Milliseconds
    min: Milliseconds


class MemoryUse(Parameters):
    """Bytes of the arenas, planned and used, and the largest size of the process."""

    planned_bytes: Count
    touched_bytes: Count
    lower_bound_bytes: Count
    rss_peak_bytes: Count


class PoolCounters(Parameters):
    """Counters of a pool of arrays; see `StorageCounters`."""

    requests: Count
    requests_from_pool: Count
    system_allocations: Count
    blocks_in_use: Count
    bytes_in_use: Count
    bytes_reserved: Count
    peak_bytes: Count


class SavedBest(Best):
    """Best evaluation, with the folder of its checkpoint; None if that is not retained."""

    checkpoint: str | None


class Recomputation(Parameters):
    """Recomputed steps, and their predicted and measured time as fractions of all other steps'."""

    steps: Count
    predicted_extra: float
    measured_extra: float


class TrainSummary(Parameters):
    """Summary of a training run; times are of the steps run by this process.

    core_wait_share: fraction of the training time in which the process was ready to run while other
    processes occupied the cores; None if the system does not report it. classes: their names by
    number, as in the rows and columns of a confusion matrix; empty if labels have no names.

    ended: why the run ended. best: the best evaluation by the metric that selects a checkpoint or
    stops the run early, with the checkpoint if it is retained. storage: by context, counters of the
    pool of arrays (`StorageCounters`). same_as_loss: the metrics that are the loss by definition.

    data_wait_advice: how to wait less for data; empty if waits are short. data_stages: the work of
    each stage of loading, empty if records are in memory. python_transforms: where transforms of
    the user's own ran, `thread` or `process`; None without any. bad_records: number of those left
    out, by section; empty if none may be.
    """

    steps: Count
    eval: dict[str, Figure]
    step_ms: StepTimes
    first_step_s: Milliseconds
    memory: MemoryUse
    storage: dict[str, PoolCounters]
    run_dir: str
    epochs: Count
    stopped_early: bool
    ended: str
    resumed_from: Count | None
    best: SavedBest | None
    started_from: StartedFrom | None
    data_wait_share: float
    data_wait_advice: str
    data_stages: dict[str, dict[str, float]]
    python_transforms: str | None
    bad_records: dict[str, Count]
    synthetic_data: bool
    recompute: Recomputation | None
    micro_batches: Count
    contexts: Count
    threads: Count
    core_wait_share: float | None
    variables: dict[str, dict[str, int | tuple[str, ...]]]
    classes: tuple[str, ...]
    same_as_loss: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the summary as JSON, with NaN for times that are not known."""
        return self.model_dump(mode="json")

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> TrainSummary | None:
        """Return the summary from the content of summary.json; None if it is invalid."""
        return check(cls, content)[0]


def saved_best(progress: Progress, run: Path) -> SavedBest | None:
    """Return the best evaluation with its checkpoint, None if that is not retained."""
    best = progress.best or progress.watched
    if best is None:
        return None
    checkpoint = checkpoint_folder(run, best.step)
    is_retained = best.step in saved_steps(run)
    return SavedBest(**dict(best), checkpoint=str(checkpoint) if is_retained else None)
