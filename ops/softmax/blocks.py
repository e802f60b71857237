"""Softmax of wide rows, its logarithm and their gradients as block kernels, with the CPU's bits."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from mxrun.codegen.block_function import block_of
from mxrun.codegen.blocks import exp2, threads
from mxrun.codegen.intrinsics import current_task
from mxrun.codegen.jit import inlined
from mxrun.ops.row_blocks import THREADS, row_maximum, row_sum
from mxrun.ops.softmax.loops import LOG2_E, SoftmaxRowGradients, SoftmaxRows


@inlined
def exponential(value: Any) -> Any:
    """Return e to the power of a float32 number."""
    return exp2(value * np.float32(LOG2_E))


@inlined
def shifted(call: SoftmaxRows, j: int, shift: Any) -> Any:
    """Return the exponential of data minus a shift; softmax stores it."""
    value = exponential(call.data[j] - shift)
    if call.is_logarithm == 0:
        call.output[j] = value
    return value


@block_of(THREADS)
def softmax_block(call: SoftmaxRows) -> None:
    """output = exp(data - max) / sum exp(data - max), or its logarithm, of the task's row."""
    row, _ = current_task()
    at, end = row * call.columns, (row + 1) * call.columns
    shift = row_maximum(at, end, lambda j: call.data[j])
    total = row_sum(at, end, lambda j: shifted(call, j, shift))
    scale = np.float32(math.log(total) if call.is_logarithm else 1 / total)
    for t in threads(THREADS):
        for j in range(at + t, end, THREADS):
            if call.is_logarithm:
                call.output[j] = call.data[j] - shift - scale
            else:
                call.output[j] *= scale


@inlined
def gradient_term(call: SoftmaxRowGradients, j: int) -> Any:
    """Return a term of the row's sum: the gradient, or its product with the output."""
    value = call.grad[j]
    if call.is_logarithm == 0:
        value = value * call.output[j]
    return value


@block_of(THREADS)
def softmax_gradient_block(call: SoftmaxRowGradients) -> None:
    """data_grad = output * (grad - sum(grad * output)), or grad - exp(output) * sum(grad)."""
    row, _ = current_task()
    at, end = row * call.columns, (row + 1) * call.columns
    total = np.float32(row_sum(at, end, lambda j: gradient_term(call, j)))
    for t in threads(THREADS):
        for j in range(at + t, end, THREADS):
            if call.is_logarithm:
                call.data_grad[j] = call.grad[j] - exponential(call.output[j]) * total
            else:
                call.data_grad[j] = (call.grad[j] - total) * call.output[j]
