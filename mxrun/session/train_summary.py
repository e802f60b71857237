"""Summary of a training run, as in its summary.json and in `mxrun train --json`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from mxrun.session.saved_summary import is_summary


@dataclass(frozen=True)
class TrainSummary:
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

    steps: int
    eval: Mapping[str, float | Sequence[Sequence[float | None]] | None]
    step_ms: Mapping[str, float]
    first_step_s: float
    memory: Mapping[str, int]
    storage: Mapping[str, Mapping[str, int]]
    run_dir: str
    epochs: int
    stopped_early: bool
    ended: str
    resumed_from: int | None
    best: Mapping[str, Any] | None
    started_from: Mapping[str, Any] | None
    data_wait_share: float
    data_wait_advice: str
    data_stages: Mapping[str, Mapping[str, float]]
    python_transforms: str | None
    bad_records: Mapping[str, int]
    synthetic_data: bool
    recompute: Mapping[str, Any] | None
    micro_batches: int
    contexts: int
    threads: int
    core_wait_share: float | None
    variables: Mapping[str, Any]
    classes: Sequence[str]
    same_as_loss: Sequence[str]

    def to_json(self) -> dict[str, Any]:
        """Return the summary as JSON."""
        return asdict(self)

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> TrainSummary | None:
        """Return the summary from the content of summary.json; None if it is invalid."""
        if content.keys() != {field.name for field in fields(cls)} or not is_summary(content):
            return None
        times, first = content["step_ms"], content["first_step_s"]
        step_ms = {name: math.nan if time is None else time for name, time in times.items()}
        return cls(
            **{
                **content,
                "step_ms": step_ms,
                "first_step_s": math.nan if first is None else first,
            }
        )
