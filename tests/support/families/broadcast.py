"""Arithmetic with broadcasting: cases; the formulas are those of elementwise arithmetic."""

from __future__ import annotations

from families.elementwise import ARITHMETIC, away_from_zero, pairwise
from operator_row import Reference, Row

# lhs and rhs; a (rank, 2) appended to any must contradict the rest.
SHAPES: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...] = (
    ((4, 5), (4, 5)),
    ((2, 3, 4), (1, 3, 1)),
    ((1, 3, 1), (2, 3, 4)),
    ((2, 1, 4), (1, 3, 1)),
    ((3, 4, 5), (5,)),
    ((1,), (1,)),
    ((6, 1), (1, 5)),
    ((2, 3, 4, 5), (1, 3, 1, 1)),
    ((64, 301), (1, 301)),
    ((3, 1), (3, 12001)),
    ((2, 1, 3, 1, 5), (1, 4, 3, 3, 1)),
)

ROWS: list[Row] = [
    Row(
        f"broadcast_{name}",
        {},
        lhs,
        shapes={"rhs": rhs},
        values={"rhs": away_from_zero} if name == "div" else {},
    )
    for name in ARITHMETIC
    for lhs, rhs in SHAPES
]

REFERENCES: dict[str, Reference] = {
    f"broadcast_{name}": pairwise(function) for name, function in ARITHMETIC.items()
}
