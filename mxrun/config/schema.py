"""Sections of a config as frozen models: types, defaults, ranges and descriptions of the keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, StringConstraints, field_validator, model_validator

from mxrun.base.description import Written
from mxrun.base.keywords import REST
from mxrun.base.params import NotNegative
from mxrun.base.validation import custom_error
from mxrun.config.context import DEFAULT_CONTEXT, AnyContexts
from mxrun.config.fields import AnyChoice, AnyLayer, AnyOption, Reference, Shape, Size, Word
from mxrun.config.memory import MemorySection
from mxrun.config.section import Section
from mxrun.config.training import Train


class VariableSection(Section):
    """Settings of the variables whose names the key matches, as a name or a pattern with `*`."""

    shape: Shape | None = Field(
        default=None,
        description="The shape; default: inferred from the layers that read the variable.",
        examples=[[64, 10]],
    )
    init: AnyChoice | None = Field(
        default=None,
        description="The variable's own initializer; default: that of `train.initializer`, but 0 "
        "for biases, betas and moving means, 1 for gammas and moving variances.",
        examples=[{"normal": {"sigma": 0.01}}],
    )
    lr_mult: NotNegative = Field(
        default=1.0,
        description="Factor of the learning rate; 0 leaves the variable unchanged.",
        examples=[0.1],
    )
    wd_mult: NotNegative | None = Field(
        default=None,
        description="Factor of the weight decay; default: 1, but 0 for biases, gammas and betas.",
        examples=[0.0],
    )
    frozen: bool | None = Field(
        default=None,
        description="Whether training leaves the variable unchanged; default: false, but moving "
        "statistics (of BatchNorm) are frozen with their layer's parameters.",
        examples=[True],
    )


class NetworkSection(Section):
    """Network: its inputs and its layers in order."""

    inputs: dict[Word, Shape] = Field(
        min_length=1,
        description="The shape of one sample of each input; the batch axis is added in front. "
        "`[]` is a single number, such as a class number.",
        examples=[{"data": [1, 28, 28], "label": []}],
    )
    layers: tuple[AnyLayer, ...] = Field(
        min_length=1,
        description="The layers in order, each {Operator: parameters}; a layer reads the output of "
        "the one above unless its `inputs` or tensor arguments name others. In a config that "
        "extends another, a mapping of edits changes, replaces, inserts and removes its layers.",
        examples=[
            [{"FullyConnected": {"num_hidden": 10}}, {"SoftmaxOutput": {"label": "label"}}],
        ],
    )
    variables: dict[str, VariableSection] = Field(
        default={},
        description="Settings of variables (weights, biases, statistics), by name or by a pattern "
        "with `*`. The weight of the layer `conv1` is called `conv1_weight`. If several match, "
        "a name takes precedence over patterns, and a later pattern over an earlier one.",
        examples=[{"conv*": {"frozen": True}}],
    )
    outputs: tuple[Reference, ...] = Field(
        default=(),
        description="The layers whose outputs are the network's; default: the last layer.",
        examples=[["softmax"]],
    )


class SplitSection(Section):
    """Part of a data set, and optionally a range or share of its records."""

    written: ClassVar[str] = "a split's name or a mapping"

    of: Annotated[str, StringConstraints(min_length=1)] | None = Field(
        default=None,
        description="The split's name, such as train or test; of an image_folder, any folder in "
        "it; default: the section's usual split.",
        examples=["train"],
    )
    range: tuple[int, int] | None = Field(
        default=None,
        description="The first record and the one after the last, counted from 0; default: all.",
        examples=[[0, 9000]],
    )
    share: Annotated[float, Field(gt=0, lt=1)] | None = Field(
        default=None,
        description="The fraction of the records to draw at random; default: all.",
        examples=[0.8],
    )
    seed: Annotated[int, Field(ge=0, lt=1 << 63)] | None = Field(
        default=None, description="Seed of the selection of a share; default: 0.", examples=[1]
    )
    stratify: bool | None = Field(
        default=None,
        description="Whether the same share is drawn from each class; default: false.",
        examples=[True],
    )
    rest: bool = Field(
        default=False,
        description="In data.eval, whether the part is all records outside of the range or share "
        "of data.train; usually written `split: rest`.",
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
            raise custom_error("range", "[first, end] with 0 <= first < end; `end` is exclusive")
        return given


def _or_name(schema: dict[str, Any]) -> None:
    """Allow a name in a schema in place of a mapping with that name."""
    schema["anyOf"].insert(0, {"type": "string", "minLength": 1})


class DatasetSection(Section):
    """Data set and how it is read; other keys are options of the data set itself."""

    OWN_KEYS: ClassVar[frozenset[str]] = frozenset({"dataset", "split", "shuffle", "transforms"})

    dataset: str = Field(
        min_length=1, description="The data set or file format.", examples=["digits"]
    )
    split: SplitSection | None = Field(
        default=None,
        description="The part to read: a name, a range, a share, or rest, the records outside of "
        "data.train. Of an image_folder, a name is that of a folder in its path, such as val; "
        "default: the rest if data.train takes a share of the same records; else the split with "
        "the section's usual name (train; val or test), or all.",
        examples=[
            "train",
            {"share": 0.8, "seed": 1, "stratify": True},
            {"of": "train", "range": [0, 1000]},
            {"rest": True},
        ],
        json_schema_extra=_or_name,
    )
    shuffle: bool = Field(
        default=False, description="Whether the records have a new random order in every epoch."
    )
    transforms: tuple[AnyChoice, ...] | None = Field(
        default=None,
        description="Transforms of each record, in order; default: none, and in data.eval those of "
        "data.train without the random ones.",
        examples=[[{"random_resized_crop": {"size": 64}}, "flip"]],
    )
    options: Mapping[str, AnyOption] = Field(default={}, description="The data set's own options.")


class Data(Section):
    """Data for training and evaluation."""

    stand_ins: ClassVar[Mapping[str, object]] = {"batch_size": 1}

    batch_size: Size = Field(description="Samples per step.", examples=[64])
    train: DatasetSection = Field(
        description="The training data; if neither it nor eval has the path that its data set "
        "requires, training uses synthetic data.",
        examples=[{"dataset": "digits", "split": "train"}],
    )
    eval: DatasetSection | None = Field(
        default=None,
        description="The evaluation data, which is measured after every epoch. If its data set is "
        "that of data.train, it inherits every option that it does not set itself, except split "
        "and shuffle; default: none.",
        examples=[{"dataset": "digits", "split": "test"}],
    )
    last_batch: Literal["pad", "discard", "roll_over"] | None = Field(
        default=None,
        description="Treatment of an incomplete last batch: fill it with rows of weight 0, drop "
        "it, or move its records to the next epoch; default: pad.",
        examples=["discard"],
    )
    workers: Annotated[int, Field(ge=1, le=256)] = Field(
        default=1,
        description="Number of threads that read and transform records; results do not depend on "
        "it.",
        examples=[4],
    )
    prefetch: Annotated[int, Field(ge=1, le=16)] = Field(
        default=2,
        description="Number of batches made ahead if records are read from files or transformed.",
        examples=[4],
    )


PluginFile = Annotated[
    str,
    StringConstraints(pattern=r"\.py$", max_length=4096),
    Written("the path of a Python file, ending in .py"),
]


def are_plugins(files: Sequence[object]) -> bool:
    """Return whether these are Python files with distinct names."""
    paths = [PurePath(file) for file in files if isinstance(file, str)]
    names = {path.name for path in paths if path.suffix == ".py"}
    return len(names) == len(files)


class Settings(Section):
    """Config of a run."""

    name: Annotated[
        str,
        StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$"),
        Written("a name of letters, digits, _ . and -, at most 100 characters"),
    ] = Field(
        max_length=100,
        description="The run's name, and that of its folder in the folder of runs; default: the "
        "file's name.",
        examples=["first_try"],
    )
    seed: Annotated[int, Field(ge=0, lt=1 << 63)] = Field(
        default=0,
        description="Seed of all random numbers: initial values, order of records, transforms, "
        "dropout.",
        examples=[1],
    )
    context: AnyContexts = Field(
        default=DEFAULT_CONTEXT,
        description="The device: its kind, such as cpu or reference, and its number among those of "
        "its kind if that is not 0: cpu:1. A list of devices of one kind trains on all of them: "
        "each computes an equal part of every batch with parameters of its own, and the gradients "
        "are summed in the order of the list. cpu:0, cpu:1, ... are teams of threads.",
        examples=["cpu", ["cpu:0", "cpu:1"]],
    )
    threads: Annotated[int, Field(ge=1, le=1024)] | None = Field(
        default=None,
        description="Number of threads that compute, in each context; default: chosen from the "
        "number of cores, or each context's share of them, and the network's work by a fixed cost "
        "model, without measuring.",
        examples=[2],
    )
    precision: Literal["float32", "bfloat16"] = Field(
        default="float32",
        description="The dtype of activations; parameters, statistics and losses are float32.",
        examples=["bfloat16"],
    )
    implementation: Literal["preferred", "auto", "numpy", "onednn"] = Field(
        default="preferred",
        description="The kernels of layers without an implementation of their own: the first that "
        "supports the layer (preferred), the fastest of all by timing (auto), or those of one "
        "library if it has any.",
        examples=["auto"],
    )
    plugins: tuple[PluginFile, ...] = Field(
        default=(),
        description="Python files that register your own operators; a path is relative to the "
        "file in which it is written.",
        examples=[["my_ops.py"]],
    )
    engine: Literal["threaded", "naive"] = Field(
        default="threaded",
        description="The engine that runs the operations of a run in the order that their data "
        "require: on threads, so that records are read and checkpoints written beside the steps, "
        "or one after the other (naive), to find errors. Results are the same.",
        examples=["naive"],
    )
    kvstore: Literal["local", "device"] = Field(
        default="local",
        description="Where the gradients of several contexts are summed: on a thread of the host "
        "(local), or on the contexts in turn (device). Results are the same.",
        examples=["device"],
    )
    backward: Literal["explicit_graph", "reverse"] = Field(
        default="explicit_graph",
        description="Gradients as nodes of the graph, or by traversing forward in reverse order: "
        "the same results, by a simpler way with which the first is checked.",
        examples=["reverse"],
    )
    fuse: bool = Field(
        default=True,
        description="Whether chains of operators are fused if a fused operator exists.",
    )
    network: NetworkSection = Field(
        description="The network: its inputs and its layers.",
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
        description="The data of training and evaluation.",
        examples=[{"batch_size": 64, "train": {"dataset": "digits"}}],
    )
    train: Train = Field(
        description="The training: its length, optimizer, metrics and checkpoints.",
        examples=[{"epochs": 20, "optimizer": {"sgd": {"lr": 0.1}}}],
    )
    memory: MemorySection = Field(
        default=MemorySection(),
        description="The memory that a run may use.",
        examples=[{"budget": "512 MiB"}],
    )

    @field_validator("plugins")
    @classmethod
    def _told_apart(cls, given: tuple[str, ...]) -> tuple[str, ...]:
        if not are_plugins(given):
            raise custom_error("plugins", "files with different names, each listed once")
        return given
