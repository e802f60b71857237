"""Gradients of maxima over windows as compiled loops on channels-last memory.

The output's gradient and the winners found by the loops in `ops/pooling/maximum.py` are read,
data's gradient is written or added to. Sums are float32 and are rounded once for bfloat16 memory.
The common windows 2 x 2 and 3 x 3 have specialised loops, which give the same bits.
"""

from __future__ import annotations

import types
from typing import Any

import numpy as np

from mxrun.base.tensor import TensorSpec
from mxrun.codegen.arguments import Floats
from mxrun.codegen.intrinsics import each
from mxrun.codegen.jit import NativeCode, NativeFunction, compact, inlined
from mxrun.codegen.loops import runs_of_task, vectors
from mxrun.codegen.vectors import (
    add_lanes,
    choose,
    equals,
    lanes,
    load_lanes,
    store_lanes,
)
from mxrun.ops.pooling.maximum import WindowWinners, of_dtype
from mxrun.ops.window import Window


def maximum_gradient_code(
    data: TensorSpec, output: TensorSpec, window: Window, adds: bool
) -> NativeCode:
    """Return the loop for a geometry and data's dtype; with `adds` it adds to the gradient."""
    sizes = zip(output.shape[2:], data.shape[2:], strict=True)
    tiles = all(2 * count == size for count, size in sizes)
    loop = maximum_gradient_loop
    if window.kernel == window.stride == (2, 2) and not any(window.pad) and tiles:
        loop = maximum_of_4_gradient_loop
    elif window.kernel == (3, 3):
        loop = maximum_of_9_gradient_loop
    return of_dtype(_ADDING[loop] if adds else loop, data)


class MaximumGradient(WindowWinners):
    """Arguments of the loops that pass gradients to the winners."""

    out_grad: Floats
    gradient: Floats


@inlined
def held_winners(call: MaximumGradient, at: int, count: int) -> Any:
    """Load winners of one byte or of four."""
    if call.winners is not None:
        return load_lanes(call.winners, at, count)
    return load_lanes(call.wide_winners, at, count)


@inlined
def write_vector(gradient: Any, at: int, value: Any, count: int) -> None:
    """Write a vector."""
    store_lanes(gradient, at, value, count)


@inlined
def add_vector(gradient: Any, at: int, value: Any, count: int) -> None:
    """Add a vector to the memory, after the rounding that a write performs."""
    before = load_lanes(gradient, at, count)
    store_lanes(gradient, at, value, count)
    store_lanes(gradient, at, add_lanes(before, load_lanes(gradient, at, count)), count)


@compact
def maximum_gradient_loop(call: MaximumGradient) -> None:
    """gradient[n, x, c] = sum of out_grad[n, y, c] over the windows y whose winner is x.

    Every position gathers from its windows in row-major order.
    """
    channels, depth, height, width = call.channels, call.depth, call.height, call.width
    windows_z, windows_y, windows_x = call.windows_z, call.windows_y, call.windows_x
    kernel_z, stride_z = call.kernel_z, call.stride_z
    kernel_y, stride_y = call.kernel_y, call.stride_y
    kernel_x, stride_x, pad_x = call.kernel_x, call.stride_x, call.pad_x
    for line, column, first, size in runs_of_task(call.batch * depth * height, width):
        # Positions relative to the start of the first window: window i begins at i * stride.
        plane = line // height
        z, y = plane % depth + call.pad_z, line % height + call.pad_y
        image = plane // depth * windows_z
        begin_z = max((z - kernel_z) // stride_z + 1, 0)
        begin_y = max((y - kernel_y) // stride_y + 1, 0)
        end_z, end_y = min(z // stride_z + 1, windows_z), min(y // stride_y + 1, windows_y)
        # The windows with x are begin_x <= window < end_x; both only increase along the line.
        begin_x = max((column + pad_x - kernel_x) // stride_x + 1, 0)
        end_x = min((column + pad_x) // stride_x + 1, windows_x)
        for pixel in range(first, first + size):
            x = pixel - first + column + pad_x
            if begin_x * stride_x + kernel_x <= x:
                begin_x += 1
            if end_x < windows_x and end_x * stride_x <= x:
                end_x += 1
            for c in range(0, channels, 16):
                total, count = lanes(np.float32(0)), channels - c
                for i in range(begin_z, end_z):
                    for j in range(begin_y, end_y):
                        number = ((z - i * stride_z) * kernel_y + y - j * stride_y) * kernel_x + x
                        row = ((image + i) * windows_y + j) * windows_x
                        for window in range(begin_x, end_x):
                            at = (row + window) * channels + c
                            winner = held_winners(call, at, count)
                            won = equals(winner, lanes(number - window * stride_x))
                            value = load_lanes(call.out_grad, at, count)
                            total = choose(won, add_lanes(total, value), total)
                write_vector(call.gradient, pixel * channels + c, total, count)


@compact
def maximum_of_4_gradient_loop(call: MaximumGradient) -> None:
    """`maximum_gradient_loop` for windows of 2 x 2 that tile the data."""
    channels, windows_x, row = call.channels, call.windows_x, call.width * call.channels
    for line, _, begin, size in runs_of_task(call.batch * call.windows_y, windows_x):
        start, nothing = line * windows_x, lanes(np.float32(0))
        for window in each(begin, begin + size):
            for c in range(0, channels, 16):
                count = channels - c
                value = load_lanes(call.out_grad, window * channels + c, count)
                winner = load_lanes(call.winners, window * channels + c, count)
                to = line * 2 * row + (window - start) * 2 * channels + c
                for k in range(4):
                    won = choose(equals(winner, lanes(k)), value, nothing)
                    to_won = to + k // 2 * row + k % 2 * channels
                    write_vector(call.gradient, to_won, won, count)


@inlined
def with_window(call: MaximumGradient, total: Any, at: int, number: int, count: int) -> Any:
    """Return total, plus out_grad of a window where its winner has this index."""
    won = equals(load_lanes(call.winners, at, count), lanes(number))
    return choose(won, add_lanes(total, load_lanes(call.out_grad, at, count)), total)


@inlined
def sum_of_four(
    call: MaximumGradient, at: int, right: int, below: int, sought: Any, count: int
) -> Any:
    """Return the sum over a window, its neighbours to the right and below, and the diagonal one.

    right, below: offsets of the neighbours. sought: the position's index in each window, or an
    index that no winner has.
    """
    total = lanes(np.float32(0))
    total = with_window(call, total, at, sought[0], count)
    total = with_window(call, total, at + right, sought[1], count)
    total = with_window(call, total, at + below, sought[2], count)
    return with_window(call, total, at + below + right, sought[3], count)


@inlined
def gather_from_four(
    call: MaximumGradient, to: int, at: int, rows: int, columns: int, first: int
) -> None:
    """`maximum_of_9_gradient_loop` for a position in at most two rows and columns of windows."""
    channels, no_position = call.channels, 9
    # A missing window is replaced by an existing one, with an index that no winner has.
    right, below = (columns - 1) * channels, (rows - 1) * call.windows_x * channels
    beside = first - call.stride_x if columns == 2 else no_position
    under = first - 3 * call.stride_y if rows == 2 else no_position
    last = under - call.stride_x if rows == 2 and columns == 2 else no_position
    sought = (first, beside, under, last)
    for c, count in vectors(0, channels):
        total = sum_of_four(call, at + c, right, below, sought, count)
        write_vector(call.gradient, to + c, total, count)


@inlined
def gather_from_all(
    call: MaximumGradient, to: int, at: int, rows: int, columns: int, first: int
) -> None:
    """`maximum_of_9_gradient_loop` for a position in any number of windows."""
    channels, step = call.channels, call.windows_x * call.channels
    for c in range(0, channels, 16):
        total, count = lanes(np.float32(0)), channels - c
        for j in range(rows):
            for i in range(columns):
                place = at + j * step + i * channels + c
                number = first - 3 * j * call.stride_y - i * call.stride_x
                total = with_window(call, total, place, number, count)
        write_vector(call.gradient, to + c, total, count)


@compact
def maximum_of_9_gradient_loop(call: MaximumGradient) -> None:
    """`maximum_gradient_loop` for windows of 3 x 3."""
    channels, height, width = call.channels, call.height, call.width
    windows_y, windows_x = call.windows_y, call.windows_x
    stride_y, stride_x, pad_x = call.stride_y, call.stride_x, call.pad_x
    for line, column, first, size in runs_of_task(call.batch * height, width):
        # Positions relative to the start of the first window: window i begins at i * stride.
        y = line % height + call.pad_y
        begin_y = max((y - 3) // stride_y + 1, 0)
        rows = min(y // stride_y + 1, windows_y) - begin_y
        row = (line // height * windows_y + begin_y) * windows_x
        # The windows with x are begin_x <= window < end_x; both only increase along the line.
        begin_x = max((column + pad_x - 3) // stride_x + 1, 0)
        end_x = min((column + pad_x) // stride_x + 1, windows_x)
        for pixel in range(first, first + size):
            x, to = pixel - first + column + pad_x, pixel * channels
            if begin_x * stride_x + 3 <= x:
                begin_x += 1
            if end_x < windows_x and end_x * stride_x <= x:
                end_x += 1
            at, columns = (row + begin_x) * channels, end_x - begin_x
            number = (y - begin_y * stride_y) * 3 + x - begin_x * stride_x
            if 1 <= rows <= 2 and 1 <= columns <= 2:
                gather_from_four(call, to, at, rows, columns, number)
            else:
                gather_from_all(call, to, at, rows, columns, number)


def _adding(loop: NativeFunction) -> NativeFunction:
    """Return a copy of the loop that adds its results to the memory: `add_vector` writes them."""
    scope = {**loop.body.__globals__, "write_vector": add_vector}
    name = loop.body.__name__.replace("gradient", "gradient_sum")
    body = types.FunctionType(loop.body.__code__, scope, name)
    body.__qualname__ = name
    body.__annotations__ = loop.body.__annotations__
    return compact(body)


_ADDING = {
    loop: _adding(loop)
    for loop in (maximum_gradient_loop, maximum_of_4_gradient_loop, maximum_of_9_gradient_loop)
}
