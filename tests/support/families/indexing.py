"""take, pick and one_hot: cases and formulas."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from operator_row import Reference, Row, Values

Array = npt.NDArray[Any]
Shape = tuple[int, ...]


def between(low: int, high: int) -> Values:
    """Return int32 indices from `low` to below `high`."""

    def values(random: np.random.Generator, shape: Shape, dtype: str) -> Array:
        return random.integers(low, high, shape).astype("int32")

    return values


def place(index: int, size: int, mode: str) -> int:
    return index % size if mode == "wrap" else min(max(index, 0), size - 1)


def take(p: Any, inputs: list[Array]) -> list[Array]:
    """Stack one slice for each index."""
    a, indices = inputs
    axis = p.axis % a.ndim
    slices = [a.take(place(int(i), a.shape[axis], p.mode), axis) for i in indices.ravel()]
    stacked = np.stack(slices, axis)
    return [stacked.reshape(*a.shape[:axis], *indices.shape, *a.shape[axis + 1 :])]


def pick(p: Any, inputs: list[Array]) -> list[Array]:
    """Read one element at a time."""
    data, index = inputs
    axis = p.axis % data.ndim
    others = [size for at, size in enumerate(data.shape) if at != axis]
    index, output = index.reshape(others), np.empty(others, data.dtype)
    for at in np.ndindex(*others):
        found = place(int(index[at]), data.shape[axis], p.mode)
        output[at] = data[(*at[:axis], found, *at[axis:])]
    return [np.expand_dims(output, axis) if p.keepdims else output.reshape(output.shape or (1,))]


def one_hot(p: Any, inputs: list[Array]) -> list[Array]:
    """Write one element at a time."""
    output = np.full((*inputs[0].shape, p.depth), p.off_value, p.dtype)
    for at, index in np.ndenumerate(inputs[0]):
        if 0 <= index < p.depth:
            output[(*at, int(index))] = p.on_value
    return [output]


def taken(
    parameters: dict[str, object], shape: Shape, indices: Shape, low: int = -2, past: int = 2
) -> Row:
    """Return a row of take; indices are up to `low` and `past` outside of the axis."""
    axis = parameters.get("axis", 0)
    assert isinstance(axis, int)
    values = {"indices": between(low, shape[axis] + past)}
    return Row("take", parameters, shape, {"indices": indices}, values)


def picked(parameters: dict[str, object], shape: Shape, index: Shape) -> Row:
    axis = parameters.get("axis", -1)
    assert isinstance(axis, int)
    return Row("pick", parameters, shape, {"index": index}, {"index": between(-2, shape[axis] + 2)})


WRAP: dict[str, object] = {"mode": "wrap"}

ROWS: list[Row] = [
    taken({}, (5,), (4,)),
    taken({}, (5, 3), (2, 3)),
    taken({"axis": 1}, (2, 3, 4), (5,)),
    taken({"axis": -1, **WRAP}, (2, 3, 4), (2, 2)),
    taken(WRAP, (6, 2), (3, 1, 2)),
    taken({"mode": "raise", "axis": 1}, (2, 3, 4), (7,), 0, 0),
    taken({"axis": 1}, (3, 40, 35), (90,)),
    picked({}, (6,), (1,)),
    picked({}, (4, 5), (4,)),
    picked({"axis": 1}, (2, 3, 4), (2, 4)),
    picked({"axis": 1, "keepdims": True}, (2, 3, 4), (2, 1, 4)),
    picked({"axis": 0, **WRAP}, (5, 3), (3,)),
    picked({"axis": -2}, (2, 3, 4, 5), (2, 3, 1, 5)),
    picked({}, (3000, 7), (3000,)),
    *(
        Row("one_hot", parameters, shape, values={"indices": between(-1, 5)})
        for parameters, shape in (
            ({"depth": 4}, (5,)),
            ({"depth": 3}, (2, 3)),
            ({"depth": 4, "on_value": 2.5, "off_value": -1.0}, (2, 1, 3)),
            ({"depth": 1}, (4,)),
            ({"depth": 35}, (1000,)),
        )
    ),
]

REFERENCES: dict[str, Reference] = {"take": take, "pick": pick, "one_hot": one_hot}
