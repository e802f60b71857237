"""Tensors as matrices in memory, for concatenating, splitting, copying and clearing.

Seen along one axis, a plain or channels-last tensor is a matrix: one row per index of the axes
before it, in the order of the layout; a row holds the axis and all axes after it.
"""

from __future__ import annotations

import math
from typing import Any

from mxrun.base.device import DeviceDescription
from mxrun.base.tensor import CHANNELS_LAST, TensorSpec
from mxrun.codegen.arguments import Arguments, Float32s, Integer
from mxrun.codegen.intrinsics import each, share
from mxrun.codegen.jit import inlined, native
from mxrun.codegen.loops import runs_of_task, vectors
from mxrun.codegen.vectors import lanes, store_lanes
from mxrun.operator.native_kernel import LoopPart, Slot


def rows_along(spec: TensorSpec, axis: int) -> tuple[int, int]:
    """Return (rows, columns) of a plain or channels-last tensor along `axis`."""
    order = list(range(len(spec.shape)))
    if spec.layout == CHANNELS_LAST:
        order = [0, *order[2:], 1]
    before = order.index(axis)
    rows = math.prod(spec.shape[other] for other in order[:before])
    return rows, math.prod(spec.shape[other] for other in order[before:])


class RowCopy(Arguments):
    """Arguments of `copy_rows_loop`: row r begins at element offset + r * stride of its memory."""

    rows: Integer
    columns: Integer
    source: Float32s
    source_offset: Integer
    source_stride: Integer
    target: Float32s
    target_offset: Integer
    target_stride: Integer


@native
def copy_rows_loop(call: RowCopy) -> None:
    """target[r, c] = source[r, c] for rows of the given strides; skipped if both are one memory.

    Source and target may be different columns of the same rows.
    """
    columns = call.columns
    position, end = share(call.rows * columns)
    if call.source is call.target and call.source_offset == call.target_offset:
        position = end
    while position < end:
        row = position // columns
        column = position - row * columns
        read = call.source_offset + row * call.source_stride
        write = call.target_offset + row * call.target_stride
        full_rows = (end - position) // columns
        if column == 0 and full_rows > 0:
            for _ in range(full_rows):
                for i in range(columns):
                    call.target[write + i] = call.source[read + i]
                read += call.source_stride
                write += call.target_stride
            position += full_rows * columns
        else:
            count = min(columns - column, end - position)
            for i in range(column, column + count):
                call.target[write + i] = call.source[read + i]
            position += count


@inlined
def near_rows(stride: int) -> int:
    """Return how many rows, `stride` elements apart, to read side by side.

    As many as the hardware prefetcher can follow, or as are near to each other: a multiple of 8.
    """
    return max(8, min(64, 2048 // max(stride, 1) * 8))


@inlined
def clear(memory: Any, at: int, count: int) -> None:
    """Write 0 to `count` float32 or bfloat16 elements from `at` on."""
    for j, width in vectors(at, at + count):
        store_lanes(memory, j, lanes(0.0), width)


class RowZeroing(Arguments):
    """Arguments of `zero_rows_loop`: row r begins at element offset + r * stride of the target."""

    rows: Integer
    columns: Integer
    target: Float32s
    offset: Integer
    stride: Integer


@native
def zero_rows_loop(call: RowZeroing) -> None:
    """target[r, c] = 0 for rows of the given stride."""
    for row, column, _, width in runs_of_task(call.rows, call.columns):
        write = call.offset + row * call.stride + column
        for i in each(write, write + width):
            call.target[i] = 0


def zero_part(output: Slot, count: int, device: DeviceDescription) -> LoopPart:
    """Return output = 0 for `count` elements in memory order."""
    arguments = RowZeroing(rows=1, columns=count, target=output, offset=0, stride=count)
    return LoopPart(zero_rows_loop, arguments, device.tasks_for_elements(count))
