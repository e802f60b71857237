"""Gradients of maxima over windows as compiled loops on channels-last memory.

The arguments are those of the loops in `ops/pooling/maximum.py`: the output's gradient is read,
data's gradient is written or added to. Sums are float32 and are rounded once for bfloat16 memory.
The common windows 2 x 2 and 3 x 3 have specialised loops, which give the same bits.
"""

from __future__ import annotations

import types
from typing import Any

import numpy as np

from mxrun.backend.jit import (
    Block,
    InlinedFunction,
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
    equals,
    lanes,
    load_lanes,
    store_lanes,
)
from mxrun.base.dtype import BFLOAT16, FLOAT32
from mxrun.base.tensor import TensorSpec
from mxrun.ops.pooling.maximum import MaximumLoops
from mxrun.ops.window import Window


def maximum_gradient_code(
    data: TensorSpec, output: TensorSpec, window: Window, adds: bool
) -> NativeCode:
    """Return the loop for a geometry and data's dtype; with `adds` it adds to the gradient."""
    loops, sizes = LOOPS[adds][data.dtype], zip(output.shape[2:], data.shape[2:], strict=True)
    tiles = all(2 * count == size for count, size in sizes)
    if window.kernel == window.stride == (2, 2) and not any(window.pad) and tiles:
        return loops.of_4
    if window.kernel == (3, 3):
        return loops.of_9
    return loops.any


@inlined
def numbers(block: Block, index: int) -> Any:
    """Return argument `index` as float32 memory."""
    return float32s(block, index)


@inlined
def low_numbers(block: Block, index: int) -> Any:
    """Return argument `index` as bfloat16 memory."""
    return bfloat16s(block, index)


@inlined
def held_winners(bytes_: Any, integers: Any, size: int, at: int, count: int) -> Any:
    """Load winners of `size` bytes; both views are of the same memory."""
    if size == 1:
        return load_lanes(bytes_, at, count)
    return load_lanes(integers, at, count)


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


@native
def maximum_gradient_loop(block: Block) -> None:
    """gradient[n, x, c] = sum of out_grad[n, y, c] over the windows y whose winner is x.

    Every position gathers from its windows in row-major order.
    """
    channels = integer(block, 1)
    depth, height, width = integer(block, 2), integer(block, 3), integer(block, 4)
    windows_z, windows_y, windows_x = integer(block, 5), integer(block, 6), integer(block, 7)
    kernel_z, stride_z = integer(block, 8), integer(block, 11)
    kernel_y, stride_y = integer(block, 9), integer(block, 12)
    kernel_x, stride_x, pad_x = integer(block, 10), integer(block, 13), integer(block, 16)
    out_grad, gradient = numbers(block, 21), numbers(block, 22)
    bytes_, integers, winner_bytes = uint8s(block, 23), int32s(block, 23), integer(block, 24)
    begin, end = share(block, integer(block, 0) * depth * height * width)
    if begin >= end:
        return
    for line in range(begin // width, (end - 1) // width + 1):
        # Positions relative to the start of the first window: window i begins at i * stride.
        plane = line // height
        z, y = plane % depth + integer(block, 14), line % height + integer(block, 15)
        image = plane // depth * windows_z
        begin_z = max((z - kernel_z) // stride_z + 1, 0)
        begin_y = max((y - kernel_y) // stride_y + 1, 0)
        end_z, end_y = min(z // stride_z + 1, windows_z), min(y // stride_y + 1, windows_y)
        start = line * width
        first = max(begin, start)
        # The windows with x are begin_x <= window < end_x; both only increase along the line.
        begin_x = max((first - start + pad_x - kernel_x) // stride_x + 1, 0)
        end_x = min((first - start + pad_x) // stride_x + 1, windows_x)
        for pixel in range(first, min(end, start + width)):
            x = pixel - start + pad_x
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
                            winner = held_winners(bytes_, integers, winner_bytes, at, count)
                            won = equals(winner, lanes(number - window * stride_x))
                            value = load_lanes(out_grad, at, count)
                            total = choose(won, add_lanes(total, value), total)
                write_vector(gradient, pixel * channels + c, total, count)


def _with_functions(
    loop: NativeFunction, kind: str, **functions: InlinedFunction
) -> NativeFunction:
    """Return a copy of the loop with other functions for some names in its scope.

    A function shared by two native functions would be optimised separately first: its short loops
    would be unrolled and take one and a half times as long.
    """
    assert functions.keys() <= loop.body.__globals__.keys(), "no such function in the loop's scope"
    scope = {**loop.body.__globals__, **functions}
    name = loop.body.__name__.replace("gradient", f"gradient_{kind}")
    body = types.FunctionType(loop.body.__code__, scope, name)
    body.__qualname__ = name
    return native(body)


maximum_gradient_bfloat16_loop = _with_functions(
    maximum_gradient_loop, "bfloat16", numbers=low_numbers
)


@inlined
def give_to_winners_of_4(block: Block, out_grad: Any, gradient: Any) -> None:
    """`maximum_gradient_loop` for windows of 2 x 2 that tile the data."""
    channels, windows_x = integer(block, 1), integer(block, 7)
    row = integer(block, 4) * channels
    winners = uint8s(block, 23)
    begin, end = share(block, integer(block, 0) * integer(block, 6) * windows_x)
    if begin >= end:
        return
    for line in range(begin // windows_x, (end - 1) // windows_x + 1):
        start, nothing = line * windows_x, lanes(np.float32(0))
        for window in range(max(begin, start), min(end, start + windows_x)):
            for c in range(0, channels, 16):
                count = channels - c
                value = load_lanes(out_grad, window * channels + c, count)
                winner = load_lanes(winners, window * channels + c, count)
                to = line * 2 * row + (window - start) * 2 * channels + c
                for k in range(4):
                    won = choose(equals(winner, lanes(k)), value, nothing)
                    write_vector(gradient, to + k // 2 * row + k % 2 * channels, won, count)


@native
def maximum_of_4_gradient_loop(block: Block) -> None:
    """`give_to_winners_of_4` in float32."""
    give_to_winners_of_4(block, float32s(block, 21), float32s(block, 22))


@native
def maximum_of_4_gradient_bfloat16_loop(block: Block) -> None:
    """`give_to_winners_of_4` in bfloat16."""
    give_to_winners_of_4(block, bfloat16s(block, 21), bfloat16s(block, 22))


@inlined
def with_window(total: Any, winners: Any, out_grad: Any, at: int, number: int, count: int) -> Any:
    """Return total, plus out_grad of a window where its winner has this index."""
    won = equals(load_lanes(winners, at, count), lanes(number))
    return choose(won, add_lanes(total, load_lanes(out_grad, at, count)), total)


@inlined
def sum_of_four(
    winners: Any, out_grad: Any, at: int, right: int, below: int, sought: Any, count: int
) -> Any:
    """Return the sum over a window, its neighbours to the right and below, and the diagonal one.

    right, below: offsets of the neighbours. sought: the position's index in each window, or an
    index that no winner has.
    """
    total = lanes(np.float32(0))
    total = with_window(total, winners, out_grad, at, sought[0], count)
    total = with_window(total, winners, out_grad, at + right, sought[1], count)
    total = with_window(total, winners, out_grad, at + below, sought[2], count)
    return with_window(total, winners, out_grad, at + below + right, sought[3], count)


@inlined
def gather_from_four(
    block: Block,
    out_grad: Any,
    gradient: Any,
    to: int,
    at: int,
    rows: int,
    columns: int,
    first: int,
) -> None:
    """`give_to_winners_of_9` for a position in at most two rows and columns of windows."""
    channels, winners = integer(block, 1), uint8s(block, 23)
    stride_y, stride_x, no_position = integer(block, 12), integer(block, 13), 9
    # A missing window is replaced by an existing one, with an index that no winner has.
    right, below = (columns - 1) * channels, (rows - 1) * integer(block, 7) * channels
    beside = first - stride_x if columns == 2 else no_position
    under = first - 3 * stride_y if rows == 2 else no_position
    last = under - stride_x if rows == 2 and columns == 2 else no_position
    sought, full = (first, beside, under, last), channels // 16 * 16
    # Complete vectors need no masks.
    for c in range(0, full, 16):
        total = sum_of_four(winners, out_grad, at + c, right, below, sought, 16)
        write_vector(gradient, to + c, total, 16)
    if full < channels:
        count = channels - full
        total = sum_of_four(winners, out_grad, at + full, right, below, sought, count)
        write_vector(gradient, to + full, total, count)


@inlined
def gather_from_all(
    block: Block,
    out_grad: Any,
    gradient: Any,
    to: int,
    at: int,
    rows: int,
    columns: int,
    first: int,
) -> None:
    """`give_to_winners_of_9` for a position in any number of windows."""
    channels, winners = integer(block, 1), uint8s(block, 23)
    stride_y, stride_x, step = integer(block, 12), integer(block, 13), integer(block, 7) * channels
    for c in range(0, channels, 16):
        total, count = lanes(np.float32(0)), channels - c
        for j in range(rows):
            for i in range(columns):
                place, number = (
                    at + j * step + i * channels + c,
                    first - 3 * j * stride_y - i * stride_x,
                )
                total = with_window(total, winners, out_grad, place, number, count)
        write_vector(gradient, to + c, total, count)


@inlined
def give_to_winners_of_9(block: Block, out_grad: Any, gradient: Any) -> None:
    """`maximum_gradient_loop` for windows of 3 x 3."""
    channels, windows_y, windows_x = integer(block, 1), integer(block, 6), integer(block, 7)
    height, width, pad_x = integer(block, 3), integer(block, 4), integer(block, 16)
    stride_y, stride_x = integer(block, 12), integer(block, 13)
    begin, end = share(block, integer(block, 0) * height * width)
    if begin >= end:
        return
    for line in range(begin // width, (end - 1) // width + 1):
        # Positions relative to the start of the first window: window i begins at i * stride.
        start, y = line * width, line % height + integer(block, 15)
        begin_y = max((y - 3) // stride_y + 1, 0)
        rows = min(y // stride_y + 1, windows_y) - begin_y
        row = (line // height * windows_y + begin_y) * windows_x
        first = max(begin, start)
        # The windows with x are begin_x <= window < end_x; both only increase along the line.
        begin_x = max((first - start + pad_x - 3) // stride_x + 1, 0)
        end_x = min((first - start + pad_x) // stride_x + 1, windows_x)
        for pixel in range(first, min(end, start + width)):
            x, to = pixel - start + pad_x, pixel * channels
            if begin_x * stride_x + 3 <= x:
                begin_x += 1
            if end_x < windows_x and end_x * stride_x <= x:
                end_x += 1
            at, columns = (row + begin_x) * channels, end_x - begin_x
            number = (y - begin_y * stride_y) * 3 + x - begin_x * stride_x
            if 1 <= rows <= 2 and 1 <= columns <= 2:
                gather_from_four(block, out_grad, gradient, to, at, rows, columns, number)
            else:
                gather_from_all(block, out_grad, gradient, to, at, rows, columns, number)


@native
def maximum_of_9_gradient_loop(block: Block) -> None:
    """`give_to_winners_of_9` in float32."""
    give_to_winners_of_9(block, float32s(block, 21), float32s(block, 22))


@native
def maximum_of_9_gradient_bfloat16_loop(block: Block) -> None:
    """`give_to_winners_of_9` in bfloat16."""
    give_to_winners_of_9(block, bfloat16s(block, 21), bfloat16s(block, 22))


_WRITING = {
    FLOAT32: MaximumLoops(
        maximum_gradient_loop, maximum_of_4_gradient_loop, maximum_of_9_gradient_loop
    ),
    BFLOAT16: MaximumLoops(
        maximum_gradient_bfloat16_loop,
        maximum_of_4_gradient_bfloat16_loop,
        maximum_of_9_gradient_bfloat16_loop,
    ),
}


def _adding(loops: MaximumLoops) -> MaximumLoops:
    """Return the loops that add their results to the memory."""
    return MaximumLoops(
        *(
            _with_functions(loop, "sum", write_vector=add_vector)
            for loop in (loops.any, loops.of_4, loops.of_9)
        )
    )


# Indexed by whether they add, and by the tensors' dtype.
LOOPS = (_WRITING, {dtype: _adding(loops) for dtype, loops in _WRITING.items()})
