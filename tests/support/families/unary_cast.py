"""Cast: cases and formula."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from families.unary import STEPS, drawn
from operator_row import Reference, Row, rows

Array = npt.NDArray[Any]


def cast(p: Any, inputs: list[Array]) -> list[Array]:
    """Convert Python numbers, one at a time."""
    whole = "int" in p.dtype
    values = [int(float(x)) if whole else float(x) for x in inputs[0].flat]
    return [np.array(values, p.dtype).reshape(inputs[0].shape)]


ROWS: list[Row] = [
    *rows(
        "Cast",
        ({"dtype": "float64"}, (2, 3, 4)),
        ({"dtype": "float64"}, (5,)),
        values={"data": drawn(-3, 3)},
    ),
    # Rounding hides the derivative from finite differences.
    *rows(
        "Cast",
        ({"dtype": "float32"}, (7,)),
        ({"dtype": "float16"}, (3, 5)),
        values={"data": drawn(-3, 3)},
        differentiable=False,
    ),
    # Through integers the gradient passes, which is not the derivative.
    *rows(
        "Cast",
        ({"dtype": "int32"}, (11,)),
        ({"dtype": "int64"}, (2, 3, 2, 2)),
        ({"dtype": "int8"}, (1, 1)),
        values={"data": STEPS},
        differentiable=False,
        # PyTorch has no gradient through integers.
        peers=("MXNet",),
    ),
    *rows(
        "Cast",
        ({"dtype": "uint8"}, (3, 12001)),
        values={"data": drawn(0, 200)},
        differentiable=False,
        peers=("MXNet",),
    ),
]

REFERENCES: dict[str, Reference] = {
    "Cast": cast,
}
