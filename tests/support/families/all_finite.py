"""all_finite: cases and formulas."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
from operator_row import Reference, Row, Values

Array = npt.NDArray[Any]


def with_number(number: float, position: int) -> Values:
    """Return normally distributed values, of which one is replaced."""

    def values(random: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Array:
        found = random.standard_normal(shape).astype(dtype)
        found.reshape(-1)[position] = number
        return found

    return values


def all_finite(p: Any, inputs: list[Array]) -> list[Array]:
    """Look at one number after the other."""
    are_finite = all(math.isfinite(value) for data in inputs for value in data.flat)
    return [np.full(1, are_finite, np.float32)]


REFERENCES: dict[str, Reference] = {"all_finite": all_finite, "_all_finite": all_finite}


def case(shape: tuple[int, ...], **values: Values) -> Row:
    """Return a case; MXNet's operator has no gradient."""
    return Row(
        "all_finite",
        {},
        shape,
        values=values,
        any_rank=True,
        is_train=False,
        peers=("MXNet",),
        no_peer="PyTorch has no such function.",
    )


NUMBERS = ((math.nan, 0), (math.inf, 34), (-math.inf, 17), (3e38, 4))
PAIRS = (
    {},
    *({"arg1": with_number(number, 2)} for number in (math.nan, 3e38)),
    *({"arg0": with_number(number, 19)} for number in (math.inf, -math.inf)),
)
ROWS = [
    *map(case, ((5,), (2, 3, 4), (70, 33))),
    *(case((7, 5), data=with_number(*each)) for each in NUMBERS),
    *(
        Row(
            "_all_finite",
            {"num_args": 2},
            (4, 5),
            {"arg1": (3,)},
            values=values,
            any_rank=True,
            peers=(),
            no_peer="all_finite, which MXNet has, of several tensors",
        )
        for values in PAIRS
    ),
]
