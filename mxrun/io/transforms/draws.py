"""Random numbers of transforms: a function of seed, epoch, record and position of the transform.

They are the words of Philox4x32-10 under a key of seed and position, at the counters (record,
epoch), so that those of a chunk of records are computed at once and do not depend on the chunk.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from functools import lru_cache, partial

import numpy as np
from numpy.typing import NDArray

from mxrun.base.dataclass import dataclass
from mxrun.codegen import philox
from mxrun.codegen.arguments import Arguments, Float64s, Int64s, Integer
from mxrun.codegen.host_loop import HostLoop
from mxrun.codegen.intrinsics import random_words
from mxrun.codegen.jit import native
from mxrun.runtime.random import key_of

# Function from a shape to uniform float64 in [0, 1); every call starts the same stream anew.
Draw = Callable[[tuple[int, ...]], NDArray[np.float64]]
Int64 = NDArray[np.int64]

# Blocks of four words of one record and epoch.
_BLOCK_BITS = 24
_UNIT = 2.0**-32


class Drawing(Arguments):
    """Arguments of `draw_loop`: `blocks` blocks of four numbers for each of `rows` records."""

    rows: Integer
    blocks: Integer
    key: Integer
    records: Int64s
    epochs: Int64s
    output: Float64s


@native
def draw_loop(call: Drawing) -> None:
    """Compute output[row] = the uniform numbers of record records[row] in epoch epochs[row]."""
    for row in range(call.rows):
        first = call.records[row] << _BLOCK_BITS
        for block in range(call.blocks):
            words = random_words(call.key, call.epochs[row], first + block)
            at = 4 * (row * call.blocks + block)
            call.output[at] = np.float64(words[0]) * _UNIT
            call.output[at + 1] = np.float64(words[1]) * _UNIT
            call.output[at + 2] = np.float64(words[2]) * _UNIT
            call.output[at + 3] = np.float64(words[3]) * _UNIT


def draw_uniform(key: int, epochs: Int64, records: Int64, count: int) -> NDArray[np.float64]:
    """Return `count` uniform numbers in [0, 1), multiples of 2^-32, for each record: [n, count]."""
    blocks = -(-count // 4)
    output = np.empty((len(records), 4 * blocks))
    loop = _thread_loop()
    loop.set("rows", len(records))
    loop.set("blocks", blocks)
    loop.set("key", key)
    loop.set("records", np.ascontiguousarray(records))
    loop.set("epochs", np.ascontiguousarray(epochs))
    loop.set("output", output)
    loop()
    return output[:, :count]


_LOCAL = threading.local()


def _thread_loop() -> HostLoop:
    """Return the calling thread's loop, as making one takes longer than drawing a chunk."""
    loop: HostLoop | None = _LOCAL.__dict__.get("loop")
    if loop is None:
        drawing = Drawing(rows=0, blocks=0, key=0, records=None, epochs=None, output=None)
        loop = _LOCAL.__dict__["loop"] = HostLoop(draw_loop, drawing)
    return loop


@lru_cache(maxsize=256)
def transform_key(seed: int, position: int) -> int:
    """Return the key of the transform at a position of the pipeline."""
    return key_of(f"{seed}/transform/{position}")


@dataclass(frozen=True)
class Draws:
    """Random numbers of one record in one epoch: one stream per transform."""

    seed: int
    epoch: int
    record: int

    def at(self, position: int) -> Draw:
        """Return the stream of the transform at `position`."""
        return partial(self._uniform, position)

    def _uniform(self, position: int, shape: tuple[int, ...]) -> NDArray[np.float64]:
        key, first = transform_key(self.seed, position), 4 * self.record << _BLOCK_BITS
        # Processes that run users' transforms need no machine code for it.
        words = philox.words(key=key, step=self.epoch, count=math.prod(shape), first=first).reshape(
            shape
        )
        return words.astype(np.float64) * _UNIT
