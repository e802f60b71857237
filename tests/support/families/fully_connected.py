"""FullyConnected: cases and formula."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from operator_row import Reference, Row, rows

Array = npt.NDArray[Any]


def fully_connected(p: Any, inputs: list[Array]) -> list[Array]:
    """Compute inner products, one row and one weight row at a time."""
    data, weight, *bias = inputs
    lead = data.shape[:1] if p.flatten else data.shape[:-1]
    result = np.empty((*lead, p.num_hidden), data.dtype)
    for index in np.ndindex(*lead):
        for hidden in range(p.num_hidden):
            offset = bias[0][hidden] if bias else 0
            result[(*index, hidden)] = np.dot(data[index].ravel(), weight[hidden]) + offset
    return [result]


ROWS: list[Row] = [
    *rows(
        "FullyConnected",
        ({"num_hidden": 5}, (3, 7)),
        ({"num_hidden": 4, "no_bias": True}, (6, 3)),
        ({"num_hidden": 6}, (2, 3, 2, 4)),
        ({"num_hidden": 3, "flatten": False}, (2, 4, 5)),
        ({"num_hidden": 1, "flatten": False, "no_bias": True}, (2, 2, 3, 4)),
        ({"num_hidden": 16}, (32, 64)),
    ),
]

REFERENCES: dict[str, Reference] = {
    "FullyConnected": fully_connected,
}
