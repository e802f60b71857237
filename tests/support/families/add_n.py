"""add_n: cases and formula."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from operator_row import Reference, Row, rows

Array = npt.NDArray[Any]


def add_n(p: Any, inputs: list[Array]) -> list[Array]:
    """Add from the left, one element at a time."""
    output = np.empty_like(inputs[0])
    for index in np.ndindex(*output.shape):
        total = inputs[0][index]
        for addend in inputs[1:]:
            total += addend[index]
        output[index] = total
    return [output]


ROWS: list[Row] = [
    *rows(
        "add_n",
        ({"num_args": 1}, (5,)),
        ({"num_args": 2}, (2, 3)),
        ({"num_args": 3}, (2, 3, 4)),
        ({"num_args": 4}, (2, 3, 2, 2)),
        ({"num_args": 3}, (1, 1)),
        ({"num_args": 3}, (11, 4001)),
    ),
]

REFERENCES: dict[str, Reference] = {"add_n": add_n}
