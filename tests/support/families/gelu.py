"""gelu and silu: cases and formulas."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from families.unary import drawn
from operator_row import Reference, Row, rows

Array = npt.NDArray[Any]


def exact(x: float) -> float:
    return x * math.erfc(-x / math.sqrt(2)) / 2


def by_tanh(x: float) -> float:
    return 0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def each(function: Callable[[float], float], inputs: list[Array]) -> list[Array]:
    """Compute with Python's math, one element at a time."""
    values = [function(float(x)) for x in inputs[0].flat]
    return [np.array(values, inputs[0].dtype).reshape(inputs[0].shape)]


TANH: dict[str, object] = {"approximate": "tanh"}
VALUES = {"data": drawn(-4, 4, 0, 0.01, -0.01, 6, -0.75)}

ROWS: list[Row] = [
    *rows(
        "gelu",
        ({}, (11,)),
        ({}, (3, 4)),
        ({}, (2, 3, 2, 2)),
        (TANH, (11,)),
        (TANH, (3, 4)),
        (TANH, (2, 3, 2, 2)),
        (TANH, (3, 501)),
        values=VALUES,
        peers=("PyTorch",),
        no_peer="MXNet 1.9.1 has it only as LeakyReLU's act_type.",
    ),
    *rows(
        "silu",
        *(({}, shape) for shape in ((11,), (3, 4), (1, 1), (2, 3, 2, 2), (3, 12001))),
        values=VALUES,
        peers=("PyTorch",),
        no_peer="MXNet 1.9.1 has no silu.",
    ),
]

REFERENCES: dict[str, Reference] = {
    "gelu": lambda p, inputs: each(by_tanh if p.approximate == "tanh" else exact, inputs),
    "silu": lambda p, inputs: each(lambda x: x / (1 + math.exp(-x)), inputs),
}
