"""Loss and gradient of softmax_cross_entropy as compiled loops over rows.

Neither loop stores the probabilities: forward hands the maximum of each row and the sum of its
exponentials to backward, which computes the exponentials again.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from mxrun.codegen.arguments import Arguments, Float32s, Float64s, Integer, Real
from mxrun.codegen.jit import compact, inlined, native
from mxrun.codegen.loops import rows_of_task, vectors
from mxrun.codegen.vectors import (
    lanes,
    load_lanes,
    multiply_lanes,
    store_lanes,
    subtract_lanes,
    sum_lanes,
)
from mxrun.ops.labelled_rows import LabelledRows, weight_of
from mxrun.ops.row_reduction import row_maximum, row_sum
from mxrun.ops.rows import clear
from mxrun.ops.softmax.loops import exponentials

# Lower bound on probabilities before the logarithm (MXNet's), as an upper bound on entropies.
_MAX_ENTROPY = -math.log(1e-8)


class LabelledData(LabelledRows):
    """Data [samples, classes]; statistics [samples, 2]: maximum and sum of exponentials of rows."""

    data: Float32s
    statistics: Float32s


@inlined
def relative(call: LabelledData, at: int, most: Any, count: int) -> Any:
    """Return exponentials of data relative to a row's maximum."""
    return exponentials(subtract_lanes(load_lanes(call.data, at, count), most))


class RowEntropies(LabelledData):
    """Arguments of `entropies_loop`: one weighted entropy per row."""

    entropies: Float64s


@compact
def entropies_loop(call: RowEntropies) -> None:
    """entropies[n] = weight[n] * -log(max(p[n, label[n]], smallest)), and the statistics."""
    classes, label, data = call.classes, call.label, call.data
    for n in rows_of_task(call.samples):
        row = n * classes
        most = row_maximum(row, row + classes, lambda j, count: load_lanes(data, j, count))
        shift = lanes(most)
        total = row_sum(row, row + classes, lambda j, count: relative(call, j, shift, count))
        # A total that is NaN is the entropy of any label.
        entropy = total if math.isnan(total) else _MAX_ENTROPY
        if 0 <= label[n] < classes:
            entropy = math.log(total) - (data[row + label[n]] - np.float64(most))
        # min() would hide NaN.
        if entropy > _MAX_ENTROPY:
            entropy = _MAX_ENTROPY
        weight = weight_of(call, n)
        entropy = 0.0 if weight == 0 else entropy * weight
        call.statistics[2 * n] = most
        call.statistics[2 * n + 1] = total
        call.entropies[n] = entropy


class EntropySum(Arguments):
    """Arguments of `entropy_sum_loop`."""

    samples: Integer
    entropies: Float64s
    loss: Float32s


@native
def entropy_sum_loop(call: EntropySum) -> None:
    """loss[0] = sum of the entropies, in sample order."""
    total = 0.0
    for n in range(call.samples):
        total += call.entropies[n]
    call.loss[0] = total


class EntropyGradient(LabelledData):
    """Arguments of `gradient_loop`; an absent head, the gradient of the loss, counts as 1."""

    scale: Real
    head: Float32s
    gradient: Float32s


@compact
def gradient_loop(call: EntropyGradient) -> None:
    """gradient[n, c] = (p[n, c] - (1 where c = label[n])) * scale * head[0] * weight[n].

    It may overwrite data.
    """
    classes, label, gradient = call.classes, call.label, call.gradient
    for n in rows_of_task(call.samples):
        row, weight = n * classes, weight_of(call, n)
        if weight == 0:
            clear(gradient, row, classes)
            continue
        factor = call.scale * weight
        if call.head is not None:
            factor *= call.head[0]
        most, total = lanes(call.statistics[2 * n]), call.statistics[2 * n + 1]
        chosen = np.float32(0)
        if 0 <= label[n] < classes:
            chosen = sum_lanes(relative(call, row + label[n], most, 1), 1) / total
        scale = lanes(factor / total)
        for j, count in vectors(row, row + classes):
            store_lanes(gradient, j, multiply_lanes(relative(call, j, most, count), scale), count)
        if 0 <= label[n] < classes:
            gradient[row + label[n]] = (chosen - np.float32(1)) * factor
