"""Flatten: cases and formula."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from operator_row import Reference, Row, rows

Array = npt.NDArray[Any]


def flatten(p: Any, inputs: list[Array]) -> list[Array]:
    """Elements in row-major order."""
    rows = [list(row.flat) for row in inputs[0]]
    return [np.array(rows, inputs[0].dtype)]


ROWS: list[Row] = [
    *rows(
        "Flatten",
        *(({}, shape) for shape in ((2, 3, 4), (3, 5), (2, 3, 2, 2), (1, 7, 1), (2, 2, 1, 3, 2))),
    ),
]

REFERENCES: dict[str, Reference] = {
    "Flatten": flatten,
}
