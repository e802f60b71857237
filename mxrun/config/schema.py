"""The sections of a config as frozen models: types, defaults, ranges and what each key means."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, StringConstraints, field_validator, model_validator
from pydantic_core import PydanticCustomError

from mxrun.base.keywords import REST
from mxrun.base.params import NotNegative
from mxrun.config.fields import AnyChoice, AnyLayer, AnyOption, Reference, Shape, Size, Word
from mxrun.config.memory import MemorySection
from mxrun.config.section import Section
from mxrun.config.training import Train


class Variable(Section):
    """What is said about the variables whose name is the key or matches it as a pattern."""

    shape: Shape | None = Field(default=None, description="The shape, where it cannot be inferred.")
    init: AnyChoice | None = Field(default=None, description="An initializer of its own.")
    lr_mult: NotNegative = Field(default=1.0, description="Factor of the learning rate.")
    wd_mult: NotNegative | None = Field(
        default=None,
        description="Factor of the weight decay; default: 1, of biases 0.",
    )
    frozen: bool | None = Field(
        default=None,
        description="Whether training leaves the variable alone; default: no, but moving "
        "statistics (of BatchNorm) are frozen with their layer's parameters.",
    )


class NetworkSection(Section):
    """The network: its inputs and its layers in order."""

    inputs: dict[Word, Shape] = Field(
        min_length=1,
        description="The shape of one sample of each input; the batch axis is added.",
        examples=[{"data": [1, 28, 28], "label": []}],
    )
    layers: tuple[AnyLayer, ...] = Field(
        min_length=1,
        description="The layers, each {Operator: parameters}.",
        examples=[
            [{"FullyConnected": {"num_hidden": 10}}, {"SoftmaxOutput": {"label": "label"}}],
        ],
    )
    variables: dict[str, Variable] = Field(
        default={},
        description="What is said about variables, by name or pattern.",
    )
    outputs: tuple[Reference, ...] = Field(
        default=(), description="The layers whose outputs the network gives; default: the last."
    )


class SplitSection(Section):
    """A part of a data set, and of that a range of records or a share of them."""

    of: Annotated[str, StringConstraints(min_length=1)] | None = Field(
        default=None,
        description="The part's name, such as train or test; default: as where no split is named.",
        examples=["train"],
    )
    range: tuple[int, int] | None = Field(
        default=None, description="The first record and the one after the last, counted from 0."
    )
    share: Annotated[float, Field(gt=0, lt=1)] | None = Field(
        default=None, description="The share of the records that is drawn, such as 0.8."
    )
    seed: Annotated[int, Field(ge=0, lt=1 << 63)] | None = Field(
        default=None, description="Decides which records a share draws; default: 0."
    )
    stratify: bool | None = Field(
        default=None, description="Whether each class gives that share; default: false."
    )
    rest: bool = Field(
        default=False,
        description="All records that the range or share of data.train leaves: `split: rest`.",
    )

    @model_validator(mode="before")
    @classmethod
    def _bare_name(cls, given: Any) -> Any:
        if given == REST:
            return {"rest": True}
        return {"of": given} if isinstance(given, str) else given

    @field_validator("range")
    @classmethod
    def _ordered(cls, given: tuple[int, int] | None) -> tuple[int, int] | None:
        if given is not None and not 0 <= given[0] < given[1]:
            raise PydanticCustomError(
                "range", "[first, end] with 0 <= first < end; `end` is not part of it"
            )
        return given


def _or_name(schema: dict[str, Any]) -> None:
    """Say in a schema that a name alone stands for a mapping with it."""
    schema["anyOf"].insert(0, {"type": "string", "minLength": 1})


class DatasetSection(Section):
    """A data set and how it is read; other keys are options of the data set itself."""

    OWN_KEYS: ClassVar[frozenset[str]] = frozenset({"dataset", "split", "shuffle", "transforms"})

    dataset: str = Field(
        min_length=1, description="The data set's name, such as digits.", examples=["digits"]
    )
    split: SplitSection | None = Field(
        default=None,
        description="Which part of it: a name, a range, a share, or rest, what data.train leaves; "
        "default: the rest where data.train takes a share of the same records; else the part that "
        "is called like the section (train; val or test), or all of it.",
        json_schema_extra=_or_name,
    )
    shuffle: bool = Field(default=False, description="Whether every epoch has an order of its own.")
    transforms: tuple[AnyChoice, ...] | None = Field(
        default=None,
        description="What is done to each record, in order; default of eval: what train does, "
        "without anything random.",
    )
    options: Mapping[str, AnyOption] = Field(default={}, description="The data set's own options.")


class Data(Section):
    """What is trained on and what is evaluated on."""

    stand_ins: ClassVar[Mapping[str, object]] = {"batch_size": 1}

    batch_size: Size = Field(description="Samples per step.", examples=[64])
    train: DatasetSection = Field(
        description="The data trained on; without the path that its data set wants, and without "
        "one in eval, training makes synthetic data.",
        examples=[{"dataset": "digits", "split": "train"}],
    )
    eval: DatasetSection | None = Field(
        default=None, description="The data evaluated on; default: none."
    )
    last_batch: Literal["pad", "discard", "roll_over"] | None = Field(
        default=None,
        description="What becomes of records that do not fill a batch: it is padded with rows that "
        "count for nothing, left out, or they begin the next epoch; default: pad.",
    )
    workers: Annotated[int, Field(ge=1, le=256)] = Field(
        default=1,
        description="Threads that read and transform records; results do not depend on it.",
    )
    prefetch: Annotated[int, Field(ge=1, le=16)] = Field(
        default=2,
        description="Batches made ahead where records are read from files or transformed.",
    )


PluginFile = Annotated[str, StringConstraints(pattern=r"\.py$", max_length=4096)]


def are_plugins(files: Sequence[object]) -> bool:
    """Whether these are Python files that can be told apart by their names."""
    paths = [PurePath(file) for file in files if isinstance(file, str)]
    names = {path.name for path in paths if path.suffix == ".py"}
    return len(names) == len(files)


class Settings(Section):
    """A whole config file."""

    not_yet: ClassVar[frozenset[str]] = frozenset({"engine: threaded", "context: gpu"})

    name: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")] = Field(
        max_length=100, description="The run's name and folder; default: the file's name."
    )
    seed: Annotated[int, Field(ge=0, lt=1 << 63)] = Field(
        default=0, description="Decides every random number."
    )
    context: Literal["cpu"] = Field(default="cpu", description="The device.")
    threads: Annotated[int, Field(ge=1, le=1024)] | None = Field(
        default=None,
        description="The compute team; default: as many of the cores as a step of the network is "
        "worth by a fixed cost model, which measures nothing.",
    )
    precision: Literal["float32", "bfloat16"] = Field(
        default="float32",
        description="The type of activations; parameters, statistics and losses are float32.",
    )
    implementation: Literal["preferred", "auto", "numpy", "onednn"] = Field(
        default="preferred",
        description="The kernels of layers that do not say: the first that can do the work, the "
        "fastest of all that can, which are timed, or those of one name where there are any.",
    )
    plugins: tuple[PluginFile, ...] = Field(
        default=(),
        description="Python files that register operators of your own; a path is relative to the "
        "file it is written in.",
    )
    engine: Literal["naive"] = Field(default="naive", description="How jobs are run.")
    backward: Literal["explicit_graph", "reverse"] = Field(
        default="explicit_graph",
        description="Gradients as nodes of the graph, or by walking the forward pass backwards.",
    )
    fuse: bool = Field(
        default=True, description="Whether chains of operators become one where there is one."
    )
    network: NetworkSection = Field(
        description="The network.",
        examples=[
            {
                "inputs": {"data": [64], "label": []},
                "layers": [
                    {"FullyConnected": {"num_hidden": 10}},
                    {"SoftmaxOutput": {"label": "label"}},
                ],
            }
        ],
    )
    data: Data = Field(
        description="The data.", examples=[{"batch_size": 64, "train": {"dataset": "digits"}}]
    )
    train: Train = Field(
        description="The training.",
        examples=[{"epochs": 20, "optimizer": {"sgd": {"lr": 0.1}}}],
    )
    memory: MemorySection = Field(
        default=MemorySection(), description="What memory a run may take."
    )

    @field_validator("plugins")
    @classmethod
    def _told_apart(cls, given: tuple[str, ...]) -> tuple[str, ...]:
        if not are_plugins(given):
            raise PydanticCustomError("plugins", "files of different names, each once")
        return given
