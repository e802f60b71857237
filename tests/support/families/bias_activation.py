"""_bias_activation: cases and formula."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
from families.gelu import by_tanh, exact
from operator_row import Reference, rows

Array = npt.NDArray[Any]
FUNCTIONS = {"gelu": exact, "gelu_tanh": by_tanh, "silu": lambda x: x / (1 + math.exp(-x))}


def bias_activation(p: Any, inputs: list[Array]) -> list[Array]:
    """Compute one number at a time."""
    data = inputs[0]
    output = np.empty_like(data)
    for index in np.ndindex(*data.shape):
        output[index] = FUNCTIONS[p.act_type](float(data[index]))
    return [output]


ROWS = rows(
    "_bias_activation",
    ({}, (6, 5)),
    ({}, (7,)),
    ({"act_type": "gelu_tanh"}, (2, 3, 16)),
    ({"act_type": "silu"}, (1, 1)),
    ({"act_type": "silu"}, (70, 97)),
    ({}, (5, 20, 66)),
    peers=(),
    no_peer="It is made by fusion; PyTorch has no operator with these inputs.",
)

REFERENCES: dict[str, Reference] = {"_bias_activation": bias_activation}
