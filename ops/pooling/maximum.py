"""Maxima over windows as compiled loops on channels-last memory.

Tensors have three spatial axes, as in `ops/pooling/sum.py`. The arguments are `window_arguments`,
then the input tensor, the output tensor, the winners and the bytes per winner. Unlike in oneDNN,
the maximum of a window with NaN is NaN, and the first NaN is the winner.

The common windows 2 x 2 and 3 x 3 have specialised loops, which give the same bits. Every loop
exists for float32 and for bfloat16 memory.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from mxrun.backend.jit import (
    Block,
    NativeCode,
    NativeFunction,
    bfloat16s,
    float32s,
    inlined,
    int32s,
    integer,
    native,
    share,
    uint8s,
)
from mxrun.backend.vectors import (
    add_lanes,
    choose,
    exceeds,
    lanes,
    load_lanes,
    store_lanes,
)
from mxrun.base.dtype import BFLOAT16, FLOAT32
from mxrun.base.tensor import TensorSpec
from mxrun.ops.window import Window

LOWEST = float(np.finfo(np.float32).min)


def winner_bytes(window: Window) -> int:
    """Return the bytes of an element's index in its window."""
    return 1 if math.prod(window.kernel) <= 256 else 4


def maximum_code(data: TensorSpec, output: TensorSpec, window: Window) -> NativeCode:
    """Return the loop for a geometry, for tensors of data's dtype."""
    loops = LOOPS[data.dtype]
    if window.kernel == (2, 2) and not any(window.pad) and not _overhang(data, output, window):
        return loops.of_4
    if window.kernel == (3, 3) and _touching(data, output, window):
        return loops.of_9
    return loops.any


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


@inlined
def find_maxima(block: Block, data: Any, output: Any) -> None:
    """output[n, y, c] = first maximum of data[n, x, c] over the x in window y.

    winners[n, y, c] = its row-major index in the window, in 1 or 4 bytes; 0 bytes: not requested. A
    window entirely outside the data gives the lowest finite number.
    """
    channels = integer(block, 1)
    depth, height, width = integer(block, 2), integer(block, 3), integer(block, 4)
    windows_z, windows_y, windows_x = integer(block, 5), integer(block, 6), integer(block, 7)
    kernel_y, kernel_x = integer(block, 9), integer(block, 10)
    stride_x, pad_x = integer(block, 13), integer(block, 16)
    bytes_, integers, winner_bytes = uint8s(block, 23), int32s(block, 23), integer(block, 24)
    begin, end = share(block, integer(block, 0) * windows_z * windows_y * windows_x)
    if begin >= end:
        return
    for line in range(begin // windows_x, (end - 1) // windows_x + 1):
        plane = line // windows_y
        image = plane // windows_z * depth
        first_z = plane % windows_z * integer(block, 11) - integer(block, 14)
        first_y = line % windows_y * integer(block, 12) - integer(block, 15)
        begin_z, end_z = max(first_z, 0), min(first_z + integer(block, 8), depth)
        begin_y, end_y = max(first_y, 0), min(first_y + kernel_y, height)
        start = line * windows_x
        for window in range(max(begin, start), min(end, start + windows_x)):
            first_x = (window - start) * stride_x - pad_x
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
                            value = load_lanes(data, (row + x) * channels + c, count)
                            larger_here = exceeds(value, best)
                            best = choose(larger_here, value, best)
                            winner = choose(larger_here, lanes(number + x), winner)
                to = window * channels + c
                store_lanes(output, to, best, count)
                if winner_bytes == 1:
                    store_lanes(bytes_, to, winner, count)
                elif winner_bytes == 4:
                    store_lanes(integers, to, winner, count)


@native
def maximum_loop(block: Block) -> None:
    """`find_maxima` in float32."""
    find_maxima(block, float32s(block, 21), float32s(block, 22))


@native
def maximum_bfloat16_loop(block: Block) -> None:
    """`find_maxima` in bfloat16."""
    find_maxima(block, bfloat16s(block, 21), bfloat16s(block, 22))


@inlined
def find_maxima_of_4(block: Block, data: Any, output: Any) -> None:
    """`find_maxima` for windows of 2 x 2 that are entirely inside the data."""
    channels, windows_y, windows_x = integer(block, 1), integer(block, 6), integer(block, 7)
    height, row = integer(block, 3), integer(block, 4) * channels
    stride_y, stride_x = integer(block, 12), integer(block, 13)
    winners = uint8s(block, 23)
    storing = integer(block, 24)
    begin, end = share(block, integer(block, 0) * windows_y * windows_x)
    if begin >= end:
        return
    for line in range(begin // windows_x, (end - 1) // windows_x + 1):
        start = line * windows_x
        first = (line // windows_y * height + line % windows_y * stride_y) * row
        for window in range(max(begin, start), min(end, start + windows_x)):
            at = first + (window - start) * stride_x * channels
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
                store_lanes(output, to, choose(under, lower, upper), count)
                if storing:
                    winner = choose(below, lanes(3), lanes(2))
                    winner = choose(under, winner, choose(above, lanes(1), lanes(0)))
                    store_lanes(winners, to, winner, count)


@native
def maximum_of_4_loop(block: Block) -> None:
    """`find_maxima_of_4` in float32."""
    find_maxima_of_4(block, float32s(block, 21), float32s(block, 22))


@native
def maximum_of_4_bfloat16_loop(block: Block) -> None:
    """`find_maxima_of_4` in bfloat16."""
    find_maxima_of_4(block, bfloat16s(block, 21), bfloat16s(block, 22))


@inlined
def find_maxima_of_9(block: Block, data: Any, output: Any) -> None:
    """`find_maxima` for windows of 3 x 3 that each contain at least one element of the data."""
    channels, windows_y, windows_x = integer(block, 1), integer(block, 6), integer(block, 7)
    height, width = integer(block, 3), integer(block, 4)
    stride_y, stride_x, pad_y = integer(block, 12), integer(block, 13), integer(block, 15)
    winners = uint8s(block, 23)
    pad_x, storing = integer(block, 16), integer(block, 24)
    begin, end = share(block, integer(block, 0) * windows_y * windows_x)
    if begin >= end:
        return
    for line in range(begin // windows_x, (end - 1) // windows_x + 1):
        start, first_y = line * windows_x, line % windows_y * stride_y - pad_y
        image = line // windows_y * height
        for window in range(max(begin, start), min(end, start + windows_x)):
            # A position outside the data is replaced by the nearest one inside: reading an element
            # of the window twice does not change the maximum.
            first_x = (window - start) * stride_x - pad_x
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
                store_lanes(output, to, best, count)
                if storing:
                    store_lanes(winners, to, winner, count)


@native
def maximum_of_9_loop(block: Block) -> None:
    """`find_maxima_of_9` in float32."""
    find_maxima_of_9(block, float32s(block, 21), float32s(block, 22))


@native
def maximum_of_9_bfloat16_loop(block: Block) -> None:
    """`find_maxima_of_9` in bfloat16."""
    find_maxima_of_9(block, bfloat16s(block, 21), bfloat16s(block, 22))


@dataclass(frozen=True)
class MaximumLoops:
    """Loops for tensors of one dtype: for any window, for 2 x 2 and for 3 x 3."""

    any: NativeFunction
    of_4: NativeFunction
    of_9: NativeFunction


LOOPS = {
    FLOAT32: MaximumLoops(maximum_loop, maximum_of_4_loop, maximum_of_9_loop),
    BFLOAT16: MaximumLoops(
        maximum_bfloat16_loop, maximum_of_4_bfloat16_loop, maximum_of_9_bfloat16_loop
    ),
}
