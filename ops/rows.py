"""Tensors as matrices in memory, for concatenating, splitting and copying.

Seen along one axis, a plain or channels-last tensor is a matrix: one row per index of the axes
before it, in the order of the layout; a row holds the axis and all axes after it.
"""

from __future__ import annotations

import math

from mxrun.backend.jit import Block, float32s, integer, native, share
from mxrun.backend.team import team_for_elements
from mxrun.base.tensor import CHANNELS_LAST, TensorSpec
from mxrun.operator.native_kernel import LoopPart, Slot


def rows_along(spec: TensorSpec, axis: int) -> tuple[int, int]:
    """Return (rows, columns) of a plain or channels-last tensor along `axis`."""
    order = list(range(len(spec.shape)))
    if spec.layout == CHANNELS_LAST:
        order = [0, *order[2:], 1]
    before = order.index(axis)
    rows = math.prod(spec.shape[other] for other in order[:before])
    return rows, math.prod(spec.shape[other] for other in order[before:])


@native
def copy_rows_loop(block: Block) -> None:
    """target[r, c] = source[r, c] for rows of the given strides; skipped if both are one memory.

    Source and target may be different columns of the same rows.
    """
    rows, columns = integer(block, 0), integer(block, 1)
    source, source_offset, source_stride = (
        float32s(block, 2),
        integer(block, 3),
        integer(block, 4),
    )
    target, target_offset, target_stride = (
        float32s(block, 5),
        integer(block, 6),
        integer(block, 7),
    )
    position, end = share(block, rows * columns)
    if integer(block, 2) == integer(block, 5) and source_offset == target_offset:
        position = end
    while position < end:
        row = position // columns
        column = position - row * columns
        read = source_offset + row * source_stride
        write = target_offset + row * target_stride
        full_rows = (end - position) // columns
        if column == 0 and full_rows > 0:
            for _ in range(full_rows):
                for i in range(columns):
                    target[write + i] = source[read + i]
                read += source_stride
                write += target_stride
            position += full_rows * columns
        else:
            count = min(columns - column, end - position)
            for i in range(column, column + count):
                target[write + i] = source[read + i]
            position += count


@native
def zero_rows_loop(block: Block) -> None:
    """target[r, c] = 0 for rows of the given stride."""
    rows, columns = integer(block, 0), integer(block, 1)
    target, offset, stride = float32s(block, 2), integer(block, 3), integer(block, 4)
    position, end = share(block, rows * columns)
    while position < end:
        row = position // columns
        column = position - row * columns
        count = min(columns - column, end - position)
        write = offset + row * stride + column
        for i in range(count):
            target[write + i] = 0
        position += count


def copy_part(spec: TensorSpec, source: Slot, target: Slot, threads: int) -> LoopPart:
    """Return a copy of an entire tensor, which is skipped if both are the same memory."""
    count = spec.elements
    arguments = (1, count, source, 0, count, target, 0, count)
    return LoopPart(copy_rows_loop, arguments, team_for_elements(count, threads))


def zero_part(output: Slot, count: int, threads: int) -> LoopPart:
    """Return output = 0 for `count` elements in memory order."""
    arguments = (1, count, output, 0, count)
    return LoopPart(zero_rows_loop, arguments, team_for_elements(count, threads))
