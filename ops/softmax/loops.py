"""Softmax of rows, its logarithm and their gradients as compiled loops in float32.

Sums are in 64 lanes within blocks of a row, and the blocks are added in float64. Nothing depends on
the team size.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from mxrun.codegen.arguments import Arguments, Float32s, Integer
from mxrun.codegen.jit import inlined, native, share
from mxrun.codegen.vectors import (
    LANES,
    add_lanes,
    exp2_lanes,
    keep_lanes,
    lanes,
    largest_lane,
    load_lanes,
    maximum_lanes,
    multiply_lanes,
    store_lanes,
    subtract_lanes,
    sum_lanes,
)

# Elements of a row that are summed in float32.
_BLOCK = 2048
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
def exponential_sum(
    call: Arguments, at: int, columns: int, shift: Any, exponentials_at: Any
) -> Any:
    """Return the float64 sum of a row's exponentials.

    exponentials_at(call, at, shift, count): returns a vector of them.
    """
    total = 0.0
    for first in range(0, columns, _BLOCK):
        here, count = at + first, min(columns - first, _BLOCK)
        steps, full = count // _STEP * _STEP, count // LANES * LANES
        a, b, c, d = lanes(0.0), lanes(0.0), lanes(0.0), lanes(0.0)
        for j in range(here, here + steps, _STEP):
            a = add_lanes(a, exponentials_at(call, j, shift, LANES))
            b = add_lanes(b, exponentials_at(call, j + LANES, shift, LANES))
            c = add_lanes(c, exponentials_at(call, j + 2 * LANES, shift, LANES))
            d = add_lanes(d, exponentials_at(call, j + 3 * LANES, shift, LANES))
        for j in range(here + steps, here + full, LANES):
            a = add_lanes(a, exponentials_at(call, j, shift, LANES))
        total += sum_lanes(add_lanes(add_lanes(a, b), add_lanes(c, d)), LANES)
        if full < count:
            rest = count - full
            total += sum_lanes(exponentials_at(call, here + full, shift, rest), rest)
    return total


@native
def softmax_loop(call: SoftmaxRows) -> None:
    """output = exp(data - max) / sum exp(data - max), or its logarithm."""
    columns = call.columns
    # share() splits at multiples of 16, so each row counts as 16 elements.
    begin, end = share(call.rows * 16)
    for row in range(begin // 16, end // 16):
        at = row * columns
        shift = lanes(row_maximum(call.data, at, columns))
        total = exponential_sum(call, at, columns, shift, shifted)
        if call.is_logarithm:
            logarithm = lanes(np.float32(math.log(total)))
            for j in range(0, columns, LANES):
                vector = subtract_lanes(load_lanes(call.data, at + j, columns - j), shift)
                store_lanes(call.output, at + j, subtract_lanes(vector, logarithm), columns - j)
        else:
            factor = lanes(np.float32(1 / total))
            for j in range(0, columns, LANES):
                vector = multiply_lanes(load_lanes(call.output, at + j, columns - j), factor)
                store_lanes(call.output, at + j, vector, columns - j)


class SoftmaxRowGradients(Arguments):
    """Output, its gradient and data's gradient [rows, columns]; the latter may overwrite either."""

    rows: Integer
    columns: Integer
    output: Float32s
    grad: Float32s
    data_grad: Float32s
    is_logarithm: Integer


@inlined
def gradient_term(call: SoftmaxRowGradients, at: int, count: int) -> Any:
    """Return a vector of the row's sum: the gradient, or its product with the output."""
    vector = load_lanes(call.grad, at, count)
    if call.is_logarithm == 0:
        vector = multiply_lanes(vector, load_lanes(call.output, at, count))
    return vector


@inlined
def gradient_sum(call: SoftmaxRowGradients, at: int) -> Any:
    """Return the float64 sum of a row's terms."""
    total = 0.0
    for first in range(0, call.columns, _BLOCK):
        here, count = at + first, min(call.columns - first, _BLOCK)
        steps, full = count // _STEP * _STEP, count // LANES * LANES
        a, b, c, d = lanes(0.0), lanes(0.0), lanes(0.0), lanes(0.0)
        for j in range(here, here + steps, _STEP):
            a = add_lanes(a, gradient_term(call, j, LANES))
            b = add_lanes(b, gradient_term(call, j + LANES, LANES))
            c = add_lanes(c, gradient_term(call, j + 2 * LANES, LANES))
            d = add_lanes(d, gradient_term(call, j + 3 * LANES, LANES))
        for j in range(here + steps, here + full, LANES):
            a = add_lanes(a, gradient_term(call, j, LANES))
        if full < count:
            b = add_lanes(b, gradient_term(call, here + full, count - full))
        total += sum_lanes(add_lanes(add_lanes(a, b), add_lanes(c, d)), LANES)
    return total


@native
def softmax_gradient_rows_loop(call: SoftmaxRowGradients) -> None:
    """data_grad = output * (grad - sum(grad * output)), or grad - exp(output) * sum(grad)."""
    columns = call.columns
    begin, end = share(call.rows * 16)
    for row in range(begin // 16, end // 16):
        at = row * columns
        total = lanes(np.float32(gradient_sum(call, at)))
        for j in range(0, columns, LANES):
            count = columns - j
            grad, output = (
                load_lanes(call.grad, at + j, count),
                load_lanes(call.output, at + j, count),
            )
            if call.is_logarithm:
                vector = subtract_lanes(grad, multiply_lanes(exponentials(output), total))
            else:
                vector = multiply_lanes(subtract_lanes(grad, total), output)
            store_lanes(call.data_grad, at + j, vector, count)
