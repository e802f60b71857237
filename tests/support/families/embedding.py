"""Embedding: cases and formula."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from operator_row import Reference, Row

Array = npt.NDArray[Any]


def embedding(p: Any, inputs: list[Array]) -> list[Array]:
    """Look up one id at a time, with ids outside the table clipped to its ends."""
    data, weight = inputs
    rows = [weight[min(max(int(n), 0), p.input_dim - 1)] for n in data.ravel()]
    return [np.array(rows).reshape(*data.shape, p.output_dim)]


def row(shape: tuple[int, ...], table: tuple[int, int], low: int = 0, past: int = 0) -> Row:
    """Return a row with int32 ids from `low` up to `past` beyond the last one."""

    def ids(random: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Array:
        return random.integers(low, table[0] + past, shape).astype("int32")

    parameters: dict[str, object] = {"input_dim": table[0], "output_dim": table[1]}
    return Row("Embedding", parameters, shape, values={"data": ids})


ROWS: list[Row] = [
    row((6,), (5, 3)),
    row((2, 4), (3, 1)),
    row((3, 1, 2), (1, 4)),
    row((5, 35), (65, 33)),
    row((40, 20), (30, 64)),
    row((4, 5), (6, 2), low=-3, past=4),
]

REFERENCES: dict[str, Reference] = {"Embedding": embedding}
