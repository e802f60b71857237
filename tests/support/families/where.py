"""where: cases and formula."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from families.binary import small_integers
from operator_row import Reference, Row

Array = npt.NDArray[Any]


def where(p: Any, inputs: list[Array]) -> list[Array]:
    """Select one row, or one element, at a time."""
    condition, x, y = inputs
    result = y.copy()
    for place in zip(*np.nonzero(condition), strict=True):
        result[place] = x[place]
    return [result]


# The condition's shape and x's.
SHAPES: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...] = (
    ((5,), (5,)),
    ((2, 3), (2, 3)),
    ((3,), (3, 4)),
    ((2,), (2, 3, 4)),
    ((1, 1), (1, 1)),
    ((2, 3, 2, 4), (2, 3, 2, 4)),
    ((3,), (3, 12001)),
)

ROWS: list[Row] = [
    Row("where", {}, condition, shapes={"x": shape}, values={"condition": small_integers})
    for condition, shape in SHAPES
]

REFERENCES: dict[str, Reference] = {"where": where}
