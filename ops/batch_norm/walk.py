"""Iteration of a thread over its tasks in batch normalisation's loops, and its running sums.

The slots are those of `Tasks.arguments` and 16 to 23, with which every team's loop begins.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mxrun.backend.jit import Block, float32s, inlined, integer, share
from mxrun.backend.vectors import add_lanes, load_lanes, store_lanes


@inlined
def task_at(block: Block, task: int) -> tuple[int, int, int, int, int]:
    """Return a task's offset, rows, columns, first channel and offset in the partial sums."""
    rest = task // integer(block, 7)
    cut, row_block = task - rest * integer(block, 7), rest // integer(block, 5)
    number = rest - row_block * integer(block, 5)
    width, first_row = integer(block, 8), row_block * integer(block, 4)
    at = first_row * integer(block, 2) + number * integer(block, 6) + cut * width
    rows = min(integer(block, 4), integer(block, 3) - first_row)
    columns = min(width, integer(block, 6) - cut * width)
    sums = row_block * integer(block, 12) + cut * integer(block, 13)
    return at, rows, columns, number + cut * integer(block, 11), sums * 2 * integer(block, 9)


@inlined
def tasks_of(block: Block) -> tuple[int, int, int]:
    """Return the calling thread's first task, the end of its tasks and its arrays' offset."""
    # share() splits at multiples of 16, so each task counts as 16 elements.
    begin, end = share(block, 16 * integer(block, 0))
    return begin // 16, end // 16, begin // 16 // integer(block, 1) * integer(block, 15)


@inlined
def runs_of(block: Block, columns: int, pitch: int, other: int) -> tuple[int, int]:
    """Return the number of columns that are contiguous in all tensors, and the number of such runs.

    If a tensor's rows of channels are not contiguous, a run is one of these rows.
    """
    channels = integer(block, 9)
    if pitch == channels and other == channels:
        return columns, 1
    run = min(columns, channels)
    return run, columns // run


@inlined
def place(block: Block, at: int, pitch: int) -> int:
    """Return the offset of element `at` in a tensor whose rows of channels have that pitch."""
    channels, found = integer(block, 9), at
    if pitch != channels:
        found = at // channels * pitch + at % channels
    return found


@inlined
def spread(block: Block, mine: Any, own: int, first: int) -> None:
    """Copy the arrays [C] to one value per column: channels repeat; a plane has one value."""
    width, unit = integer(block, 8), integer(block, 10)
    for array in range(integer(block, 17)):
        if integer(block, 18 + array) != 0:
            values, to = float32s(block, 18 + array), own + array * integer(block, 14)
            for group in range(max(width // unit, 1)):
                for c in range(unit):
                    if first + c < integer(block, 9):
                        mine[to + group * unit + c] = values[first + c]


@inlined
def clear(block: Block, mine: Any, own: int, columns: int) -> None:
    """Set both running sums to zero."""
    pitch = integer(block, 14)
    for j in range(own + 3 * pitch, own + 3 * pitch + columns):
        mine[j] = np.float32(0)
        mine[j + pitch] = np.float32(0)


@inlined
def accumulate(mine: Any, place: int, count: int, value: Any) -> None:
    """Add a vector to a running sum."""
    store_lanes(mine, place, add_lanes(load_lanes(mine, place, count), value), count)


@inlined
def store_sums(block: Block, mine: Any, own: int, columns: int, sums: Any, at: int) -> None:
    """sums[at + c] and sums[at + C + c] = pairwise sums over the columns of each channel."""
    unit, pitch = integer(block, 10), integer(block, 14)
    begin, groups = own + 3 * pitch, columns // unit
    while groups > 1:
        half = (groups + 1) // 2
        for j in range(begin, begin + (groups - half) * unit):
            mine[j] += mine[j + half * unit]
            mine[j + pitch] += mine[j + pitch + half * unit]
        groups = half
    for c in range(min(unit, columns)):
        sums[at + c] = mine[begin + c]
        sums[at + integer(block, 9) + c] = mine[begin + pitch + c]
