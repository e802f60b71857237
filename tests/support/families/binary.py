"""Maps of two sides, as elementwise, broadcast and scalar operators: cases and formulas."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from families.broadcast import SHAPES as PAIRS
from families.elementwise import SHAPES, away_from_zero, pairwise
from families.scalar import each, positive
from operator_row import Reference, Row

Array = npt.NDArray[Any]


def small_integers(random: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Array:
    """Return numbers with many ties and many zeros."""
    return random.integers(-2, 3, shape).astype(dtype)


FORMULAS: dict[str, Callable[[Any, Any], Any]] = {
    "maximum": max,
    "minimum": min,
    "power": operator.pow,
    "hypot": lambda x, y: math.hypot(x, y),
    "mod": lambda x, y: float(x) % float(y) if y else 0.0,
    "equal": operator.eq,
    "not_equal": operator.ne,
    "greater": operator.gt,
    "greater_equal": operator.ge,
    "lesser": operator.lt,
    "lesser_equal": operator.le,
    "logical_and": lambda x, y: bool(x) and bool(y),
    "logical_or": lambda x, y: bool(x) or bool(y),
    "logical_xor": lambda x, y: bool(x) is not bool(y),
}
REVERSED = {"rpower": "power", "rmod": "mod"}
CONTINUOUS = ("maximum", "minimum", "power", "hypot", "mod")

# Values of either side for functions that do not accept random ones of both signs. Near an integer,
# a quotient has no derivative that differences could find.
VALUES = {
    "power": (positive, away_from_zero),
    "hypot": (away_from_zero, away_from_zero),
    "mod": (away_from_zero, away_from_zero),
    **{name: (small_integers, small_integers) for name in FORMULAS if name not in CONTINUOUS},
}


def two_sides(name: str, map_of: str, lhs: tuple[int, ...], rhs: tuple[int, ...]) -> Row:
    """Return the cases of one pair of shapes."""
    values = dict(zip(("lhs", "rhs"), VALUES.get(map_of, ()), strict=False))
    return Row(name, {}, lhs, shapes={"rhs": rhs}, values=values)


def with_number(name: str, scalar: float, shape: tuple[int, ...]) -> Row:
    """Return the cases of one scalar."""
    map_of, side = REVERSED.get(name, name), int(name in REVERSED)
    values = {"data": VALUES[map_of][side]} if map_of in VALUES else {}
    return Row(f"_{name}_scalar", {"scalar": scalar}, shape, values=values)


NUMBERS = ((1.0, (5,)), (2.0, (2, 3)), (-0.75, (2, 3, 4)), (1.5, (2, 1, 3, 2)), (0.5, (3, 12001)))
WITH_NUMBER = [name for name in (*FORMULAS, *REVERSED) if name != "power"]

ROWS: list[Row] = [
    *(two_sides(f"_{name}", name, shape, shape) for name in FORMULAS for shape in SHAPES),
    *(two_sides(f"broadcast_{name}", name, *pair) for name in FORMULAS for pair in PAIRS),
    *(
        with_number(name, abs(scalar) if name == "rpower" else scalar, shape)
        for name in WITH_NUMBER
        for scalar, shape in NUMBERS
    ),
]

REFERENCES: dict[str, Reference] = {
    **{f"_{name}": pairwise(function) for name, function in FORMULAS.items()},
    **{f"broadcast_{name}": pairwise(function) for name, function in FORMULAS.items()},
    **{
        f"_{name}_scalar": each(lambda p, x, f=function: f(x, p.scalar))
        for name, function in FORMULAS.items()
        if name != "power"
    },
    **{
        f"_{name}_scalar": each(lambda p, x, f=FORMULAS[map_of]: f(p.scalar, x))
        for name, map_of in REVERSED.items()
    },
}
