"""Keys that the expansion of a config reads: `extends`, `blocks`, `repeat` and every layer's own.

They are gone before the sections are validated, so these models only describe them, for the JSON
Schema and the reference.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from mxrun.base.description import Written
from mxrun.config.fields import AnyLayer, Reference, Word
from mxrun.config.section import Section

Layers = Annotated[
    tuple[AnyLayer, ...], Written("[{Operator: {parameter: value}}, ...]"), Field(min_length=1)
]


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
        description="Whether the layer may be fused with its neighbours into one operator.",
    )


class RepeatKeys(Section):
    """Layers written several times; in them `${i}` is the number of the repetition, from 0."""

    count: Annotated[int, Field(ge=0)] = Field(
        description="The number of repetitions.", examples=[3]
    )
    layers: Layers = Field(
        description="The layers to repeat; a name in them contains `${i}`, so that names differ.",
        examples=[[{"FullyConnected": {"name": "fc${i}", "num_hidden": 64}}]],
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


class FileKeys(Section):
    """Keys of a file beside those of a run."""

    extends: str | None = Field(
        default=None,
        description="Another config over which this one is merged: a file, relative to this one's "
        "folder, or the name of a bundled config. Mappings merge key by key; other values, lists "
        "too, are replaced; default: none.",
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
