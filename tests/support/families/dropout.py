"""Dropout: cases and formula."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
from operator_harness import RANDOM, STREAM
from operator_row import Reference, Row, rows

Array = npt.NDArray[Any]
LOW = (1 << 32) - 1


def word(key: int, step: int, index: int) -> int:
    """Word `index` of a stream: Philox4x32-10 from the paper's definition, on Python integers."""
    number, k = index // 4, [key & LOW, key >> 32]
    x = [number & LOW, number >> 32, step & LOW, step >> 32]
    for _ in range(10):
        first, second = 0xD2511F53 * x[0], 0xCD9E8D57 * x[2]
        x = [second >> 32 ^ x[1] ^ k[0], second & LOW, first >> 32 ^ x[3] ^ k[1], first & LOW]
        k = [k[0] + 0x9E3779B9 & LOW, k[1] + 0xBB67AE85 & LOW]
    return x[index % 4]


def dropout(p: Any, inputs: list[Array]) -> list[Array]:
    """Draw one element of the mask at a time; a word w stands for w / 2^32."""
    (data,) = inputs
    shape = list(data.shape)
    for axis in p.axes:
        shape[axis] = 1
    keep = Fraction(1 - p.p)
    words = (word(RANDOM[0] ^ STREAM, RANDOM[1], i) for i in range(int(np.prod(shape))))
    flat = [1 / (1 - p.p) if Fraction(w, 1 << 32) < keep else 0.0 for w in words]
    mask = np.array(flat, data.dtype).reshape(shape)
    return [data * mask, mask]


def identity(p: Any, inputs: list[Array]) -> list[Array]:
    """Return the data: nothing is dropped."""
    (data,) = inputs
    shape = list(data.shape)
    for axis in p.axes:
        shape[axis] = 1
    return [data.copy(), np.ones(shape, data.dtype)]


ROWS: list[Row] = [
    # Every library draws other numbers.
    *rows(
        "Dropout",
        ({}, (7,)),
        ({"p": 0.25}, (4, 5)),
        ({"p": 0.9}, (3, 4, 5, 2)),
        ({"p": 0.3, "mode": "always"}, (1,)),
        ({"p": 1e-12}, (2, 3)),
        ({"p": 0.75, "axes": (1,)}, (5, 6, 3)),
        ({"p": 0.5, "axes": (2, 3)}, (3, 5, 4, 2)),
        ({"p": 0.5, "axes": (0, -1)}, (3, 20, 4)),
        ({"p": 0.5, "axes": (0, 2)}, (2, 3, 2, 5)),
        ({"p": 0.5, "axes": (1, 3)}, (2, 3, 2, 3, 2)),
        ({"p": 0.125}, (3, 5003)),
        peers=(),
    ),
    *rows("Dropout", ({"p": 0.0}, (4, 5)), ({"p": 0.0, "axes": (0,)}, (4, 5))),
    *rows(
        "Dropout",
        ({"p": 1.0}, (4, 5)),
        ({"p": 1.0, "axes": (0,)}, (4, 21)),
        # MXNet divides by zero.
        peers=("PyTorch",),
    ),
    *rows("Dropout", ({}, (4, 5)), ({"p": 0.9, "axes": (1,)}, (4, 5, 2)), is_train=False),
]

REFERENCES: dict[str, Reference] = {"Dropout": dropout}
EVALUATED: dict[str, Reference] = {"Dropout": identity}
