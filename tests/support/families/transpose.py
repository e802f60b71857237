"""transpose and SwapAxis: cases and formulas."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from operator_row import Reference, Row, rows

Array = npt.NDArray[Any]


def permuted(data: Array, axes: list[int]) -> Array:
    """Copy one element at a time."""
    output = np.empty([data.shape[axis] for axis in axes], data.dtype)
    for index in np.ndindex(*output.shape):
        place = [0] * data.ndim
        for axis, position in zip(axes, index, strict=True):
            place[axis] = position
        output[index] = data[tuple(place)]
    return output


def transpose(p: Any, inputs: list[Array]) -> list[Array]:
    """The order given, else reversed."""
    return [permuted(inputs[0], list(p.axes) or list(range(inputs[0].ndim))[::-1])]


def swap_axis(p: Any, inputs: list[Array]) -> list[Array]:
    """Exchange two axes."""
    axes = list(range(inputs[0].ndim))
    axes[p.dim1], axes[p.dim2] = axes[p.dim2], axes[p.dim1]
    return [permuted(inputs[0], axes)]


ROWS: list[Row] = [
    *rows(
        "transpose",
        ({}, (3, 5)),
        ({}, (2, 3, 4)),
        ({}, (7,)),
        ({"axes": (0, 2, 3, 1)}, (2, 3, 4, 5)),
        ({"axes": (0, 3, 1, 2)}, (2, 3, 4, 5)),
        ({"axes": (1, 0, 2)}, (3, 1, 4)),
        ({"axes": (0, 1)}, (4, 6)),
        ({"axes": (4, 1, 0, 3, 2)}, (2, 3, 1, 2, 3)),
        ({"axes": (1, 0)}, (70, 600)),
    ),
    *rows(
        "SwapAxis",
        ({"dim1": 0, "dim2": 2}, (2, 3, 4)),
        ({"dim1": 1, "dim2": 2}, (2, 3, 4, 5)),
        ({"dim1": -1, "dim2": 0}, (2, 3, 4)),
        ({}, (2, 3)),
        ({"dim2": 1}, (1, 5)),
    ),
]

REFERENCES: dict[str, Reference] = {
    "transpose": transpose,
    "SwapAxis": swap_axis,
}
