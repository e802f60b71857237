"""Wide rows on GPUs: a block reduces a row, where half a warp would take too long.

The sums have the order of `row_reduction`: in blocks of a row, of which each has 64 threads, so
that a block of threads adds four at a time; the bits are those of the CPU.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from mxrun.base.device import CUDA, DeviceDescription
from mxrun.codegen.arguments import Arguments
from mxrun.codegen.blocks import shared, threads
from mxrun.codegen.jit import NativeFunction, inlined
from mxrun.codegen.vectors import LANES
from mxrun.operator.native_kernel import LoopPart
from mxrun.ops.row_reduction import BLOCK, STEP

THREADS = 256
# Columns from which a row is a block's.
_WIDE = 4096
_GROUPS = THREADS // STEP


@inlined
def join_halves(values: Any, group: int, count: int, join: Any) -> None:
    """Join the upper half of the first `count` values of every group with the lower, until 1."""
    half = count // 2
    while half > 0:
        for t in threads(THREADS):
            if t % group < half:
                values[t] = join(values[t], values[t + half])
        half = half // 2


@inlined
def row_sum(begin: int, end: int, terms: Any) -> Any:
    """Return the float64 sum of terms(j), float32, over a run; each is computed by one thread."""
    values, totals = shared(THREADS), shared(1, np.float64)
    for t in threads(THREADS):
        if t == 0:
            totals[0] = 0.0
    for first in range(begin, end, _GROUPS * BLOCK):
        for t in threads(THREADS):
            start, total = min(first + t // STEP * BLOCK, end), np.float32(0)
            full = start + (min(start + BLOCK, end) - start) // LANES * LANES
            steps = start + (full - start) // STEP * STEP
            for j in range(start + t % STEP, steps, STEP):
                total = terms(j) + total
            if t % STEP < LANES:
                for j in range(steps + t % STEP, full, LANES):
                    total = terms(j) + total
            values[t] = total
        for t in threads(THREADS):
            if t % STEP < LANES:
                low, high = values[t] + values[t + LANES], values[t + 2 * LANES]
                values[t] = low + (high + values[t + 3 * LANES])
        join_halves(values, STEP, LANES, lambda low, high: low + high)
        for t in threads(THREADS):
            if t == 0:
                for group in range(_GROUPS):
                    if first + group * BLOCK < end:
                        totals[0] += values[group * STEP]
    full = begin + (end - begin) // LANES * LANES
    if full < end:
        for t in threads(THREADS):
            rest = np.float32(0)
            if full + t < end:
                rest = terms(full + t)
            values[t] = rest
        join_halves(values, THREADS, LANES, lambda low, high: low + high)
        for t in threads(THREADS):
            if t == 0:
                totals[0] += values[0]
    return totals[0]


@inlined
def row_maximum(begin: int, end: int, terms: Any) -> Any:
    """Return the largest float32 term of a run; NaN is passed over."""
    values = shared(THREADS)
    for t in threads(THREADS):
        most = np.float32(-math.inf)
        for j in range(begin + t, end, THREADS):
            most = max(most, terms(j))
        values[t] = most
    join_halves(values, THREADS, THREADS, lambda low, high: max(low, high))
    return values[0]


def row_part(
    loop: NativeFunction,
    kernel: NativeFunction,
    make: Callable[..., Arguments],
    rows: int,
    columns: int,
    device: DeviceDescription,
    **arguments: Any,
) -> LoopPart:
    """Return a loop over rows, or on a GPU, if the rows are wide, a kernel with a block for each.

    make: class of their arguments, with rows and columns.
    """
    given = make(rows=rows, columns=columns, **arguments)
    if device.family == CUDA and columns >= _WIDE:
        return LoopPart(kernel, given, rows)
    return LoopPart(loop, given, device.tasks_for_elements(rows * columns))
