"""Reductions: cases and formulas."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from operator_row import Reference, Row

Array = npt.NDArray[Any]


def reduction(function: Callable[[list[float]], float]) -> Reference:
    """Compute from lists of Python numbers, gathered one element at a time."""

    def reference(p: Any, inputs: list[Array]) -> list[Array]:
        (data,) = inputs
        rank = data.ndim
        chosen = {axis % rank for axis in p.axis or range(rank)}
        exclude = getattr(p, "exclude", False) and p.axis
        reduced = set(range(rank)) - chosen if exclude else chosen
        gathered: dict[tuple[int, ...], list[float]] = {}
        for index in itertools.product(*map(range, data.shape)):
            key = tuple(0 if axis in reduced else i for axis, i in enumerate(index))
            gathered.setdefault(key, []).append(float(data[index]))
        values = [function(gathered[key]) for key in sorted(gathered)]
        sizes = [1 if axis in reduced else size for axis, size in enumerate(data.shape)]
        if not p.keepdims:
            sizes = [size for axis, size in enumerate(sizes) if axis not in reduced] or [1]
        return [np.array(values, data.dtype).reshape(sizes)]

    return reference


def norm(p: Any, inputs: list[Array]) -> list[Array]:
    """The sum of magnitudes, or the distance from the origin."""
    if p.ord == 1:
        return reduction(lambda values: math.fsum(map(abs, values)))(p, inputs)
    return reduction(lambda values: math.hypot(*values))(p, inputs)


REFERENCES: dict[str, Reference] = {
    "sum": reduction(math.fsum),
    "mean": reduction(lambda values: math.fsum(values) / len(values)),
    "max": reduction(max),
    "min": reduction(min),
    "prod": reduction(math.prod),
    "nansum": reduction(lambda values: math.fsum(v for v in values if v == v)),
    "nanprod": reduction(lambda values: math.prod(v for v in values if v == v)),
    "norm": norm,
}

CASES: tuple[tuple[dict[str, object], tuple[int, ...]], ...] = (
    ({}, (5,)),
    ({}, (2, 3, 4)),
    ({"axis": ()}, (3, 2)),
    ({"keepdims": True}, (3, 4)),
    ({"axis": (1,)}, (3, 4)),
    ({"axis": (0,)}, (3, 4)),
    ({"axis": (-1,), "keepdims": True}, (2, 3, 21)),
    ({"axis": (1,)}, (2, 3, 4)),
    ({"axis": (0, 2)}, (3, 4, 5)),
    ({"axis": (2, 0), "keepdims": True}, (3, 4, 5, 2)),
    ({"axis": (1,), "exclude": True}, (3, 4, 5, 2)),
    ({"axis": (1, 0), "exclude": True, "keepdims": True}, (3, 4, 5)),
    ({"axis": (0, 1), "exclude": True}, (3, 4)),
    ({"axis": (2, 3)}, (2, 3, 1, 1)),
    ({"axis": (1,)}, (60, 701)),
    ({"axis": (0,)}, (60, 701)),
)


def free(parameters: dict[str, object]) -> bool:
    """Return whether the rank of the output does not depend on the rank of the data."""
    every = not parameters.get("axis") or "exclude" in parameters
    return every and "keepdims" not in parameters


# As in MXNet, each of several maxima gets the full gradient, which differences cannot show.
TIES = {"data": lambda random, shape, dtype: random.integers(0, 3, shape).astype(dtype)}


def some_nan(random: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Array:
    """Numbers from 0.5 to 2, every fifth NaN."""
    values = random.uniform(0.5, 2, shape)
    values.flat[::5] = np.nan
    return values.astype(dtype)


# Products of many normal numbers vanish, and nothing is left to compare.
NEAR_ONE = {"data": lambda random, shape, dtype: random.uniform(0.9, 1.1, shape).astype(dtype)}
VALUES = {"prod": NEAR_ONE, "nanprod": NEAR_ONE}
MISSING = {"data": some_nan}

ROWS: list[Row] = [
    *(
        Row(name, parameters, shape, values=VALUES.get(name, {}), any_rank=free(parameters))
        for name in REFERENCES
        for parameters, shape in CASES
        if name != "norm" or "exclude" not in parameters
    ),
    *(
        Row("norm", {**parameters, "ord": 1}, shape, any_rank=free(parameters))
        for parameters, shape in CASES
        if "exclude" not in parameters
    ),
    *(
        # NaN has no differences, and PyTorch no product without it.
        Row(name, parameters, (4, 9), values=MISSING, differentiable=False, peers=("MXNet",))
        for name in ("nansum", "nanprod")
        for parameters in ({"axis": (1,)}, {"axis": (0,)})
    ),
    # PyTorch's amax divides the gradient among the maxima.
    *(
        Row(name, {"axis": axes}, shape, values=TIES, differentiable=False, peers=("MXNet",))
        for name in ("max", "min")
        for axes, shape in (((1,), (5, 9)), ((0,), (9, 7)))
    ),
]
