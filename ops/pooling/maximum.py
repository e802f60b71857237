"""Maxima over windows as compiled loops on channels-last memory.

Tensors have three spatial axes, as in `ops/pooling/sum.py`. Unlike in oneDNN, the maximum of a
window with NaN is NaN, and the first NaN is the winner.

The common windows 2 x 2 and 3 x 3 have specialised loops, which give the same bits. Every loop
exists for float32 and for bfloat16 memory.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from mxrun.base.dtype import BFLOAT16
from mxrun.base.tensor import TensorSpec
from mxrun.codegen.arguments import Floats, Int32s, Uint8s
from mxrun.codegen.intrinsics import each
from mxrun.codegen.jit import NativeCode, NativeFunction, compact, native
from mxrun.codegen.loops import runs_of_task
from mxrun.codegen.vectors import (
    add_lanes,
    choose,
    exceeds,
    lanes,
    load_lanes,
    store_lanes,
)
from mxrun.ops.pooling.sum import Windows
from mxrun.ops.window import Window

LOWEST = float(np.finfo(np.float32).min)


class WindowWinners(Windows):
    """Windows with the row-major index of each winner in its window.

    The index is in one byte or in four; the other field is None, and both if there are no winners.
    """

    winners: Uint8s
    wide_winners: Int32s


def winner_bytes(window: Window) -> int:
    """Return the bytes of an element's index in its window."""
    return 1 if math.prod(window.kernel) <= 256 else 4


def winners_at(place: Any, size: int) -> dict[str, Any]:
    """Return the arguments for winners of `size` bytes at a place; for 0 bytes there are none."""
    return {
        "winners": place if size == 1 else None,
        "wide_winners": place if size == 4 else None,
    }


def maximum_code(data: TensorSpec, output: TensorSpec, window: Window) -> NativeCode:
    """Return the loop for a geometry, for tensors of data's dtype."""
    loop = maximum_loop
    if window.kernel == (2, 2) and not any(window.pad) and not _overhang(data, output, window):
        loop = maximum_of_4_loop
    elif window.kernel == (3, 3) and _touching(data, output, window):
        loop = maximum_of_9_loop
    return of_dtype(loop, data)


def of_dtype(loop: NativeFunction, data: TensorSpec) -> NativeFunction:
    """Return the loop for tensors of data's dtype."""
    return loop.bfloat16 if data.dtype == BFLOAT16 else loop


def _last_starts(output: TensorSpec, window: Window) -> list[int]:
    """Return the position at which the last window of each axis starts."""
    axes = zip(output.shape[2:], window.stride, window.pad, strict=True)
    return [(count - 1) * stride - pad for count, stride, pad in axes]


def _overhang(data: TensorSpec, output: TensorSpec, window: Window) -> bool:
    """Return whether the last windows extend beyond the data."""
    ends = zip(_last_starts(output, window), window.kernel, data.shape[2:], strict=True)
    return any(start + kernel > size for start, kernel, size in ends)


def _touching(data: TensorSpec, output: TensorSpec, window: Window) -> bool:
    """Return whether every window contains an element of the data."""
    starts = zip(_last_starts(output, window), data.shape[2:], strict=True)
    return all(start < size for start, size in starts)


class Maximum(WindowWinners):
    """Arguments of the loops that find maxima."""

    data: Floats
    output: Floats


@compact
def maximum_loop(call: Maximum) -> None:
    """output[n, y, c] = first maximum of data[n, x, c] over the x in window y.

    winners[n, y, c] = its row-major index in the window, if requested. A window entirely outside
    the data gives the lowest finite number.
    """
    channels, depth, height, width = call.channels, call.depth, call.height, call.width
    windows_z, windows_y, windows_x = call.windows_z, call.windows_y, call.windows_x
    kernel_y, kernel_x = call.kernel_y, call.kernel_x
    for line, _, begin, size in runs_of_task(call.batch * windows_z * windows_y, windows_x):
        plane = line // windows_y
        image = plane // windows_z * depth
        first_z = plane % windows_z * call.stride_z - call.pad_z
        first_y = line % windows_y * call.stride_y - call.pad_y
        begin_z, end_z = max(first_z, 0), min(first_z + call.kernel_z, depth)
        begin_y, end_y = max(first_y, 0), min(first_y + kernel_y, height)
        start = line * windows_x
        for window in each(begin, begin + size):
            first_x = (window - start) * call.stride_x - call.pad_x
            begin_x, end_x = max(first_x, 0), min(first_x + kernel_x, width)
            empty = begin_z >= end_z or begin_y >= end_y or begin_x >= end_x
            # The first element is the winner if none exceeds -inf.
            inner = (begin_z - first_z) * kernel_y + begin_y - first_y
            first_number = inner * kernel_x + begin_x - first_x
            for c in range(0, channels, 16):
                best, winner = lanes(np.float32(LOWEST if empty else -np.inf)), lanes(first_number)
                count = channels - c
                for z in range(begin_z, end_z):
                    for y in range(begin_y, end_y):
                        number = ((z - first_z) * kernel_y + y - first_y) * kernel_x - first_x
                        row = ((image + z) * height + y) * width
                        for x in range(begin_x, end_x):
                            value = load_lanes(call.data, (row + x) * channels + c, count)
                            larger_here = exceeds(value, best)
                            best = choose(larger_here, value, best)
                            winner = choose(larger_here, lanes(number + x), winner)
                to = window * channels + c
                store_lanes(call.output, to, best, count)
                if call.winners is not None:
                    store_lanes(call.winners, to, winner, count)
                elif call.wide_winners is not None:
                    store_lanes(call.wide_winners, to, winner, count)


@native
def maximum_of_4_loop(call: Maximum) -> None:
    """`maximum_loop` for windows of 2 x 2 that are entirely inside the data."""
    channels, data, row = call.channels, call.data, call.width * call.channels
    windows_y, windows_x = call.windows_y, call.windows_x
    for line, _, begin, size in runs_of_task(call.batch * windows_y, windows_x):
        start = line * windows_x
        first = (line // windows_y * call.height + line % windows_y * call.stride_y) * row
        for window in each(begin, begin + size):
            at = first + (window - start) * call.stride_x * channels
            for c in range(0, channels, 16):
                count = channels - c
                upper = load_lanes(data, at + c, count)
                right = load_lanes(data, at + c + channels, count)
                lower = load_lanes(data, at + c + row, count)
                last = load_lanes(data, at + c + row + channels, count)
                above, below = exceeds(right, upper), exceeds(last, lower)
                upper, lower = choose(above, right, upper), choose(below, last, lower)
                under = exceeds(lower, upper)
                to = window * channels + c
                store_lanes(call.output, to, choose(under, lower, upper), count)
                if call.winners is not None:
                    winner = choose(below, lanes(3), lanes(2))
                    winner = choose(under, winner, choose(above, lanes(1), lanes(0)))
                    store_lanes(call.winners, to, winner, count)


@native
def maximum_of_9_loop(call: Maximum) -> None:
    """`maximum_loop` for windows of 3 x 3 that each contain at least one element of the data."""
    channels, height, width, data = call.channels, call.height, call.width, call.data
    windows_y, windows_x = call.windows_y, call.windows_x
    for line, _, begin, size in runs_of_task(call.batch * windows_y, windows_x):
        start, first_y = line * windows_x, line % windows_y * call.stride_y - call.pad_y
        image = line // windows_y * height
        for window in each(begin, begin + size):
            # A position outside the data is replaced by the nearest one inside: reading an element
            # of the window twice does not change the maximum.
            first_x = (window - start) * call.stride_x - call.pad_x
            x = max(first_x, 0)
            second_x, third_x = min(max(first_x + 1, 0), width - 1), min(first_x + 2, width - 1)
            for c in range(0, channels, 16):
                count = channels - c
                best, winner = lanes(np.float32(0)), lanes(0)
                for k in range(3):
                    y = min(max(first_y + k, 0), height - 1)
                    row = (image + y) * width * channels + c
                    left = load_lanes(data, row + x * channels, count)
                    middle = load_lanes(data, row + second_x * channels, count)
                    right = load_lanes(data, row + third_x * channels, count)
                    beyond = exceeds(middle, left)
                    left = choose(beyond, middle, left)
                    number = choose(beyond, lanes(second_x - first_x), lanes(x - first_x))
                    beyond = exceeds(right, left)
                    left = choose(beyond, right, left)
                    number = choose(beyond, lanes(third_x - first_x), number)
                    number = add_lanes(number, lanes((y - first_y) * 3))
                    under = exceeds(left, best)
                    best = left if k == 0 else choose(under, left, best)
                    winner = number if k == 0 else choose(under, number, winner)
                to = window * channels + c
                store_lanes(call.output, to, best, count)
                if call.winners is not None:
                    store_lanes(call.winners, to, winner, count)
