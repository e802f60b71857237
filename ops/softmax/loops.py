"""Softmax of rows, its logarithm and their gradients as compiled loops in float32.

Nothing depends on the tasks.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from mxrun.codegen.arguments import Arguments, Float32s, Integer
from mxrun.codegen.intrinsics import share
from mxrun.codegen.jit import inlined, native
from mxrun.codegen.vectors import (
    LANES,
    exp2_lanes,
    fetch,
    keep_lanes,
    lanes,
    largest_lane,
    load_lanes,
    maximum_lanes,
    multiply_lanes,
    store_lanes,
    subtract_lanes,
)
from mxrun.ops.row_sum import row_sum

# Elements of one iteration: four vectors whose results do not depend on each other.
_STEP = 4 * LANES
_LOG2_E = math.log2(math.e)


class SoftmaxRows(Arguments):
    """Data and output [rows, columns]; the output may overwrite data."""

    rows: Integer
    columns: Integer
    data: Float32s
    output: Float32s
    is_logarithm: Integer


@inlined
def exponentials(vector: Any) -> Any:
    """Return e to the power of each lane."""
    return exp2_lanes(multiply_lanes(vector, lanes(np.float32(_LOG2_E))))


@inlined
def row_maximum(data: Any, at: int, columns: int) -> Any:
    """Return the largest element of a row; NaN is passed over."""
    steps, full = columns // _STEP * _STEP, columns // LANES * LANES
    low = lanes(np.float32(-math.inf))
    a, b, c, d = low, low, low, low
    for j in range(at, at + steps, _STEP):
        a = maximum_lanes(load_lanes(data, j, LANES), a)
        b = maximum_lanes(load_lanes(data, j + LANES, LANES), b)
        c = maximum_lanes(load_lanes(data, j + 2 * LANES, LANES), c)
        d = maximum_lanes(load_lanes(data, j + 3 * LANES, LANES), d)
    for j in range(at + steps, at + full, LANES):
        a = maximum_lanes(load_lanes(data, j, LANES), a)
    if full < columns:
        rest = columns - full
        b = maximum_lanes(keep_lanes(load_lanes(data, at + full, rest), rest, low), b)
    return largest_lane(maximum_lanes(maximum_lanes(a, b), maximum_lanes(c, d)))


@inlined
def shifted(call: SoftmaxRows, at: int, shift: Any, count: int) -> Any:
    """Return exponentials of data minus a shift; softmax stores them."""
    vector = exponentials(subtract_lanes(load_lanes(call.data, at, count), shift))
    if call.is_logarithm == 0:
        store_lanes(call.output, at, vector, count)
    return vector


@inlined
def write_output(call: SoftmaxRows, at: int, shift: Any, scale: Any, count: int) -> None:
    """Write a vector: data minus shift and scale, or the stored exponentials times scale."""
    if call.is_logarithm:
        vector = subtract_lanes(load_lanes(call.data, at, count), shift)
        vector = subtract_lanes(vector, scale)
    else:
        vector = multiply_lanes(load_lanes(call.output, at, count), scale)
    store_lanes(call.output, at, vector, count)


@native
def softmax_loop(call: SoftmaxRows) -> None:
    """output = exp(data - max) / sum exp(data - max), or its logarithm."""
    columns = call.columns
    full = columns // LANES * LANES
    # share() splits at multiples of 16, so each row counts as 16 elements.
    begin, end = share(call.rows * 16)
    for row in range(begin // 16, end // 16):
        at = row * columns
        shift = lanes(row_maximum(call.data, at, columns))
        total = row_sum(call, at, columns, shift, shifted)
        scale = lanes(np.float32(math.log(total) if call.is_logarithm else 1 / total))
        for j in range(at, at + full, LANES):
            write_output(call, j, shift, scale, LANES)
        if full < columns:
            write_output(call, at + full, shift, scale, columns - full)


class SoftmaxRowGradients(Arguments):
    """Output, its gradient and data's gradient [rows, columns]; the latter may overwrite either."""

    rows: Integer
    columns: Integer
    output: Float32s
    grad: Float32s
    data_grad: Float32s
    is_logarithm: Integer


@inlined
def gradient_terms(call: SoftmaxRowGradients, at: int, shift: Any, count: int) -> Any:
    """Return a vector of the row's sum: the gradient, or its product with the output; no shift."""
    vector = load_lanes(call.grad, at, count)
    if call.is_logarithm == 0:
        vector = multiply_lanes(vector, load_lanes(call.output, at, count))
    return vector


@inlined
def write_gradient(call: SoftmaxRowGradients, at: int, total: Any, count: int) -> None:
    """Write a vector of data's gradient."""
    grad, output = load_lanes(call.grad, at, count), load_lanes(call.output, at, count)
    if call.is_logarithm:
        vector = subtract_lanes(grad, multiply_lanes(exponentials(output), total))
    else:
        vector = multiply_lanes(subtract_lanes(grad, total), output)
    store_lanes(call.data_grad, at, vector, count)


@native
def softmax_gradient_rows_loop(call: SoftmaxRowGradients) -> None:
    """data_grad = output * (grad - sum(grad * output)), or grad - exp(output) * sum(grad)."""
    columns = call.columns
    full = columns // LANES * LANES
    begin, end = share(call.rows * 16)
    for row in range(begin // 16, end // 16):
        at = row * columns
        total = lanes(np.float32(row_sum(call, at, columns, lanes(0.0), gradient_terms)))
        for j in range(at, at + full, LANES):
            if call.is_logarithm:
                # The next row's sum waits for nothing else: 700 rows of 10,000 take a fifth less
                # time. Softmax's, which reads two tensors, gains nothing.
                fetch(call.grad, j + columns)
            write_gradient(call, j, total, LANES)
        if full < columns:
            write_gradient(call, at + full, total, columns - full)
