"""Concat: cases and formula."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from operator_row import Reference, Row

Array = npt.NDArray[Any]


def concat(p: Any, inputs: list[Array]) -> list[Array]:
    """Stack slices along the axis, one at a time."""
    slices = [piece for data in inputs for piece in np.moveaxis(data, p.dim, 0)]
    return [np.ascontiguousarray(np.moveaxis(np.stack(slices), 0, p.dim))]


def row(dim: int | None, *shapes: tuple[int, ...]) -> Row:
    """Inputs of the given shapes joined along `dim`."""
    parameters: dict[str, object] = {"num_args": len(shapes)}
    if dim is not None:
        parameters["dim"] = dim
    more = {f"arg{index}": shape for index, shape in enumerate(shapes) if index}
    return Row("Concat", parameters, shapes[0], shapes=more)


ROWS: list[Row] = [
    row(None, (2, 3), (2, 1), (2, 4)),
    row(0, (2, 3), (1, 3)),
    row(1, (2, 3, 2, 2), (2, 5, 2, 2)),
    row(-1, (2, 3, 4), (2, 3, 1), (2, 3, 2), (2, 3, 4)),
    row(2, (1, 2, 3, 2), (1, 2, 1, 2), (1, 2, 3, 2)),
    row(0, (3,), (5,)),
    row(1, (2, 3)),
    row(1, (40, 700), (40, 300)),
]

REFERENCES: dict[str, Reference] = {"Concat": concat}
