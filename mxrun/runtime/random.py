"""Random numbers: every stream is a function of a seed and a name alone.

On the host a stream is NumPy's Philox4x64-10 (Salmon et al., "Parallel Random Numbers: As Easy as
1, 2, 3", 2011) with its counter at zero and the key taken from SHA-256. Only the raw 64-bit words
are read: NumPy guarantees that these never change, while the streams of its `Generator` methods may
change between versions. Operators draw from `Stream`, which every device can compute.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from mxrun.base.dataclass import dataclass
from mxrun.codegen import philox


@dataclass(frozen=True)
class Stream:
    """Random numbers of one operator at one step: Philox4x32-10 under `key`.

    Element i of step s is word i mod 4 of the block at counter (i // 4, s), so the numbers depend
    only on key, step and position, not on the device or the threads. part: index, from 0, of the
    part of a batch that is computed in parts; the part draws the numbers that its rows would get in
    the complete batch.
    """

    key: int
    step: int
    part: int = 0

    def bits(self, count: int) -> NDArray[np.uint32]:
        """Return the uniform 32-bit words for a tensor with `count` elements in this part."""
        return philox.words(key=self.key, step=self.step, count=count, first=self.part * count)


def key_of(text: str) -> int:
    """Return a 63-bit key: the beginning of the text's SHA-256."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little") >> 1


def raw(seed: int, name: str, count: int, first: int = 0) -> NDArray[np.uint64]:
    """Return `count` 64-bit words of the stream `name` under `seed`, starting at word `first`."""
    digest = hashlib.sha256(f"{seed}/{name}".encode()).digest()
    key = int.from_bytes(digest[:16], "little")
    generator = np.random.Philox(key=key)
    if first:
        # One counter value yields four words.
        generator.advance(first // 4)
        return generator.random_raw(first % 4 + count)[first % 4 :]
    return generator.random_raw(count)


def permutation(seed: int, name: str, count: int) -> NDArray[np.int64]:
    """Return a uniform permutation of 0 .. count-1: ranks of `count` draws, ties by position."""
    return np.argsort(raw(seed, name, count), kind="stable").astype(np.int64, copy=False)


def uniform(seed: int, name: str, shape: tuple[int, ...], first: int = 0) -> NDArray[np.float64]:
    """Return float64 in [0, 1): the upper 53 bits of each word times 2^-53, exactly.

    first: first word of the stream to use.
    """
    words = raw(seed, name, math.prod(shape), first)
    words >>= np.uint64(11)
    values = words.astype(np.float64).reshape(shape)
    values *= 2.0**-53
    return values


def normal(seed: int, name: str, shape: tuple[int, ...]) -> NDArray[np.float64]:
    """Return standard normal float64 by the method of Box and Muller (1958).

    With u, v uniform: sqrt(-2 ln(1 - u)) cos(2 pi v) fills the first half of the result in
    row-major order and sqrt(-2 ln(1 - u)) sin(2 pi v) the second. 1 - u is in (0, 1], so the
    logarithm is finite.
    """
    count = math.prod(shape)
    parts = [part for _, part in normal_chunks(seed, name, count, max(count, 1))]
    return np.concatenate(parts or [np.empty(0)]).reshape(shape)


def normal_chunks(
    seed: int, name: str, count: int, max_size: int
) -> Iterator[tuple[int, NDArray[np.float64]]]:
    """Yield the numbers of `normal` in arrays of at most `max_size`, each with its first index."""
    pairs = (count + 1) // 2
    for first in range(0, pairs, max_size):
        size = min(max_size, pairs - first)
        radius = np.sqrt(-2.0 * np.log1p(-uniform(seed, name, (size,), first)))
        angle = 2.0 * math.pi * uniform(seed, name, (size,), pairs + first)
        yield first, radius * np.cos(angle)
        yield pairs + first, (radius * np.sin(angle))[: count - pairs - first]
