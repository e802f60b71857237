"""random_normal_like: cases and formula."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
from families.dropout import word
from operator_harness import RANDOM, STREAM
from operator_row import Reference, Row, rows

Array = npt.NDArray[Any]


def normal_like(p: Any, inputs: list[Array]) -> list[Array]:
    """Draw one number at a time from two words of the stream."""
    (data,) = inputs

    def unit(index: int) -> float:
        return (word(RANDOM[0] ^ STREAM, RANDOM[1], index) >> 8) / (1 << 24)

    drawn = [
        math.sqrt(-2 * math.log(1 - unit(2 * i))) * math.cos(2 * math.pi * unit(2 * i + 1))
        for i in range(data.size)
    ]
    return [(p.loc + p.scale * np.array(drawn)).reshape(data.shape).astype(data.dtype)]


ROWS: list[Row] = [
    *rows(
        "random_normal_like",
        ({}, (7,)),
        ({}, (4, 5)),
        ({"loc": 2.0, "scale": 0.5}, (3, 4, 5)),
        ({"loc": -1.0}, (1,)),
        ({"scale": 3.0}, (2, 3, 4, 5)),
        ({"scale": 0.0, "loc": 4.0}, (6, 2)),
        ({}, (3, 2003)),
        peers=(),
        no_peer="Every library draws other numbers.",
    ),
]

REFERENCES: dict[str, Reference] = {"random_normal_like": normal_like}
