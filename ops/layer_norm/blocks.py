"""Normalisation of wide rows as a block kernel, with the bits of the CPU's loop."""

from __future__ import annotations

from typing import Any

import numpy as np

from mxrun.codegen.block_function import block_of
from mxrun.codegen.blocks import threads
from mxrun.codegen.intrinsics import current_task
from mxrun.codegen.jit import inlined
from mxrun.ops.layer_norm.loops import NormalizedRows, RowNormalization
from mxrun.ops.row_blocks import THREADS, row_sum


@inlined
def square(call: NormalizedRows, j: int, center: Any) -> Any:
    """Return the squared distance from the center."""
    distance = call.data[j] - center
    return distance * distance


@block_of(THREADS)
def normalize_rows_block(call: RowNormalization) -> None:
    """output = (data - mean) / deviation * gamma + beta, of the task's row."""
    row, _ = current_task()
    at, end, average = row * call.columns, (row + 1) * call.columns, np.float32(0)
    if call.left is not None:
        for t in threads(THREADS):
            for j in range(at + t, end, THREADS):
                call.data[j] = call.left[j] + call.right[j]
    if call.is_centered:
        average = np.float32(row_sum(at, end, lambda j: call.data[j]) / call.columns)
    squares = row_sum(at, end, lambda j: square(call, j, average)) / call.columns
    deviation = np.sqrt(squares + np.float64(call.epsilon))
    factor = np.float32(1 / deviation)
    for t in threads(THREADS):
        if call.output is not None:
            for j in range(t, call.columns, THREADS):
                value = (call.data[at + j] - average) * factor * call.gamma[j]
                if call.beta is not None:
                    value += call.beta[j]
                call.output[at + j] = value
        if t == 0:
            if call.mean is not None:
                call.mean[row] = average
            if call.deviation is not None:
                call.deviation[row] = deviation
