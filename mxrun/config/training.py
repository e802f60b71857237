"""The `train` section: epochs, optimiser, metrics, checkpoints and warm start."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal, TypeVar

from pydantic import (
    BeforeValidator,
    Field,
    InstanceOf,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
)
from pydantic_core import PydanticKnownError

from mxrun.base.description import Written
from mxrun.base.errors import SourceLocation
from mxrun.base.interval import Interval, Unit
from mxrun.base.params import NotNegative
from mxrun.base.validation import custom_error
from mxrun.config.choice import Choice
from mxrun.config.fields import AnyChoice, Size
from mxrun.config.section import NoEffect, Section

T = TypeVar("T")
_DEFAULT = SourceLocation("<default>", 1, 1)
XAVIER = Choice("xavier", {}, _DEFAULT)
CONSTANT = Choice("constant", {}, _DEFAULT)

_INTERVAL = re.compile(r"([1-9][0-9]{0,8}) (step|epoch|minute)s?")
_UNITS: dict[str, Unit] = {
    "step": "steps",
    "epoch": "epochs",
    "minute": "minutes",
}


def read_interval(given: object) -> object:
    """Convert a text to an Interval; raises PydanticCustomError if it has another form."""
    if isinstance(given, Interval):
        return given
    match = _INTERVAL.fullmatch(given) if isinstance(given, str) else None
    if match is None:
        written = Interval.written
        if str(given).isdigit():
            written = f"a number and its unit: {given} steps, {given} epochs or {given} minutes"
        raise custom_error("interval", written)
    return Interval(int(match[1]), _UNITS[match[2]])


AnyInterval = Annotated[
    InstanceOf[Interval],
    BeforeValidator(read_interval),
    WithJsonSchema({"type": "string", "pattern": f"^{_INTERVAL.pattern}$"}),
]


class CheckpointSection(Section):
    """Interval between checkpoints, and which of them are retained."""

    every: Annotated[AnyInterval, NoEffect()] = Field(
        default=Interval(1, "epochs"),
        json_schema_extra={"default": str(Interval(1, "epochs"))},
        description="Interval between checkpoints, in steps, epochs or minutes; the last step is "
        "always saved.",
        examples=["500 steps"],
    )
    keep: Annotated[Size, NoEffect()] = Field(
        default=3, description="Number of newest checkpoints that are retained.", examples=[2]
    )
    best: str | None = Field(
        default=None,
        description="The metric whose best checkpoint is retained as well: loss, or the name of a "
        "metric's figure in the output, such as f1_macro; default: that of early_stopping, if it "
        "is given, else none.",
        examples=["accuracy"],
    )


class EarlyStoppingSection(Section):
    """Criterion that ends the run when evaluations no longer improve."""

    metric: str = Field(
        default="loss",
        description="The metric that has to improve: loss, or the name of a metric's figure in the "
        "output, such as f1_macro. Its direction is known. The best checkpoint by it is retained, "
        "unless train.checkpoint.best names another metric.",
        examples=["accuracy"],
    )
    patience: Size = Field(
        description="Successive evaluations without improvement that end the run.", examples=[3]
    )
    min_delta: NotNegative = Field(
        default=0.0,
        description="Least change that counts as an improvement, in the metric's unit.",
        examples=[0.001],
    )


def _step_as_text(given: object) -> object:
    return str(given) if isinstance(given, int) and not isinstance(given, bool) else given


WhichCheckpoint = Annotated[
    str,
    BeforeValidator(_step_as_text),
    Field(pattern=r"^(best|newest|[0-9]{1,18})\z"),
    Written("best, newest or the number of a step"),
    WithJsonSchema({"anyOf": [{"enum": ["best", "newest"]}, {"type": "integer", "minimum": 0}]}),
]


WeightNamesForm = Annotated[
    Literal["torchvision", "timm", "keras"] | dict[str, str],
    Written("torchvision, timm, keras or {pattern of names there: names here}"),
]


class StartFrom(Section):
    """Warm start: parameters and auxiliary states of another run, or of a file of weights, as
    initial values.
    """

    # Before run, which is required without it.
    weights: Annotated[str, Field(min_length=1)] | None = Field(
        default=None,
        description="A file of weights in place of a run: .safetensors or .npz, or .h5 or .keras "
        "of Keras (with h5py); it is looked for in the config's folder first, then in the working "
        "folder; default: none.",
        examples=["resnet50.safetensors"],
    )
    names: WeightNamesForm | None = Field(
        default=None,
        description="How the names in the file of weights become names of this network: those of "
        "torchvision, timm or keras for bundled networks, or patterns there by names here, of "
        "tensors or layers, in which {i} is a number, * any text, and {i + 1} arithmetic; default: "
        "the names are the same.",
        examples=["torchvision", {"encoder.{i}.conv": "unit{i + 1}/conv"}],
    )
    run: Annotated[
        Annotated[str, Field(min_length=1)] | None,
        Written("the name or path of a run, or weights: FILE instead"),
    ] = Field(
        default=None,
        validate_default=True,
        description="A run's folder, one of its checkpoints, or the name of a run in the folder of "
        "runs; a path is looked for in the config's folder first, then in the working folder; "
        "default: weights, a file.",
        examples=["runs/digits_lenet"],
    )
    checkpoint: WhichCheckpoint | None = Field(
        default=None,
        description="Which of the run's checkpoints: best, newest or a step; default: the best if "
        "the run saves one, else the newest, as for infer.",
        examples=["best"],
    )
    averaged: bool = Field(
        default=True,
        description="Whether to load the moving averages of weights if the run has them, as its "
        "evaluations did; else the weights themselves.",
    )
    load: tuple[str, ...] = Field(
        default=("*",),
        min_length=1,
        description="Patterns, with `*`, of the names of the variables to load.",
        examples=[["conv*"]],
    )
    skip: tuple[str, ...] = Field(
        default=(),
        description="Patterns of the names that keep their initial values, though `load` matches.",
        examples=[["head_*"]],
    )
    strict: bool = Field(
        default=True,
        description="Whether a name to load that is missing in the checkpoint, or has another "
        "shape there, is an error; else it keeps its initial value.",
    )

    @field_validator("names")
    @classmethod
    def _is_of_weights(cls, given: T, info: ValidationInfo) -> T:
        if given is not None and info.data.get("weights") is None:
            raise custom_error("source", "no such key without weights, the file with these names")
        return given

    @field_validator("run")
    @classmethod
    def _has_one_source(cls, given: str | None, info: ValidationInfo) -> str | None:
        weights = info.data.get("weights")
        if given is None and weights is None:
            raise PydanticKnownError("missing")
        if given is not None and weights is not None:
            raise custom_error("source", "either a run or weights, a file")
        return given

    @field_validator("checkpoint", "averaged")
    @classmethod
    def _is_of_a_run(cls, given: T, info: ValidationInfo) -> T:
        if given is not None and info.data.get("weights") is not None:
            raise custom_error("source", "no such key beside weights, as a file has no checkpoints")
        return given


ClassWeightsForm = Annotated[
    Literal["balanced"] | dict[str, NotNegative] | tuple[NotNegative, ...],
    Written("balanced, {class: weight} or [weight, ...], with weights >= 0"),
]


class Train(Section):
    """Training: its length, optimiser, metrics and checkpoints."""

    stand_ins: ClassVar[Mapping[str, object]] = {"epochs": 1}

    # Before epochs, which is required without it.
    max_steps: Size | None = Field(
        default=None,
        description="Number of training steps after which the run ends, whatever epochs says; "
        "schedules that spread over a run spread over these steps. In the middle of an epoch the "
        "run ends with an evaluation and a checkpoint, which count neither for the best "
        "checkpoint nor for early stopping; default: all epochs.",
        examples=[500],
    )
    epochs: Size | None = Field(
        default=None,
        validate_default=True,
        description="Number of passes over the training data; default: as many as max_steps takes.",
        examples=[20],
    )
    log_every: Annotated[Size | None, NoEffect()] = Field(
        default=None,
        description="Number of steps between two records of the training metrics, which are means "
        "over the epoch so far: a line in the output and a line in metrics.jsonl; default: "
        "records of epochs alone.",
        examples=[100],
    )
    optimizer: AnyChoice = Field(
        description="The optimizer: how gradients change parameters.",
        examples=[{"sgd": {"lr": 0.1}}],
    )
    schedule: AnyChoice = Field(
        default=CONSTANT,
        description="The learning-rate schedule over the steps.",
        examples=["cosine"],
    )
    accumulate: Size = Field(
        default=1,
        description="Number of batches whose gradients are summed for one update.",
        examples=[4],
    )
    average: Annotated[float, Field(gt=0, lt=1)] | None = Field(
        default=None,
        description="Decay factor, for each update, of a moving average of all weights, which "
        "evaluation and inference then use; default: no average.",
        examples=[0.999],
    )
    initializer: AnyChoice = Field(
        default=XAVIER,
        description="The initial values of parameters; biases, betas and moving means start at 0, "
        "gammas and moving variances at 1.",
        examples=["msra"],
    )
    start_from: StartFrom | None = Field(
        default=None,
        description="Warm start: another run, or a file of weights, whose parameters are the "
        "initial values; default: none.",
        examples=[
            {"run": "runs/digits_lenet", "load": ["conv*"]},
            {"weights": "resnet50.safetensors", "names": "torchvision"},
        ],
    )
    class_weights: ClassWeightsForm | None = Field(
        default=None,
        description="Factors of the loss and gradient of each class's records in training, by "
        "class name, as a list in the order of the classes, or balanced: n / (k * n_class) for n "
        "records of k classes. Classes that a mapping leaves out have 1. The loss of training is "
        "then a weighted mean; evaluation and metrics are not weighted; default: none.",
        examples=["balanced", {"cat": 2.0}],
    )
    metrics: tuple[AnyChoice, ...] | None = Field(
        default=None,
        description="The metrics of training and evaluation besides the loss, each a name or "
        "{name: {parameter: value}}, such as {f1: {average: macro}}; default: accuracy and "
        "cross_entropy for classes, mse for numbers.",
        examples=[["accuracy", {"top_k": {"k": 3}}]],
    )
    early_stopping: EarlyStoppingSection | None = Field(
        default=None,
        description="Criterion to end the run early; default: none.",
        examples=[{"metric": "accuracy", "patience": 5}],
    )
    checkpoint: CheckpointSection = Field(
        default=CheckpointSection(),
        description="Checkpoints: their interval, and which are retained.",
        examples=[{"every": "1 epoch", "keep": 2, "best": "accuracy"}],
    )

    @field_validator("epochs")
    @classmethod
    def _has_an_end(cls, given: int | None, info: ValidationInfo) -> int | None:
        if given is None and info.data.get("max_steps") is None:
            raise PydanticKnownError("missing")
        return given
