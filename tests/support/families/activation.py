"""Activation: cases and formula."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
from operator_row import Reference, Row, rows

Array = npt.NDArray[Any]


def activation(p: Any, inputs: list[Array]) -> list[Array]:
    """Compute with Python's math, one element at a time."""
    functions = {
        "relu": lambda x: x if x > 0 else 0.0,
        "sigmoid": lambda x: 0.5 * (1 + math.tanh(x / 2)),
        "softrelu": lambda x: math.log(1 + math.exp(x)),
        "softsign": lambda x: x / (1 + x if x > 0 else 1 - x),
        "tanh": lambda x: 1 - 2 / (math.exp(2 * x) + 1),
    }
    function = functions[p.act_type]
    flat = [function(float(x)) for x in inputs[0].ravel()]
    return [np.array(flat, inputs[0].dtype).reshape(inputs[0].shape)]


ROWS: list[Row] = [
    *rows(
        "Activation",
        *(
            ({"act_type": name}, shape)
            for name, shape in (
                ("relu", (4, 5)),
                ("sigmoid", (2, 3, 4)),
                ("softrelu", (7,)),
                ("softsign", (2, 3, 2, 2)),
                ("tanh", (3, 6)),
            )
        ),
    ),
]

REFERENCES: dict[str, Reference] = {
    "Activation": activation,
}
