"""Elementwise arithmetic: cases and formulas."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from operator_row import Reference, Row, rows

Array = npt.NDArray[Any]


def elementwise_add(p: Any, inputs: list[Array]) -> list[Array]:
    """One pair at a time."""
    pairs = zip(inputs[0].flat, inputs[1].flat, strict=True)
    return [np.array([a + b for a, b in pairs]).reshape(inputs[0].shape)]


ROWS: list[Row] = [
    *rows(
        "elemwise_add",
        *(({}, shape) for shape in ((5,), (2, 3), (2, 3, 4), (1, 1), (2, 3, 2, 4), (3, 4001))),
    ),
]

REFERENCES: dict[str, Reference] = {
    "elemwise_add": elementwise_add,
}
