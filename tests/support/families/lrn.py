"""LRN: cases and formula."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from operator_row import Reference, Row, rows

Array = npt.NDArray[Any]


def lrn(p: Any, inputs: list[Array]) -> list[Array]:
    """Compute one channel at a time."""
    (data,) = inputs
    reach = (p.nsize - 1) // 2
    norm = np.empty_like(data)
    for channel in range(data.shape[1]):
        window = data[:, max(channel - reach, 0) : channel + reach + 1].astype("float64")
        norm[:, channel] = p.knorm + p.alpha / p.nsize * (window * window).sum(axis=1)
    return [data / norm.astype("float64") ** p.beta, norm]


ROWS: list[Row] = rows(
    "LRN",
    ({"nsize": 5}, (2, 16, 3, 4)),
    ({"nsize": 5, "alpha": 0.5}, (2, 6, 5, 4)),
    ({"nsize": 3, "alpha": 0.25, "knorm": 1.0}, (1, 5, 3, 3)),
    ({"nsize": 4, "alpha": 0.25}, (2, 7, 2, 3)),
    ({"nsize": 5, "alpha": 0.5, "beta": 0.6, "knorm": 1.5}, (2, 17, 3, 2)),
    ({"nsize": 9, "alpha": 1.0}, (2, 3, 4, 4)),
    ({"nsize": 1, "alpha": 0.5}, (3, 4, 1, 1)),
)

REFERENCES: dict[str, Reference] = {"LRN": lambda p, i: [a.astype(i[0].dtype) for a in lrn(p, i)]}
