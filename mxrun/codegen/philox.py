"""Philox4x32-10, a counter-based generator that every device can compute.

J. Salmon, M. Moraes, R. Dror, D. Shaw, "Parallel Random Numbers: As Easy as 1, 2, 3", SC 2011. A
block of four 32-bit words is a function of a 128-bit counter and a 64-bit key: ten rounds of

    (x0, x1, x2, x3) -> (high(M1 x2) ^ x1 ^ k0, low(M1 x2), high(M0 x0) ^ x3 ^ k1, low(M0 x0))

with both halves of the key increased by a constant after each round. Compiled loops draw the same
words with `intrinsics.random_words`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

M0, M1 = 0xD2511F53, 0xCD9E8D57
W0, W1 = 0x9E3779B9, 0xBB67AE85
ROUNDS = 10
_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)


def blocks(key: int, counter: tuple[NDArray[np.uint64], ...]) -> tuple[NDArray[np.uint64], ...]:
    """Return the four words of each counter: four arrays of 32-bit values in 64 bits."""
    x0, x1, x2, x3 = counter
    k0, k1 = key & 0xFFFFFFFF, key >> 32 & 0xFFFFFFFF
    for _ in range(ROUNDS):
        p0, p1 = np.uint64(M0) * x0, np.uint64(M1) * x2
        x0, x1, x2, x3 = (
            (p1 >> _HALF) ^ x1 ^ np.uint64(k0),
            p1 & _LOW,
            (p0 >> _HALF) ^ x3 ^ np.uint64(k1),
            p0 & _LOW,
        )
        k0, k1 = (k0 + W0) & 0xFFFFFFFF, (k1 + W1) & 0xFFFFFFFF
    return x0, x1, x2, x3


def words(key: int, step: int, count: int, first: int = 0) -> NDArray[np.uint32]:
    """Return `count` words of a step, starting at word `first`.

    Word i is word i mod 4 of the block at counter (i // 4, step). Both halves of the counter are
    64-bit, their lower 32 bits first.
    """
    number = np.arange(first // 4, (first + count + 3) // 4, dtype=np.uint64)
    low, high = (np.full(number.shape, part, np.uint64) for part in (step & 0xFFFFFFFF, step >> 32))
    drawn = blocks(key, (number & _LOW, number >> _HALF, low, high))
    return np.stack(drawn, axis=1).astype(np.uint32).reshape(-1)[first % 4 :][:count]
