"""Arithmetic with a number, and clipping: cases and formulas."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from families.elementwise import away_from_zero
from operator_row import Reference, Row, rows

Array = npt.NDArray[Any]


def positive(random: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Array:
    """Return numbers for which every power is defined."""
    return random.uniform(0.25, 3, shape).astype(dtype)


def each(function: Callable[[Any, float], float]) -> Reference:
    """Compute with Python's arithmetic, one element at a time."""

    def reference(p: Any, inputs: list[Array]) -> list[Array]:
        values = [function(p, float(x)) for x in inputs[0].flat]
        return [np.array(values, inputs[0].dtype).reshape(inputs[0].shape)]

    return reference


REFERENCES: dict[str, Reference] = {
    "_plus_scalar": each(lambda p, x: x + p.scalar),
    "_minus_scalar": each(lambda p, x: x - p.scalar),
    "_rminus_scalar": each(lambda p, x: p.scalar - x),
    "_mul_scalar": each(lambda p, x: x * p.scalar),
    "_div_scalar": each(lambda p, x: x / p.scalar),
    "_rdiv_scalar": each(lambda p, x: p.scalar / x),
    "_power_scalar": each(lambda p, x: x**p.scalar),
    "clip": each(lambda p, x: min(max(x, p.a_min), p.a_max)),
}

SCALARS = (
    (2.5, (5,)),
    (-0.75, (2, 3)),
    (3.0, (1, 1)),
    (2.0, (2, 3, 4)),
    (-1.0, (2, 3, 2, 2)),
    (0.5, (3, 12001)),
)

VALUES = {"_rdiv_scalar": {"data": away_from_zero}, "_power_scalar": {"data": positive}}

ROWS: list[Row] = [
    *(
        row
        for name in REFERENCES
        if name != "clip"
        for row in rows(
            name,
            *(({"scalar": scalar}, shape) for scalar, shape in SCALARS),
            ({}, (4,)),
            values=VALUES.get(name, {}),
        )
    ),
    *rows(
        "clip",
        *(
            ({"a_min": low, "a_max": high}, shape)
            for low, high, shape in (
                (-1.0, 1.0, (7,)),
                (0.0, 0.5, (3, 4)),
                (-0.25, 6.0, (2, 3, 4)),
                (0.1, 0.1, (1, 1)),
                (-2.0, -0.1, (3, 12001)),
            )
        ),
    ),
]
