"""Loss and gradient of softmax_cross_entropy as compiled loops over rows.

Neither loop stores the probabilities: forward hands the maximum of each row and the sum of its
exponentials to backward, which computes the exponentials again. The exponentials are a map's code,
which the loops call for a row, or for a part that stays in the L1 cache.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from mxrun.codegen.arguments import (
    HEADER_SLOTS,
    Arguments,
    Float32s,
    Float64s,
    Int32s,
    Int64s,
    Integer,
    Real,
    Table,
)
from mxrun.codegen.jit import call_address, inlined, integer, native, reduced_run, share

# Elements of a row whose exponentials are computed and added up at a time.
CHUNK = 2048
# Argument block of the map's code, in words: after the header the number of elements, the
# addresses of output and operand, and the shift. A thread's chunk follows.
_COUNT = HEADER_SLOTS
BLOCK_WORDS = 16
WORDS_PER_THREAD = BLOCK_WORDS + CHUNK // 2
# Lower bound on probabilities before the logarithm (MXNet's), as an upper bound on entropies.
_MAX_ENTROPY = -math.log(1e-8)


class LabelledRows(Arguments):
    """Data [samples, classes] with one label per row; an absent weight counts as 1.

    samples_per_weight: consecutive rows with one weight. ignored: label without loss and gradient
    if `is_ignoring`.
    statistics [samples, 2]: maximum and sum of exponentials of each row. code: that computes
    exp(x - shift). addresses: of data and of the gradient, if any. words, cells, scratch_address:
    the team's scratch space of `scratch_words` words.
    """

    samples: Integer
    classes: Integer
    samples_per_weight: Integer
    is_ignoring: Integer
    ignored: Integer
    label: Int32s
    weight: Float32s
    data: Float32s
    statistics: Float32s
    code: Integer
    addresses: Table
    scratch_words: Integer
    words: Int64s
    cells: Float32s
    scratch_address: Integer


@inlined
def exponentials(
    call: LabelledRows, own: int, address: int, at: int, count: int, shift: Any
) -> None:
    """Write exp(data[at:at + count] - shift) to an address."""
    call.words[own + _COUNT] = count
    call.words[own + _COUNT + 1] = address
    call.words[own + _COUNT + 2] = integer(call.addresses, 0) + 4 * at
    call.cells[2 * (own + _COUNT + 3)] = shift
    call_address(call.code, call.scratch_address + 8 * own, 0, 0, 0, 0, 0)


@inlined
def block_of(call: LabelledRows) -> Any:
    """Clear and return the thread's argument block."""
    own, _ = share(call.scratch_words)
    for index in range(BLOCK_WORDS):
        call.words[own + index] = 0
    return own


@inlined
def weight_of(call: LabelledRows, n: int) -> Any:
    """Return the weight of a row, 0 if its label is ignored."""
    weight = np.float32(1)
    if call.weight is not None:
        weight = call.weight[n // call.samples_per_weight]
    if call.is_ignoring and call.label[n] == call.ignored:
        weight = np.float32(0)
    return weight


class RowEntropies(LabelledRows):
    """Arguments of `entropies_loop`: one weighted entropy per row."""

    entropies: Float64s


@native
def entropies_loop(call: RowEntropies) -> None:
    """entropies[n] = weight[n] * -log(max(p[n, label[n]], smallest)), and the statistics."""
    classes, label, data = call.classes, call.label, call.data
    own = block_of(call)
    chunk = own + BLOCK_WORDS
    begin, end = share(call.samples * 16)
    for n in range(begin // 16, end // 16):
        row = n * classes
        most = np.float32(reduced_run(1, -math.inf, data, row, classes, 0.0, 0))
        total = 0.0
        for first in range(0, classes, CHUNK):
            count = min(classes - first, CHUNK)
            address = call.scratch_address + 8 * chunk
            exponentials(call, own, address, row + first, count, most)
            total = reduced_run(0, total, call.cells, 2 * chunk, count, 0.0, 0)
        # A total that is NaN is the entropy of any label.
        entropy = total if math.isnan(total) else _MAX_ENTROPY
        if 0 <= label[n] < classes:
            entropy = math.log(total) - (data[row + label[n]] - np.float64(most))
        # min() would hide NaN.
        if entropy > _MAX_ENTROPY:
            entropy = _MAX_ENTROPY
        entropy *= weight_of(call, n)
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


class EntropyGradient(LabelledRows):
    """Arguments of `gradient_loop`; an absent head, the gradient of the loss, counts as 1."""

    scale: Real
    head: Float32s
    gradient: Float32s


@native
def gradient_loop(call: EntropyGradient) -> None:
    """gradient[n, c] = (p[n, c] - (1 where c = label[n])) * scale * head[0] * weight[n].

    It may overwrite data.
    """
    classes, label, gradient = call.classes, call.label, call.gradient
    own = block_of(call)
    begin, end = share(call.samples * 16)
    for n in range(begin // 16, end // 16):
        row, factor = n * classes, call.scale * weight_of(call, n)
        if call.head is not None:
            factor *= call.head[0]
        most, total = call.statistics[2 * n], call.statistics[2 * n + 1]
        address = integer(call.addresses, 1) + 4 * row
        exponentials(call, own, address, row, classes, most)
        chosen = np.float32(0)
        if 0 <= label[n] < classes:
            chosen = gradient[row + label[n]] / total
        scale = factor / total
        for k in range(row, row + classes):
            gradient[k] *= scale
        if 0 <= label[n] < classes:
            gradient[row + label[n]] = (chosen - np.float32(1)) * factor
