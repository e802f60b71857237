"""Products of matrices: cases and formulas."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from operator_row import Reference, Row

Array = npt.NDArray[Any]


def dot(p: Any, inputs: list[Array]) -> list[Array]:
    """A tensor product over the named axes."""
    lhs, rhs = inputs
    axes = (0 if p.transpose_a else lhs.ndim - 1, rhs.ndim - 1 if p.transpose_b else 0)
    result = np.asarray(np.tensordot(lhs, rhs, axes), lhs.dtype)
    return [result if result.ndim else result.reshape(1)]


def batch_dot(p: Any, inputs: list[Array]) -> list[Array]:
    """Compute one product per matrix of the stacks."""
    left = "...km" if p.transpose_a else "...mk"
    right = "...nk" if p.transpose_b else "...kn"
    return [np.einsum(f"{left},{right}->...mn", *inputs)]


PLAIN: dict[str, object] = {}
LEFT: dict[str, object] = {"transpose_a": True}
RIGHT: dict[str, object] = {"transpose_b": True}
BOTH: dict[str, object] = {"transpose_a": True, "transpose_b": True}

DOT: tuple[tuple[dict[str, object], tuple[int, ...], tuple[int, ...]], ...] = (
    (PLAIN, (3, 4), (4, 5)),
    (LEFT, (4, 3), (4, 5)),
    (RIGHT, (3, 4), (5, 4)),
    (BOTH, (4, 3), (5, 4)),
    (PLAIN, (1, 1), (1, 1)),
    (PLAIN, (7,), (7,)),
    (PLAIN, (3, 4), (4,)),
    (LEFT, (4, 3), (4,)),
    (RIGHT, (3, 4), (4,)),
    (PLAIN, (4,), (4, 3)),
    (RIGHT, (4,), (3, 4)),
    (PLAIN, (2, 3, 4), (4, 5, 6)),
    (LEFT, (4, 2, 3), (4, 5)),
    (RIGHT, (2, 3, 4), (5, 6, 4)),
    (BOTH, (4, 2, 3), (5, 6, 4)),
    (PLAIN, (64, 40), (40, 70)),
)

BATCH_DOT: tuple[tuple[dict[str, object], tuple[int, ...], tuple[int, ...]], ...] = (
    (PLAIN, (2, 3, 4), (2, 4, 5)),
    (LEFT, (2, 4, 3), (2, 4, 5)),
    (RIGHT, (2, 3, 4), (2, 5, 4)),
    (BOTH, (2, 4, 3), (2, 5, 4)),
    (PLAIN, (1, 1, 1), (1, 1, 1)),
    (RIGHT, (2, 3, 4, 5), (2, 3, 6, 5)),
    (LEFT, (9, 33, 40), (9, 33, 50)),
)

ROWS: list[Row] = [
    Row(operator, parameters, lhs, shapes={"rhs": rhs})
    for operator, cases in (("dot", DOT), ("batch_dot", BATCH_DOT))
    for parameters, lhs, rhs in cases
]

REFERENCES: dict[str, Reference] = {"dot": dot, "batch_dot": batch_dot}
