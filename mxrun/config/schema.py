"""Sections of a config as frozen models: types, defaults, ranges and descriptions of the keys."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath
from typing import Annotated, Literal

from pydantic import Field, StringConstraints, field_validator

from mxrun.base.description import Written
from mxrun.base.limits import MAX_SEED
from mxrun.base.params import NotNegative
from mxrun.base.validation import custom_error
from mxrun.config.context import DEFAULT_CONTEXT, AnyContexts
from mxrun.config.fields import AnyChoice, AnyLayer, Reference, Shape, Word
from mxrun.config.section import NoEffect, Section


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


# Default number of batch parts for several processes: it never follows their number.
_DISTRIBUTED_PARTS = 4

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


class Execution(Section):
    """How a run computes."""

    name: Annotated[
        str,
        StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$"),
        Written("a name of letters, digits, _ . and -, at most 100 characters"),
        NoEffect(),
    ] = Field(
        max_length=100,
        description="The run's name, and that of its folder in the folder of runs; default: the "
        "file's name.",
        examples=["first_try"],
    )
    seed: Annotated[int, Field(ge=0, lt=MAX_SEED + 1)] = Field(
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
        "are summed in the order of the list. cpu:0, cpu:1, ... have threads of their own.",
        examples=["cpu", ["cpu:0", "cpu:1"]],
    )
    threads: Annotated[Annotated[int, Field(ge=1, le=1024)] | None, NoEffect()] = Field(
        default=None,
        description="How many threads may compute, in each context; default: the number of cores, "
        "or each context's share of them. Results are the same.",
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
    plugins: Annotated[tuple[PluginFile, ...], NoEffect()] = Field(
        default=(),
        description="Python files that register your own operators; a path is relative to the "
        "file in which it is written.",
        examples=[["my_ops.py"]],
    )
    engine: Annotated[Literal["threaded", "naive"], NoEffect()] = Field(
        default="threaded",
        description="The engine that runs the operations of a run in the order that their data "
        "require: on threads, so that records are read and checkpoints written beside the steps, "
        "or one after the other (naive), to find errors. Results are the same.",
        examples=["naive"],
    )
    kvstore: Annotated[Literal["local", "device", "dist_sync", "dist_device_sync"], NoEffect()] = (
        Field(
            default="local",
            description="Where gradients are summed: those of several contexts on a thread of the "
            "host (local) or on the contexts in turn (device), those of several processes that "
            "mpirun has started by MPI (dist_sync and dist_device_sync). Results are the same for "
            "the same number of batch parts.",
            examples=["dist_sync"],
        )
    )
    # As with contexts, their number belongs to the plan: checkpoints record it.
    batch_parts: Annotated[Annotated[int, Field(ge=1, le=1024)] | None, NoEffect()] = Field(
        default=None,
        description="Number of equal parts of each batch whose gradients are summed in a fixed "
        "tree, whichever processes compute them: the same number gives the same bits in one "
        "process and in several. Layers that mix a batch's samples, such as BatchNorm, mix those "
        "of a part; default: 1, but 4 with a kvstore of several processes.",
        examples=[4],
    )
    shard: Annotated[Literal["none", "states"], NoEffect()] = Field(
        default="none",
        description="What each of several processes has a part of: nothing, or the states of the "
        "optimizer (states). Then it updates the parameters of its part alone, and gets the others "
        "from the other processes. Results are the same.",
        examples=["states"],
    )
    rank_timeout: Annotated[Annotated[float, Field(gt=0, le=86400)], NoEffect()] = Field(
        default=120.0,
        description="Seconds after which processes that train together end, if one of them was "
        "stopped or keeps the others waiting.",
        examples=[600],
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

    @property
    def is_distributed(self) -> bool:
        """Whether several processes may train together."""
        return self.kvstore.startswith("dist")

    @property
    def parts_of_batch(self) -> int:
        """Number of parts whose gradients are summed in a fixed tree."""
        return self.batch_parts or (_DISTRIBUTED_PARTS if self.is_distributed else 1)

    @field_validator("plugins")
    @classmethod
    def _told_apart(cls, given: tuple[str, ...]) -> tuple[str, ...]:
        if not are_plugins(given):
            raise custom_error("plugins", "files with different names, each listed once")
        return given


class Networked(Execution):
    """Network, and how a run computes it."""

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
