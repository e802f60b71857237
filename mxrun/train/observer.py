"""What the training loop tells whoever watches: plain values, no printing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from mxrun.base.merged_names import merged_names
from mxrun.train.metric_kind import Figure


@dataclass(frozen=True)
class VariableGroup:
    """Variables that share their fate, such as `loaded` or `frozen`: their names, elements and
    bytes; None where their sizes are not known.
    """

    kind: str
    names: tuple[str, ...]
    elements: int | None = None
    nbytes: int | None = None

    def to_json(self) -> dict[str, Any]:
        """Counts, and the names merged into patterns."""
        sizes = {"elements": self.elements, "bytes": self.nbytes}
        known = {key: size for key, size in sizes.items() if size is not None}
        return {"tensors": len(self.names), **known, "names": list(merged_names(self.names))}


@dataclass(frozen=True)
class WarmStart:
    """What a run takes from another: its checkpoint, the groups that all variables are in, and the
    tensors whose shape is another there, each with both shapes.
    """

    source: str
    groups: tuple[VariableGroup, ...]
    misshapen: tuple[str, ...] = ()


@dataclass(frozen=True)
class RunStarted:
    """The run is about to take its first step, in `epoch`; `resumed_from` is the one it goes on
    after. trainable: of the `parameters`, where the config freezes some. warm_start: where the run
    starts from another's parameters. synthetic_data: whether it trains or is evaluated on these.
    """

    name: str
    epoch: int
    epochs: int
    total_steps: int
    steps_per_epoch: int
    batch_size: int
    parameters: int
    planned_bytes: int
    threads: int = 1
    resumed_from: int | None = None
    trainable: int | None = None
    warm_start: WarmStart | None = None
    synthetic_data: bool = False


@dataclass(frozen=True)
class StepDone:
    """One training step is over; metrics are means over the epoch so far, `loss` among them;
    a confusion matrix is a table of counts.

    records: those trained on since the run began, padding not counted, in `train_seconds`, which
    are the steps' alone.
    """

    epoch: int
    step: int
    metrics: Mapping[str, Figure]
    records: int
    train_seconds: float


@dataclass(frozen=True)
class EpochDone:
    """One epoch and its evaluation are over; epochs count from 1, the rate is its last step's.

    records: those trained on in the epoch, padding not counted, in `train_seconds`; `seconds` are
    the whole epoch's.
    """

    epoch: int
    step: int
    learning_rate: float
    train: Mapping[str, Figure]
    evaluation: Mapping[str, Figure]
    records: int
    train_seconds: float
    seconds: float


class Observer(Protocol):
    """Receives the loop's events, in order; `step_done` comes at most ten times a second."""

    def run_started(self, event: RunStarted) -> None:
        """Before the first step."""

    def note(self, text: str) -> None:
        """Something the user should know, at any time."""

    def step_done(self, event: StepDone) -> None:
        """After a step, rate-limited by the loop."""

    def epoch_done(self, event: EpochDone) -> None:
        """After an epoch's evaluation."""
