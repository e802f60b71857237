"""softmax and log_softmax: cases and formulas."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
from operator_row import Reference, Row, rows

Array = npt.NDArray[Any]


def logarithm(p: Any, data: Array) -> Array:
    """Compute one row of classes at a time, with Python's exact sum."""
    moved = np.moveaxis(data / (p.temperature or 1), p.axis, -1)
    result = np.empty_like(moved)
    for index in np.ndindex(*moved.shape[:-1]):
        total = math.fsum(math.exp(value) for value in moved[index])
        result[index] = moved[index] - math.log(total)
    return np.moveaxis(result, -1, p.axis)


def log_softmax(p: Any, inputs: list[Array]) -> list[Array]:
    """The logarithm."""
    return [logarithm(p, inputs[0])]


def softmax(p: Any, inputs: list[Array]) -> list[Array]:
    """Its exponential."""
    return [np.exp(logarithm(p, inputs[0]))]


REFERENCES: dict[str, Reference] = {"softmax": softmax, "log_softmax": log_softmax}

ROWS: list[Row] = [
    *(
        row
        for name in REFERENCES
        for row in rows(
            name,
            ({}, (7,)),
            ({}, (4, 5)),
            ({"axis": 0}, (4, 5)),
            ({"axis": 1, "temperature": 0.5}, (2, 5, 3)),
            ({"axis": -2}, (2, 3, 4, 5)),
            ({"axis": 1}, (2, 3, 4, 2)),
            ({"temperature": 3.0}, (3, 1)),
            ({"axis": -1, "temperature": -2.0}, (2, 3, 4)),
            ({"axis": 0}, (301, 130)),
        )
    ),
    *rows("softmax", ({"axis": 1}, (301, 130))),
    # The gradient subtracts a sum over the row, which MXNet computes sequentially in float32.
    *rows("log_softmax", ({"axis": 1}, (301, 130)), agreement=4e-5),
]
