"""Mean and variance: cases and formula."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import numpy.typing as npt
from operator_row import Reference, Row

Array = npt.NDArray[Any]


def moments(p: Any, inputs: list[Array]) -> list[Array]:
    """Compute from lists of Python numbers, gathered one element at a time."""
    (data,) = inputs
    reduced = {axis % data.ndim for axis in p.axes}
    gathered: dict[tuple[int, ...], list[float]] = {}
    for index in itertools.product(*map(range, data.shape)):
        key = tuple(0 if axis in reduced else i for axis, i in enumerate(index))
        gathered.setdefault(key, []).append(float(data[index]))
    means, variances = [], []
    for key in sorted(gathered):
        values = gathered[key]
        mean = math.fsum(values) / len(values)
        means.append(mean)
        variances.append(math.fsum((value - mean) ** 2 for value in values) / len(values))
    sizes = [1 if axis in reduced else size for axis, size in enumerate(data.shape)]
    if not p.keepdims:
        sizes = [size for axis, size in enumerate(sizes) if axis not in reduced] or [1]
    return [np.array(values, data.dtype).reshape(sizes) for values in (means, variances)]


REFERENCES: dict[str, Reference] = {"moments": moments}

ROWS: list[Row] = [
    Row("moments", {"axes": axes, **more}, shape)
    for axes, more, shape in (
        ((0,), {}, (5,)),
        ((1,), {}, (3, 4)),
        ((0,), {"keepdims": True}, (3, 4)),
        ((0, 2), {}, (2, 3, 4)),
        ((2, 0), {"keepdims": True}, (2, 3, 4)),
        ((0, 1, 2), {}, (2, 3, 4)),
        ((2, 3), {}, (2, 3, 4, 1)),
    )
] + [
    # MXNet 1.9.1 has no gradient for negative axes.
    Row("moments", {"axes": (-1,)}, (2, 3, 21), peers=("PyTorch",)),
]
