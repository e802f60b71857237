"""_basic_index: cases and formula."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import numpy.typing as npt
from operator_row import Reference, Row, rows

Array = npt.NDArray[Any]


def basic_index(p: Any, inputs: list[Array]) -> list[Array]:
    """Return the elements one by one."""
    (data,) = inputs
    axes = [
        [start + step * number for number in range(count)]
        for start, step, count in zip(p.starts, p.steps, p.counts, strict=True)
    ]
    chosen = [data[place] for place in itertools.product(*axes)]
    return [np.array(chosen, data.dtype).reshape(p.shape)]


ROWS: list[Row] = [
    *rows(
        "_basic_index",
        ({"starts": (1, 0), "steps": (1, 2), "counts": (2, 2), "shape": (2, 2)}, (3, 4)),
        ({"starts": (2, 3), "steps": (-1, -3), "counts": (3, 2), "shape": (3, 2)}, (3, 4)),
        ({"starts": (1, 0, 2), "steps": (1, 1, 1), "counts": (1, 3, 1), "shape": (3,)}, (2, 3, 4)),
        ({"starts": (0, 1), "steps": (1, 1), "counts": (2, 2), "shape": (1, 4)}, (2, 3)),
        ({"starts": (4,), "steps": (-2,), "counts": (3,), "shape": (3,)}, (5,)),
        peers=(),
        no_peer="Elsewhere indexing is no operator with ranges as parameters.",
    ),
]

REFERENCES: dict[str, Reference] = {"_basic_index": basic_index}
