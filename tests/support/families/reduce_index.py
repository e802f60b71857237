"""Arg-reductions and running sums: cases and formulas."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from operator_row import Reference, Row

Array = npt.NDArray[Any]


def index_of(function: Callable[[list[float]], float], axis: int | None = None) -> Reference:
    """Return the index of an extreme in a list of Python numbers."""

    def reference(p: Any, inputs: list[Array]) -> list[Array]:
        (data,) = inputs
        chosen = getattr(p, "axis", axis)
        keepdims = getattr(p, "keepdims", False)
        if chosen is None:
            values = [float(value) for value in data.flat]
            shape = [1] * data.ndim if keepdims else [1]
            return [np.full(shape, values.index(function(values)), data.dtype)]
        moved = np.moveaxis(data, chosen, -1)
        found = np.empty(moved.shape[:-1], data.dtype)
        for index in itertools.product(*map(range, found.shape)):
            values = [float(value) for value in moved[index]]
            found[index] = values.index(function(values))
        kept = np.expand_dims(found, chosen) if keepdims else found
        return [kept.reshape(kept.shape or (1,))]

    return reference


def cumsum(p: Any, inputs: list[Array]) -> list[Array]:
    """Compute each sum from the start."""
    (data,) = inputs
    rows = data.reshape(1, -1) if p.axis is None else np.moveaxis(data, p.axis, -1)
    sums = np.empty(rows.shape, data.dtype)
    for index in itertools.product(*map(range, rows.shape)):
        *row, last = index
        sums[index] = math.fsum(rows[tuple(row)][: last + 1])
    return [sums[0] if p.axis is None else np.moveaxis(sums, -1, p.axis)]


REFERENCES: dict[str, Reference] = {
    "argmax": index_of(max),
    "argmin": index_of(min),
    "argmax_channel": index_of(max, axis=1),
    "cumsum": cumsum,
}

# Few distinct numbers, so that the first of several equal ones matters.
TIES = {"data": lambda random, shape, dtype: random.integers(0, 3, shape).astype(dtype)}


def indices(name: str, parameters: dict[str, object], shape: tuple[int, ...]) -> list[Row]:
    """Return rows with distinct numbers, then with ties, for which PyTorch does not promise the
    first.

    The output has the same shape for data of any rank only in a full search.
    """
    free = not parameters
    return [
        Row(name, parameters, shape, any_rank=free),
        Row(name, parameters, shape, values=TIES, any_rank=free, peers=("MXNet",)),
    ]


ROWS: list[Row] = [
    *(
        row
        for name in ("argmax", "argmin")
        for parameters, shape in (
            ({}, (5,)),
            ({}, (2, 3, 4)),
            ({"keepdims": True}, (3, 4)),
            ({"axis": 0}, (7,)),
            ({"axis": 0, "keepdims": True}, (7,)),
            ({"axis": 1}, (3, 4)),
            ({"axis": 0}, (33, 70)),
            ({"axis": 1}, (60, 701)),
            ({"axis": -1, "keepdims": True}, (2, 3, 21)),
            ({"axis": 1}, (2, 3, 4)),
            ({"axis": -2, "keepdims": True}, (2, 3, 4, 5)),
            ({"axis": 2}, (2, 3, 1, 2)),
        )
        for row in indices(name, parameters, shape)
    ),
    # MXNet refuses to bind argmax_channel with a gradient.
    *(
        Row("argmax_channel", {}, shape, values=values, is_train=False, peers=peers)
        for values, peers in (({}, ("MXNet", "PyTorch")), (TIES, ("MXNet",)))
        for shape in ((3, 4), (2, 1), (2, 3, 4), (2, 3, 4, 5))
    ),
    *(
        Row("cumsum", parameters, shape)
        for parameters, shape in (
            ({}, (5,)),
            ({}, (2, 3, 4)),
            ({"axis": 0}, (7,)),
            ({"axis": 0}, (3, 4)),
            ({"axis": 1}, (3, 4)),
            ({"axis": 0}, (40, 21)),
            ({"axis": 1}, (2, 301)),
            ({"axis": 1}, (2, 3, 19)),
            ({"axis": 2}, (2, 3, 1, 4)),
        )
    ),
]
