"""Vocabulary of block kernels, which run on GPUs alone: threads that share memory.

A kernel is code for a whole block: what stands outside of regions is computed by all threads alike,
and a region `for t in threads(256)` once by each thread t. All threads have ended a region before
any begins the next one. A task is a block:

    @block_of(256)
    def row_sums(call: Rows) -> None:
        sums, (row, _) = shared(256), current_task()
        for t in threads(256):
            total = np.float32(0)
            for j in range(t, call.columns, 256):
                total += call.data[row * call.columns + j]
            sums[t] = total
        add_up(sums)
        for t in threads(256):
            if t == 0:
                call.output[row] = sums[0]

Names that a region assigns live in it; those from outside it only reads. Memory is written in
regions alone. Elements of bfloat16 are read as float32 and rounded when they are written.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mxrun.codegen.declaration import intrinsic


@intrinsic
def threads(count: int) -> range:
    """Return the numbers of the block's threads, each of which runs the loop's body once."""


@intrinsic
def shared(count: int, element: type = np.float32) -> Any:
    """Return `count` elements, a constant, that the threads of a block share.

    element: np.float32 or np.float64. They are arbitrary at first.
    """


@intrinsic
def private(count: int) -> Any:
    """Return `count` float32 elements, a constant, of which every thread has its own.

    They stay between regions, are arbitrary at first, and are registers if all indices are known
    when loops are unrolled.
    """


@intrinsic
def stored(pointer: Any, value: float) -> float:
    """Return a float32 number as it would be read after it was stored there."""


@intrinsic
def multiply_add(x: float, y: float, z: float) -> float:
    """Compute the float32 number x * y + z, rounded once."""


@intrinsic
def exp2(exponent: float) -> float:
    """Compute `vectors.exp2_lanes` of one float32 number."""
