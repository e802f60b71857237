"""Normalisation of rows as compiled loops over float32 or bfloat16 tensors.

A row is read several times while it is in the L1 cache: for its mean, for its squared distances
from it, and for the output. All arithmetic is float32; the blocks of a row's sums are added in
float64. Nothing depends on the tasks.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mxrun.codegen.arguments import Arguments, Float32s, Float64s, Floats, Integer, Real
from mxrun.codegen.intrinsics import worker
from mxrun.codegen.jit import compact, inlined, native
from mxrun.codegen.loops import rows_of_task, vectors
from mxrun.codegen.vectors import (
    LANES,
    add_lanes,
    keep_lanes,
    lanes,
    load_lanes,
    multiply_lanes,
    store_lanes,
    stored_lanes,
    subtract_lanes,
    sum_lanes,
)
from mxrun.ops.column_sum import clear_sums
from mxrun.ops.row_reduction import row_sum
from mxrun.ops.rows import clear

# Elements of a row that are summed in float32, and rows whose columns are: float64 sums of every
# row would take half as long again.
_BLOCK = 2048
_FLOAT32_ROWS = 64


class NormalizedRows(Arguments):
    """Data [rows, columns], of which each row is normalised.

    gamma [columns]. mean: None if rows are not centred. deviation: sqrt(mean square + eps) of each
    row.
    """

    rows: Integer
    columns: Integer
    data: Floats
    gamma: Float32s
    mean: Float32s
    deviation: Float32s


@inlined
def squares(call: NormalizedRows, j: int, center: Any, count: int) -> Any:
    """Return a vector of squared distances from the center."""
    value = subtract_lanes(load_lanes(call.data, j, count), center)
    return multiply_lanes(value, value)


class RowNormalization(NormalizedRows):
    """Arguments of `normalize_rows_loop`.

    beta: None if nothing is added. output, mean, deviation: None if not requested. is_centered:
    whether the mean is subtracted. left, right: tensors whose sum is written to data before it is
    read; None if data is given.
    """

    beta: Float32s
    left: Floats
    right: Floats
    output: Floats
    epsilon: Real
    is_centered: Integer


@native
def normalize_rows_loop(call: RowNormalization) -> None:
    """output = (data - mean) / deviation * gamma + beta; it may overwrite data."""
    columns, data = call.columns, call.data
    for row in rows_of_task(call.rows):
        at, end, average = row * columns, row * columns + columns, np.float32(0)
        if call.left is not None:
            for j, count in vectors(at, end):
                left, right = load_lanes(call.left, j, count), load_lanes(call.right, j, count)
                store_lanes(data, j, add_lanes(left, right), count)
        if call.is_centered:
            total = row_sum(at, end, lambda j, count: load_lanes(data, j, count))
            average = np.float32(total / columns)
        center = lanes(average)
        square = row_sum(at, end, lambda j, count: squares(call, j, center, count)) / columns
        deviation = np.sqrt(square + np.float64(call.epsilon))
        factor = lanes(np.float32(1 / deviation))
        if call.output is not None:
            for j, count in vectors(0, columns):
                value = subtract_lanes(load_lanes(data, at + j, count), center)
                gamma = load_lanes(call.gamma, j, count)
                value = multiply_lanes(multiply_lanes(value, factor), gamma)
                if call.beta is not None:
                    value = add_lanes(value, load_lanes(call.beta, j, count))
                store_lanes(call.output, at + j, value, count)
        if call.mean is not None:
            call.mean[row] = average
        if call.deviation is not None:
            call.deviation[row] = deviation


class RowGradients(NormalizedRows):
    """Arguments of `row_gradients_loop`.

    data_grad: None if not requested; it may be data or grad, but if `is_added`, it shares no memory
    with other tensors. residual: a further gradient of data, which is added to it, or None. sums
    [blocks, 2, columns]: for gamma and beta, of `rows_per_block` rows each; None if neither
    gradient is requested. running: float32 sums [2, columns] of a few rows, for each thread.
    """

    grad: Floats
    residual: Floats
    data_grad: Floats
    is_added: Integer
    sums: Float64s
    running: Float32s
    blocks: Integer
    rows_per_block: Integer


@inlined
def normalized(call: RowGradients, at: int, center: Any, factor: Any, count: int) -> Any:
    """Return a vector of the normalised data."""
    return multiply_lanes(subtract_lanes(load_lanes(call.data, at, count), center), factor)


@inlined
def accumulate(sums: Any, at: int, count: int, vector: Any) -> None:
    """Add a vector to running sums."""
    store_lanes(sums, at, add_lanes(load_lanes(sums, at, count), vector), count)


@inlined
def add_gradients(
    call: RowGradients, at: int, j: int, own: int, center: Any, factor: Any, count: int
) -> tuple[Any, Any]:
    """Add a vector to the columns' running sums; return the terms of the row's two sums."""
    grad = load_lanes(call.grad, at + j, count)
    normal = normalized(call, at + j, center, factor, count)
    if call.sums is not None:
        accumulate(call.running, own + j, count, multiply_lanes(grad, normal))
        accumulate(call.running, own + call.columns + j, count, grad)
    scaled = multiply_lanes(grad, load_lanes(call.gamma, j, count))
    return scaled, multiply_lanes(scaled, normal)


@inlined
def gradient_means(
    call: RowGradients, at: int, own: int, center: Any, factor: Any
) -> tuple[Any, Any]:
    """Return the means over a row of g = grad * gamma and of g times the normalised data."""
    columns, first, second = call.columns, 0.0, 0.0
    for start in range(0, columns, _BLOCK):
        count = min(columns - start, _BLOCK)
        pairs, full = count // (2 * LANES) * 2 * LANES, count // LANES * LANES
        a, b, c, d = lanes(0.0), lanes(0.0), lanes(0.0), lanes(0.0)
        for j in range(start, start + pairs, 2 * LANES):
            x, y = add_gradients(call, at, j, own, center, factor, LANES)
            a, b = add_lanes(a, x), add_lanes(b, y)
            x, y = add_gradients(call, at, j + LANES, own, center, factor, LANES)
            c, d = add_lanes(c, x), add_lanes(d, y)
        if pairs < full:
            x, y = add_gradients(call, at, start + pairs, own, center, factor, LANES)
            a, b = add_lanes(a, x), add_lanes(b, y)
        if full < count:
            rest = count - full
            x, y = add_gradients(call, at, start + full, own, center, factor, rest)
            # Lanes beyond the last element are 0 where grad is a factor, but 0 times the distance
            # from a large center may be NaN.
            c, d = add_lanes(c, x), add_lanes(d, keep_lanes(y, rest, lanes(0.0)))
        first += sum_lanes(add_lanes(a, c), LANES)
        second += sum_lanes(add_lanes(b, d), LANES)
    return first / columns, second / columns


@inlined
def row_gradient(call: RowGradients, row: int, own: int) -> None:
    """Compute a row of data's gradient, and add the row to the running sums."""
    at, average, data_grad = row * call.columns, np.float32(0), call.data_grad
    if call.mean is not None:
        average = call.mean[row]
    center, factor = lanes(average), lanes(1 / call.deviation[row])
    first, second = gradient_means(call, at, own, center, factor)
    if data_grad is not None:
        subtracted, slope = lanes(first) if call.mean is not None else lanes(0.0), lanes(second)
        for j, count in vectors(0, call.columns):
            grad = load_lanes(call.grad, at + j, count)
            grad = multiply_lanes(grad, load_lanes(call.gamma, j, count))
            along = multiply_lanes(normalized(call, at + j, center, factor, count), slope)
            value = subtract_lanes(subtract_lanes(grad, subtracted), along)
            value = multiply_lanes(value, factor)
            if call.residual is not None:
                further = load_lanes(call.residual, at + j, count)
                value = add_lanes(stored_lanes(data_grad, value), further)
            if call.is_added:
                # It is added after the rounding that a write performs.
                before = load_lanes(data_grad, at + j, count)
                store_lanes(data_grad, at + j, value, count)
                value = add_lanes(before, load_lanes(data_grad, at + j, count))
            store_lanes(data_grad, at + j, value, count)


@inlined
def empty_running(call: RowGradients, own: int, to: int) -> None:
    """Add the running sums to those of a block, and clear them."""
    width = 2 * call.columns
    for j, count in vectors(0, width):
        before = load_lanes(call.sums, to + j, count)
        after = add_lanes(before, load_lanes(call.running, own + j, count))
        store_lanes(call.sums, to + j, after, count)
    clear(call.running, own, width)


@compact
def row_gradients_loop(call: RowGradients) -> None:
    """data_grad = (g - mean(g) - x mean(g x)) / deviation for g = grad * gamma, and partial sums.

    x is the normalised data. Rows that are not centred have no term mean(g).
    """
    columns = call.columns
    own = 2 * worker() * columns
    for block in rows_of_task(call.blocks):
        if call.sums is not None:
            clear_sums(call.sums, 2 * block * columns, 2 * columns)
            clear(call.running, own, 2 * columns)
        beyond = min((block + 1) * call.rows_per_block, call.rows)
        for start in range(block * call.rows_per_block, beyond, _FLOAT32_ROWS):
            for row in range(start, min(start + _FLOAT32_ROWS, beyond)):
                row_gradient(call, row, own)
            if call.sums is not None:
                empty_running(call, own, 2 * block * columns)
