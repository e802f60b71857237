"""Softmax of rows, its logarithm and their gradients as compiled loops in float32.

Nothing depends on the tasks.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from mxrun.codegen.arguments import Arguments, Float32s, Integer
from mxrun.codegen.jit import compact, inlined
from mxrun.codegen.loops import rows_of_task, vectors
from mxrun.codegen.vectors import (
    exp2_lanes,
    fetch,
    lanes,
    load_lanes,
    multiply_lanes,
    store_lanes,
    subtract_lanes,
)
from mxrun.ops.row_reduction import row_maximum, row_sum

LOG2_E = math.log2(math.e)


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
    return exp2_lanes(multiply_lanes(vector, lanes(np.float32(LOG2_E))))


@inlined
def shifted(call: SoftmaxRows, j: int, shift: Any, count: int) -> Any:
    """Return exponentials of data minus a shift; softmax stores them."""
    vector = exponentials(subtract_lanes(load_lanes(call.data, j, count), shift))
    if call.is_logarithm == 0:
        store_lanes(call.output, j, vector, count)
    return vector


@compact
def softmax_loop(call: SoftmaxRows) -> None:
    """output = exp(data - max) / sum exp(data - max), or its logarithm."""
    columns = call.columns
    for row in rows_of_task(call.rows):
        at, end = row * columns, row * columns + columns
        shift = lanes(row_maximum(at, end, lambda j, count: load_lanes(call.data, j, count)))
        total = row_sum(at, end, lambda j, count: shifted(call, j, shift, count))
        scale = lanes(np.float32(math.log(total) if call.is_logarithm else 1 / total))
        for j, count in vectors(at, end):
            if call.is_logarithm:
                vector = subtract_lanes(load_lanes(call.data, j, count), shift)
                vector = subtract_lanes(vector, scale)
            else:
                vector = multiply_lanes(load_lanes(call.output, j, count), scale)
            store_lanes(call.output, j, vector, count)


class SoftmaxRowGradients(Arguments):
    """Output, its gradient and data's gradient [rows, columns]; the latter may overwrite either."""

    rows: Integer
    columns: Integer
    output: Float32s
    grad: Float32s
    data_grad: Float32s
    is_logarithm: Integer


@inlined
def gradient_terms(call: SoftmaxRowGradients, j: int, count: int) -> Any:
    """Return a vector of the row's sum: the gradient, or its product with the output."""
    vector = load_lanes(call.grad, j, count)
    if call.is_logarithm == 0:
        vector = multiply_lanes(vector, load_lanes(call.output, j, count))
    return vector


@compact
def softmax_gradient_rows_loop(call: SoftmaxRowGradients) -> None:
    """data_grad = output * (grad - sum(grad * output)), or grad - exp(output) * sum(grad)."""
    columns = call.columns
    for row in rows_of_task(call.rows):
        at, end = row * columns, row * columns + columns
        total = row_sum(at, end, lambda j, count: gradient_terms(call, j, count))
        total_lanes = lanes(np.float32(total))
        for j, count in vectors(at, end):
            grad, output = load_lanes(call.grad, j, count), load_lanes(call.output, j, count)
            if call.is_logarithm:
                # The next row's sum waits for nothing else: 700 rows of 10,000 take a fifth less
                # time. Softmax's, which reads two tensors, gains nothing.
                fetch(call.grad, j + columns)
                vector = subtract_lanes(grad, multiply_lanes(exponentials(output), total_lanes))
            else:
                vector = multiply_lanes(subtract_lanes(grad, total_lanes), output)
            store_lanes(call.data_grad, j, vector, count)
