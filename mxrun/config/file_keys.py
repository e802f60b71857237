"""Keys that the expansion of a config reads: `extends`, `blocks`, `repeat`, `recurrent` and every
layer's own.

They are gone before the sections are validated. But for those of `recurrent`, these models only
describe them, for the JSON Schema and the reference.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from mxrun.base.description import Written
from mxrun.config.fields import AnyLayer, Reference, Shape, Word
from mxrun.config.section import Section

Layers = Annotated[
    tuple[AnyLayer, ...], Written("[{Operator: {parameter: value}}, ...]"), Field(min_length=1)
]
Inserted = Annotated[dict[str, Layers], Written("{layer: [{Operator: {parameter: value}}, ...]}")]


class LayerKeys(Section):
    """Keys of every layer, beside the parameters and tensor arguments of its operator."""

    name: Word | None = Field(
        default=None,
        description="The layer's name, by which other layers and `variables` refer to it; default: "
        "the operator's name in lower case and a number, such as convolution0.",
        examples=["conv1"],
    )
    inputs: tuple[Reference, ...] | None = Field(
        default=None,
        description="The layers or inputs whose outputs are the operator's tensors, by position; "
        "`split[1]` is the second output of the layer `split`; default: the layer above, or the "
        "network's first input.",
        examples=[["conv1", "conv2"]],
    )
    implementation: Literal["preferred", "auto", "numpy", "onednn"] | None = Field(
        default=None,
        description="The kernels to use; default: those of the config's `implementation`.",
        examples=["onednn"],
    )
    precision: Literal["float32", "bfloat16"] | None = Field(
        default=None,
        description="The dtype of the layer's outputs; default: that of the config's `precision`.",
        examples=["float32"],
    )
    fused: bool = Field(
        default=True,
        description="Whether the layer may be fused with its neighbours into one operator; with "
        "false, RNN runs as a recurrence of simpler operators, with the same results.",
    )


class RepeatKeys(Section):
    """Layers written several times; in them `${i}` is the number of the repetition, from 0."""

    count: Annotated[int, Field(ge=0)] = Field(
        description="The number of repetitions.", examples=[3]
    )
    name: Word | None = Field(
        default=None,
        description="The name by which a config that extends this one changes the count; "
        "default: repeat0, repeat1, ... in their order.",
        examples=["trunk"],
    )
    layers: Layers = Field(
        description="The layers to repeat; a name in them contains `${i}`, so that names differ.",
        examples=[[{"FullyConnected": {"name": "fc${i}", "num_hidden": 64}}]],
    )


class MemoryKeys(Section):
    """Memory of a recurrence: a layer's output at an earlier step."""

    layer: Reference = Field(
        description="The layer of the recurrence whose output is remembered.", examples=["next"]
    )
    shape: Shape | None = Field(
        default=None,
        description="The shape of the memory for one record; default: that of the layer.",
        examples=[[128]],
    )
    initial: Reference | None = Field(
        default=None,
        description="The layer or input outside that gives the memory before the first step; "
        "with an offset above 1, as many values on the axis after the batch, the oldest first; "
        "default: zeros.",
        examples=["encoder"],
    )
    carry: bool = Field(
        default=False,
        description="Whether the memory begins with its value at the end of the batch before, in "
        "the same row, and not with zeros; they are zeros where an epoch or an evaluation begins.",
    )
    offset: Annotated[int, Field(ge=1)] = Field(
        default=1, description="The number of steps between the layer's output and its reading."
    )


_STEP: dict[str, Any] = {
    "sequences": {"x": "data"},
    "memories": {"h": {"layer": "next"}},
    "layers": [
        {"Concat": {"name": "both", "inputs": ["x", "h"]}},
        {"FullyConnected": {"name": "fc", "num_hidden": 128}},
        {"Activation": {"name": "next", "act_type": "tanh"}},
    ],
}

_WITHOUT_SEQUENCES: dict[str, Any] = {
    "steps": 16,
    "memories": {"h": {"layer": "next", "initial": "data"}},
    "layers": [
        {"FullyConnected": {"name": "fc", "num_hidden": 128}},
        {"Activation": {"name": "next", "act_type": "tanh"}},
    ],
}


class RecurrentKeys(Section):
    """Layers that are applied to every step of a sequence, one step after the other.

    They read the values of the sequences at the present step, memories of earlier steps, layers and
    inputs outside, which are the same at every step, and each other. Their weights are shared by
    all steps, and called `rnn/fc_weight` for the layer `fc` of a recurrence `rnn`. Sequences and
    outputs have the batch on the first axis and the steps on the second.
    """

    model_config = ConfigDict(
        json_schema_extra={"examples": [_STEP, {**_STEP, "final": ["h"]}, _WITHOUT_SEQUENCES]}
    )

    sequences: dict[Word, Reference] = Field(
        default={},
        description="The sequences that are read step by step: names for use in the recurrence, "
        "and the layers or inputs outside; the first layer reads the first of them.",
        examples=[{"x": "data"}],
    )
    steps: Annotated[int, Field(ge=1)] | None = Field(
        default=None,
        description="The number of steps of a recurrence that reads no sequence, whose first layer "
        "reads the first memory; default: that of the sequences.",
        examples=[16],
    )
    memories: dict[Word, MemoryKeys] = Field(
        default={},
        description="The memories, by the names under which layers of the recurrence read them.",
        examples=[{"h": {"layer": "next"}}],
    )
    layers: Layers = Field(
        description="The layers of one step.",
        examples=[_STEP["layers"]],
    )
    outputs: Annotated[tuple[Reference, ...], Field(min_length=1)] | None = Field(
        default=None,
        description="The layers of the recurrence whose values at all steps are its outputs "
        "`rnn[0]`, `rnn[1]`, ...; default: its last layer.",
        examples=[["next"]],
    )
    final: tuple[Word, ...] = Field(
        default=(),
        description="The memories whose values after the last step are outputs, such as `rnn[h]`; "
        "with an offset above 1, as many values as `initial` has, the oldest first.",
        examples=[["h"]],
    )
    reverse: bool = Field(
        default=False, description="Whether the steps run from the last to the first."
    )
    bidirectional: bool = Field(
        default=False,
        description="Whether a second copy of the layers, with weights of its own, runs from the "
        "last step to the first; outputs of both are joined on the last axis. The copies are "
        "called `rnn/forward` and `rnn/backward`.",
    )
    lengths: Reference | None = Field(
        default=None,
        description="The layer or input with the number of steps of each record. Steps beyond "
        "change no result: outputs are 0 there, and final memories are those of a record's last "
        "step; default: all records have all steps.",
        examples=["lengths"],
    )
    unroll: bool = Field(
        default=False,
        description="Whether every step has operators of its own; the results are the same, bit "
        "for bit.",
    )


class BlockKeys(Section):
    """Parameterised group of layers, used like an operator.

    The layer `conv1` of a block that is used with the name `unit1` is called `unit1/conv1`.
    """

    parameters: Annotated[dict[str, Any] | None, Written("a mapping of names to defaults")] = Field(
        default=None,
        description="The block's own keys and their default values; null: a value must be given "
        "where the block is used; default: no keys.",
        examples=[{"filters": None, "stride": 1}],
    )
    layers: Layers = Field(
        description="The block's layers. `${filters}` is the value of the parameter `filters`, and "
        "`${input}` the tensor that the block is applied to: the output of the layer above, or the "
        "tensor that `inputs: [name]` gives where the block is used.",
        examples=[
            [
                {"Convolution": {"name": "conv", "num_filter": "${filters}", "kernel": [1, 1]}},
                {"elemwise_add": {"name": "sum", "lhs": "conv", "rhs": "${input}"}},
            ]
        ],
    )


class LayerEditKeys(Section):
    """Edits of the layers of the config that a file extends, by their names there.

    They stand in the place of the list of layers, of a network or of a block. Names are those that
    `mxrun check` shows; that of a block means the whole block. All edits of a file refer to the
    layers of the config that it extends, so their order does not matter, and all other layers keep
    their names.
    """

    change: Annotated[
        dict[str, dict[str, Any] | None], Written("{layer: {parameter: value}, ...}")
    ] = Field(
        default={},
        description="New values of parameters of layers, or of uses of blocks; all others stay.",
        examples=[{"fc2": {"num_hidden": 3}}],
    )
    replace: Annotated[
        dict[str, AnyLayer | Layers], Written("{layer: {Operator: {parameter: value}}, ...}")
    ] = Field(
        default={},
        description="The layer in the place of another, whose name it has if it gives none of its "
        "own; or several, in whose names that of the other stands in front, as in a block.",
        examples=[{"relu1": {"Activation": {"act_type": "tanh"}}}],
    )
    insert_before: Inserted = Field(
        default={},
        description="Layers before a layer. Their automatic names begin with its name.",
        examples=[{"pool2": [{"Dropout": {"p": 0.3}}]}],
    )
    insert_after: Inserted = Field(
        default={},
        description="Layers after a layer. Their automatic names begin with its name.",
        examples=[{"relu1": [{"Dropout": {"p": 0.3}}]}],
    )
    remove: Annotated[tuple[str, ...], Written("[layer, ...]")] = Field(
        default=(),
        description="Layers, or uses of blocks, that are left out. The next layer then reads the "
        "one before; a layer that names a removed one is an error.",
        examples=[["pool2"]],
    )


class FileKeys(Section):
    """Keys of a file beside those of a run."""

    extends: str | None = Field(
        default=None,
        description="Another config over which this one is merged: a file, relative to this one's "
        "folder, or the name of a bundled config. Mappings merge key by key; other values, lists "
        "too, are replaced, but a mapping in the place of `layers` edits them by name. The run's "
        "name is not inherited; default: none.",
        examples=["digits_lenet"],
    )
    blocks: dict[Word, BlockKeys] = Field(
        default={},
        description="Parameterised groups of layers by name, used like operators.",
        examples=[
            {
                "dense": {
                    "parameters": {"units": None},
                    "layers": [
                        {"FullyConnected": {"name": "fc", "num_hidden": "${units}"}},
                        {"Activation": {"name": "relu", "act_type": "relu"}},
                    ],
                }
            }
        ],
    )
