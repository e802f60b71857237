"""Events of the training loop as plain values, and the interface of their observers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from mxrun.base.dataclass import dataclass
from mxrun.base.merged_names import merged_names
from mxrun.train.metric_kind import Figure


@dataclass(frozen=True)
class VariableGroup:
    """Variables with the same status, such as `loaded` or `frozen`: names, elements and bytes.

    `elements` and `nbytes` are None if the sizes are not known.
    """

    kind: str
    names: tuple[str, ...]
    elements: int | None = None
    nbytes: int | None = None

    def to_json(self) -> dict[str, Any]:
        """Return counts and sizes, and the names merged into patterns."""
        sizes = {"elements": self.elements, "bytes": self.nbytes}
        known = {key: size for key, size in sizes.items() if size is not None}
        return {"tensors": len(self.names), **known, "names": tuple(merged_names(self.names))}


@dataclass(frozen=True)
class WarmStart:
    """Parameters that a run takes from another run's checkpoint.

    source: the checkpoint. groups: all variables by status. misshapen: the tensors whose shape
    differs there, each with both shapes.
    """

    source: str
    groups: tuple[VariableGroup, ...]
    misshapen: tuple[str, ...] = ()


@dataclass(frozen=True)
class RunStarted:
    """Event before the first step that this process takes, in `epoch`.

    resumed_from: the last step before it, if the run is resumed. trainable: the number of trained
    `parameters`, if the config freezes some. warm_start: set if the run starts from another's
    parameters. synthetic_data: whether it trains or is evaluated on synthetic data. same_as_loss:
    the metrics that are the loss by definition. train_numbers, eval_numbers: the names of the
    numbers that an epoch will have. logs_steps: whether some steps are recorded. contexts: the
    number of contexts that compute parts of each batch, each with `threads`. values: how the
    numbers of the records are read.
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
    contexts: int = 1
    resumed_from: int | None = None
    trainable: int | None = None
    warm_start: WarmStart | None = None
    synthetic_data: bool = False
    same_as_loss: frozenset[str] = frozenset()
    train_numbers: tuple[str, ...] = ("loss",)
    eval_numbers: tuple[str, ...] = ()
    logs_steps: bool = False
    values: str = ""


@dataclass(frozen=True)
class StepDone:
    """Event after a training step; metrics are means over the epoch so far, including `loss`.

    A confusion matrix is a table of counts. records: number trained on since the run began, without
    padding, in `train_seconds`, the time of the steps alone, of which `waited_seconds` were spent
    waiting for data.
    """

    epoch: int
    step: int
    metrics: Mapping[str, Figure]
    records: int
    train_seconds: float
    waited_seconds: float = 0.0


@dataclass(frozen=True)
class StepLogged:
    """Step that `train.log_every` records; metrics are means over the epoch so far.

    learning_rate: of this step.
    """

    epoch: int
    step: int
    learning_rate: float
    train: Mapping[str, Figure]


@dataclass(frozen=True)
class EpochDone:
    """Event after an epoch and its evaluation; epochs count from 1, the rate is its last step's.

    records: number trained on in the epoch, without padding, in `train_seconds`, of which
    `waited_seconds` were spent waiting for data; `seconds` is the time of the complete epoch.
    """

    epoch: int
    step: int
    learning_rate: float
    train: Mapping[str, Figure]
    evaluation: Mapping[str, Figure]
    records: int
    train_seconds: float
    seconds: float
    waited_seconds: float = 0.0


@dataclass(frozen=True)
class Note:
    """Event at any time: a note to the user."""

    text: str


class Observer(Protocol):
    """Receiver of the loop's events, in order; `step_done` is called at most ten times a second."""

    def run_started(self, event: RunStarted) -> None:
        """Handle the start of the run."""

    def note(self, text: str) -> None:
        """Show a note to the user, at any time."""

    def step_done(self, event: StepDone) -> None:
        """Handle a step; rate-limited by the loop."""

    def step_logged(self, event: StepLogged) -> None:
        """Handle a step that is recorded, unless it is the last one before an evaluation."""

    def epoch_done(self, event: EpochDone) -> None:
        """Handle an epoch's evaluation."""
