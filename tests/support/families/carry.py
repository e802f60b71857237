"""carry, and the step that carries: cases and formulas."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from operator_row import Reference, Row

Array = npt.NDArray[Any]


def second(p: Any, inputs: list[Array]) -> list[Array]:
    """Copy the second of two tensors: the state, or the value that overwrites it."""
    return [np.array(inputs[1])]


SHAPES = ((5,), (2, 3), (4, 16), (2, 3, 5), (3, 70, 33), (2, 3, 4, 5))
REASON = "a peer keeps what a run leaves for the next one outside of its graph"

ROWS: list[Row] = [
    *(Row("carry", {}, shape, peers=(), no_peer=REASON) for shape in SHAPES),
    *(Row("carry", {}, shape, is_train=False, peers=(), no_peer=REASON) for shape in SHAPES[:2]),
    *(Row("_carry", {}, shape, peers=(), no_peer=REASON) for shape in SHAPES),
]
REFERENCES: dict[str, Reference] = {"carry": second, "_carry": second}
