"""_read_classes: cases, and the formula one prediction after the other."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
from operator_row import Reference, Row, Values

Array = npt.NDArray[Any]


def read_classes(p: Any, inputs: list[Array]) -> list[Array]:
    """Compute sums and arrays in Python's numbers."""
    label, output, rows = inputs
    count, width = label.size, max(p.classes, 1)
    chances = np.moveaxis(output.reshape(-1, width, p.positions), 1, 2).reshape(count, width)
    sums = np.zeros((3, 2))
    arrays = [np.zeros(count, kind) for kind in ("i8", "i8", "f8", "f8")]
    for i in range(count):
        own = [float(chance) for chance in chances[i]]
        named, best = int(label.flat[i]), own.index(max(own))
        if p.classes == 0:
            named, best = int(label.flat[i] > 0.5), int(own[0] > 0.5)
            own = [1 - own[0], own[0]]
        weight = 0.0 if named == p.ignored else float(rows[i * rows.size // count])
        chance = own[min(max(named, 0), len(own) - 1)]
        values = (named == best, math.log(chance + 1e-12), math.log(max(chance, 1e-10)))
        for row, value in enumerate(values):
            sums[row] += (weight * value if p.requested >> row & 1 else 0, weight)
        found = (named, best if p.requested & 1 else 0, 0, weight)
        for array, value in zip(arrays, found, strict=True):
            array[i] = value
    return [sums, *arrays] if p.arrays else [sums]


REFERENCES: dict[str, Reference] = {"_read_classes": read_classes}


def chances(random: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Array:
    """Return numbers between 0 and 1."""
    return random.random(shape).astype(dtype)


def row_weights(random: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Array:
    """Return weights of which the last is that of padding."""
    weights = random.random(shape).astype(dtype)
    weights[-1] = 0
    return weights


VALUES: dict[str, Values] = {"output": chances, "weights": row_weights}
CASES: tuple[tuple[dict[str, object], tuple[int, ...], tuple[int, ...], int], ...] = (
    ({"classes": 3, "requested": 1}, (6,), (6, 3), 6),
    ({"classes": 3, "requested": 7, "arrays": True}, (3, 2), (6, 3), 3),
    ({"classes": 3, "requested": 7, "ignored": 1, "arrays": True}, (4, 5), (4, 3, 5), 4),
    ({"classes": 300, "requested": 3}, (5,), (5, 300), 5),
    ({"classes": 0, "requested": 7, "arrays": True}, (8, 1), (8, 1), 8),
)
ROWS = [
    Row(
        "_read_classes",
        {"positions": math.prod(output[2:]), **parameters},
        label,
        {"output": output, "weights": (rows,)},
        values=VALUES,
        any_rank=True,
        peers=(),
        no_peer="Elsewhere metrics are no operators.",
    )
    for parameters, label, output, rows in CASES
]
