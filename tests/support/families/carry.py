"""carry, and the marks of carried states: cases and formulas."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from operator_row import Reference, Row

Array = npt.NDArray[Any]


def second(p: Any, inputs: list[Array]) -> list[Array]:
    """Copy the second of two tensors: the state."""
    return [np.array(inputs[1])]


SHAPES = ((5,), (2, 3), (4, 16), (2, 3, 5), (3, 70, 33), (2, 3, 4, 5))
NO_PEER: dict[str, Any] = {
    "peers": (),
    "no_peer": "a peer keeps what a run leaves for the next one outside of its graph",
}

ROWS: list[Row] = [
    *(Row("carry", {}, shape, **NO_PEER) for shape in SHAPES),
    *(Row("carry", {}, shape, is_train=False, **NO_PEER) for shape in SHAPES[:2]),
    *(
        Row("_carried", {"num_states": 1}, shape, {"value0": (2, 3)}, **NO_PEER, any_rank=True)
        for shape in SHAPES
    ),
]
REFERENCES: dict[str, Reference] = {
    "carry": second,
    "_carried": lambda p, inputs: [np.array(inputs[0])],
}
