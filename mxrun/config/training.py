"""The `train` section: how long and by what rule, what is measured, saved and started from."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from pydantic import BeforeValidator, Field, InstanceOf, WithJsonSchema
from pydantic_core import PydanticCustomError

from mxrun.base.errors import SourceLocation
from mxrun.base.params import NotNegative
from mxrun.config.choice import Choice
from mxrun.config.fields import AnyChoice, Size
from mxrun.config.section import Section

_DEFAULT = SourceLocation("<default>", 1, 1)
XAVIER = Choice("xavier", {}, _DEFAULT)
CONSTANT = Choice("constant", {}, _DEFAULT)

_INTERVAL = re.compile(r"([1-9][0-9]{0,8}) (step|epoch|minute)s?")
_UNITS: dict[str, Literal["steps", "epochs", "minutes"]] = {
    "step": "steps",
    "epoch": "epochs",
    "minute": "minutes",
}


@dataclass(frozen=True)
class Interval:
    """So many steps, epochs or minutes, written `1 epoch`, `500 steps` or `10 minutes`."""

    count: int
    unit: Literal["steps", "epochs", "minutes"]


def read_interval(given: object) -> object:
    """A text as an Interval; raises PydanticCustomError where it has not the form of one."""
    if isinstance(given, Interval):
        return given
    match = _INTERVAL.fullmatch(given) if isinstance(given, str) else None
    if match is None:
        raise PydanticCustomError("interval", "a number of steps, epochs or minutes: 1 epoch")
    return Interval(int(match[1]), _UNITS[match[2]])


AnyInterval = Annotated[
    InstanceOf[Interval],
    BeforeValidator(read_interval),
    WithJsonSchema({"type": "string", "pattern": f"^{_INTERVAL.pattern}$"}),
]


class CheckpointSection(Section):
    """When checkpoints are written and which are kept."""

    every: AnyInterval = Field(
        default=Interval(1, "epochs"),
        description="How often: 1 epoch, 500 steps, 10 minutes; the last step always.",
    )
    keep: Size = Field(default=3, description="How many of the newest are kept.")
    best: str | None = Field(
        default=None,
        description="The metric whose best evaluation is kept as well, such as accuracy.",
    )


class EarlyStoppingSection(Section):
    """End the run when evaluations no longer get better."""

    metric: str = Field(default="loss", description="What has to get better.")
    patience: Size = Field(
        description="Evaluations in a row that may fail to get better.", examples=[3]
    )
    min_delta: NotNegative = Field(default=0.0, description="The least that counts as better.")


def _step_as_text(given: object) -> object:
    return str(given) if isinstance(given, int) and not isinstance(given, bool) else given


WhichCheckpoint = Annotated[
    str,
    BeforeValidator(_step_as_text),
    Field(pattern=r"^(best|newest|[0-9]{1,18})\z"),
    WithJsonSchema({"anyOf": [{"enum": ["best", "newest"]}, {"type": "integer", "minimum": 0}]}),
]


class StartFrom(Section):
    """Parameters and auxiliary states of another run to begin with."""

    run: str = Field(
        min_length=1,
        description="A run's folder, or one of its checkpoints.",
        examples=["runs/digits_lenet"],
    )
    checkpoint: WhichCheckpoint | None = Field(
        default=None,
        description="Which of the run's checkpoints: best, newest or a step; default: the best "
        "where the run keeps one, else the newest, as infer has it.",
    )
    averaged: bool = Field(
        default=True,
        description="Whether the moving averages of weights are taken where the run kept them, as "
        "its evaluations did; else the weights themselves.",
    )
    load: tuple[str, ...] = Field(
        default=("*",), min_length=1, description="Patterns of the names to load; default: all."
    )
    skip: tuple[str, ...] = Field(
        default=(), description="Patterns of names that are left at their initial values."
    )
    strict: bool = Field(
        default=True,
        description="Whether a name to load that is missing there, or of another shape, is an "
        "error; else it keeps its initial value.",
    )


class Train(Section):
    """How long and by what rule the network is trained."""

    stand_ins: ClassVar[Mapping[str, object]] = {"epochs": 1}

    epochs: Size = Field(description="How often the training data is gone through.", examples=[20])
    optimizer: AnyChoice = Field(
        description="How gradients change parameters.", examples=[{"sgd": {"lr": 0.1}}]
    )
    schedule: AnyChoice = Field(
        default=CONSTANT,
        description="How the learning rate changes over the steps; default: constant.",
    )
    accumulate: Size = Field(
        default=1,
        description="Batches whose gradients are summed before one update, as if they were one.",
    )
    average: Annotated[float, Field(gt=0, lt=1)] | None = Field(
        default=None,
        description="Momentum of a moving average of all weights, which evaluation then uses.",
    )
    initializer: AnyChoice = Field(
        default=XAVIER,
        description="How parameters get their first values; default: xavier.",
    )
    start_from: StartFrom | None = Field(
        default=None, description="Another run whose parameters are the first values."
    )
    metrics: tuple[AnyChoice, ...] | None = Field(
        default=None,
        description="What is measured in training and evaluation besides the loss, each a name or "
        "{name: {parameter: value}}, such as {f1: {average: macro}} or {top_k: {k: 3}}; default: "
        "accuracy and cross_entropy of classes, mse of numbers.",
    )
    early_stopping: EarlyStoppingSection | None = Field(
        default=None, description="When to end before all epochs; default: never."
    )
    checkpoint: CheckpointSection = Field(
        default=CheckpointSection(), description="When checkpoints are written and which are kept."
    )
