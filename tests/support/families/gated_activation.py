"""gated_activation: cases and formula."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
from operator_row import Reference, rows

Array = npt.NDArray[Any]


def activated(act_type: str, x: float) -> float:
    """Apply an activation to one number."""
    if act_type == "gelu":
        return x * math.erfc(-x / math.sqrt(2)) / 2
    return (x if act_type == "silu" else 1) / (1 + math.exp(-x))


def gated_activation(p: Any, inputs: list[Array]) -> list[Array]:
    """Compute one number at a time."""
    data = inputs[0]
    half = data.shape[-1] // 2
    output = np.empty((*data.shape[:-1], half), data.dtype)
    for index in np.ndindex(*output.shape):
        *before, c = index
        gate, value = (float(data[(*before, place)]) for place in (c, half + c))
        output[index] = activated(p.act_type, gate) * value
    return [output]


ROWS = rows(
    "gated_activation",
    ({}, (6, 8)),
    ({"act_type": "silu"}, (2, 3, 2)),
    ({"act_type": "sigmoid"}, (10,)),
    ({"act_type": "silu"}, (3, 5, 66)),
    ({"act_type": "gelu"}, (40, 20, 32)),
    peers=("PyTorch",),
    no_peer="MXNet 1.9.1 has no gated_activation.",
)

REFERENCES: dict[str, Reference] = {"gated_activation": gated_activation}
