"""smooth_l1: cases and formula."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from operator_row import Reference, Row, rows

Array = npt.NDArray[Any]


def smooth_l1(p: Any, inputs: list[Array]) -> list[Array]:
    """Girshick's loss of s^2 x, divided by s^2: the line's offset is that of the parabola's end."""
    sigma = np.float64(p.scalar)
    scaled = inputs[0].astype(np.float64) * sigma**2
    loss = [0.5 * t * t if abs(t) < 1 else abs(t) - 0.5 for t in scaled.flat]
    return [(np.array(loss).reshape(scaled.shape) / sigma**2).astype(inputs[0].dtype)]


ROWS: list[Row] = [
    *rows(
        "smooth_l1",
        ({}, (7,)),
        ({"scalar": 3.0}, (4, 5)),
        ({"scalar": 0.5}, (2, 3, 4)),
        ({"scalar": 2.0}, (2, 3, 2, 2)),
        ({"scalar": 1.25}, (1, 1)),
        ({"scalar": 1.5}, (3, 12001)),
    ),
]

REFERENCES: dict[str, Reference] = {
    "smooth_l1": smooth_l1,
}
