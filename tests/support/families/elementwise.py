"""Elementwise arithmetic: cases and formulas."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from operator_row import Reference, Row, rows

Array = npt.NDArray[Any]


def away_from_zero(random: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Array:
    """Return divisors of either sign, for which quotients and their differences are moderate."""
    return (random.choice([-1, 1], shape) * random.uniform(0.5, 2, shape)).astype(dtype)


def pairwise(function: Callable[[Any, Any], Any]) -> Reference:
    """Compute one pair at a time, with broadcasting."""

    def reference(p: Any, inputs: list[Array]) -> list[Array]:
        lhs, rhs = np.broadcast_arrays(*inputs)
        values = [function(a, b) for a, b in zip(lhs.flat, rhs.flat, strict=True)]
        return [np.array(values, inputs[0].dtype).reshape(lhs.shape)]

    return reference


ARITHMETIC = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "div": operator.truediv,
}
SHAPES = ((5,), (2, 3), (2, 3, 4), (1, 1), (2, 3, 2, 4), (3, 4001))

ROWS: list[Row] = [
    row
    for name in ARITHMETIC
    for row in rows(
        f"elemwise_{name}",
        *(({}, shape) for shape in SHAPES),
        values={"rhs": away_from_zero} if name == "div" else {},
    )
]

REFERENCES: dict[str, Reference] = {
    f"elemwise_{name}": pairwise(function) for name, function in ARITHMETIC.items()
}
