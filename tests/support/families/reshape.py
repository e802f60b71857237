"""Reshape, expand_dims and squeeze: cases and formulas."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from operator_row import Reference, Row, rows

Array = npt.NDArray[Any]

# (parameters of Reshape, data's shape, output's shape): MXNet's documentation and its answers.
RESHAPED: list[tuple[dict[str, object], tuple[int, ...], tuple[int, ...]]] = [
    ({"shape": (4, 0, 2)}, (2, 3, 4), (4, 3, 2)),
    ({"shape": (2, 0, 0)}, (2, 3, 4), (2, 3, 4)),
    ({"shape": (6, 1, -1)}, (2, 3, 4), (6, 1, 4)),
    ({"shape": (3, -1, 8)}, (2, 3, 4), (3, 1, 8)),
    ({"shape": (-1,)}, (2, 3, 4), (24,)),
    ({"shape": (-2, 1, 1)}, (2, 3, 4), (2, 3, 4, 1, 1)),
    ({"shape": (2, -2)}, (2, 3, 4), (2, 3, 4)),
    ({"shape": (-3, -3)}, (2, 3, 4, 5), (6, 20)),
    ({"shape": (0, -3)}, (2, 3, 4), (2, 12)),
    ({"shape": (-3, -2)}, (2, 3, 4), (6, 4)),
    ({"shape": (-4, 1, 2, -2)}, (2, 3, 4), (1, 2, 3, 4)),
    ({"shape": (2, -4, -1, 3, -2)}, (2, 3, 4), (2, 1, 3, 4)),
    ({"shape": (0, -1)}, (5, 2, 3), (5, 6)),
    ({"shape": (-1, 0), "reverse": True}, (10, 5, 4), (50, 4)),
    ({"shape": (-1, 0)}, (10, 5, 4), (40, 5)),
    ({"shape": (-3, 0), "reverse": True}, (2, 3, 4), (6, 4)),
    ({"shape": (-2, 2, 2, -4), "reverse": True}, (3, 2, 4), (3, 2, 2, 2)),
    ({"target_shape": (0, 6)}, (2, 3, 4), (4, 6)),
    ({"target_shape": (2, 0)}, (2, 3, 4), (2, 12)),
    ({"target_shape": (0, 0), "keep_highest": True}, (2, 3, 4), (2, 12)),
    ({"target_shape": (9, 0, 4), "keep_highest": True}, (2, 3, 4), (2, 3, 4)),
    ({"shape": (24,), "target_shape": (6, 4)}, (2, 3, 4), (24,)),
]
# MXNet 1.9.1 inserts the size of -1 at its index among the codes, not among the resulting axes.
MISPLACED: list[tuple[dict[str, object], tuple[int, ...], tuple[int, ...]]] = [
    ({"shape": (-4, 1, 2, -1)}, (2, 3, 4), (1, 2, 12)),
    ({"shape": (-2, -1)}, (2, 3, 4), (2, 3, 4, 1)),
]
SHAPES = {str(Row("Reshape", p, shape)): output for p, shape, output in RESHAPED + MISPLACED}


def reshape(p: Any, inputs: list[Array]) -> list[Array]:
    """Elements in row-major order under the shape of the table above."""
    given = {name: getattr(p, name) for name in type(p).model_fields if name in p.model_fields_set}
    shape = SHAPES[str(Row("Reshape", given, inputs[0].shape))]
    output = np.empty(shape, inputs[0].dtype)
    for index, value in zip(np.ndindex(*shape), inputs[0].flat, strict=True):
        output[index] = value
    return [output]


def expand_dims(p: Any, inputs: list[Array]) -> list[Array]:
    """NumPy's."""
    return [np.expand_dims(inputs[0], p.axis)]


def squeeze(p: Any, inputs: list[Array]) -> list[Array]:
    """Return NumPy's result, except that one axis stays."""
    squeezed = np.squeeze(inputs[0], p.axis)
    return [squeezed.reshape(squeezed.shape or (1,))]


ROWS: list[Row] = [
    *rows("Reshape", *((parameters, shape) for parameters, shape, _ in RESHAPED)),
    *rows("Reshape", *((p, shape) for p, shape, _ in MISPLACED), peers=("PyTorch",)),
    *rows(
        "expand_dims",
        *(({"axis": axis}, (2, 3, 4)) for axis in (0, 1, 3, -1, -2)),
        ({"axis": -4}, (2, 3, 4)),
        ({"axis": 0}, (5,)),
    ),
    *rows(
        "squeeze",
        ({}, (2, 1, 4, 1)),
        ({}, (1, 1)),
        ({}, (2, 3)),
        ({"axis": -1}, (2, 1, 4, 1)),
        ({"axis": (1, 3)}, (2, 1, 4, 1)),
        ({"axis": (0, 1)}, (1, 1)),
    ),
]

REFERENCES: dict[str, Reference] = {
    "Reshape": reshape,
    "expand_dims": expand_dims,
    "squeeze": squeeze,
}
