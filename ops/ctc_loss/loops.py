"""CTCLoss in compiled loops, for float32 data and int32 labels.

A sample's places are the blanks and labels of its extended label: blank, label 0, blank, label 1,
... The logarithms of the sums over alignments are float64.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from mxrun.codegen.arguments import Arguments, Float32s, Float64s, Int32s, Integer
from mxrun.codegen.intrinsics import share, worker
from mxrun.codegen.jit import inlined, native
from mxrun.codegen.vectors import (
    LANES,
    exp2_lanes,
    lanes,
    load_lanes,
    multiply_lanes,
    store_lanes,
    subtract_lanes,
    sum_lanes,
)
from mxrun.ops.rows import clear
from mxrun.ops.softmax.loops import exponentials, row_maximum

_LOG2_E = math.log2(math.e)
_ONE = 1


class Alignments(Arguments):
    """Data [steps, batch, classes] or, if `is_batch_first`, [batch, steps, classes]; label [batch,
    labels].

    data_lengths, label_lengths: None if not used. output, gradient: None if not requested. scratch:
    the threads' space of `words_per_worker` numbers each, see `scratch_size`: the
    logarithms of the sums of exponentials [steps], the forward variables [steps, places] and the
    backward variables of two steps [2, places].
    """

    steps: Integer
    batch: Integer
    classes: Integer
    labels: Integer
    is_batch_first: Integer
    blank: Integer
    padding: Integer
    data: Float32s
    label: Int32s
    data_lengths: Int32s
    label_lengths: Int32s
    output: Float32s
    gradient: Float32s
    words_per_worker: Integer
    scratch: Float64s


@inlined
def exponential(value: Any) -> Any:
    """Return e to the power of a number."""
    return np.float64(sum_lanes(exp2_lanes(lanes(np.float32(value * _LOG2_E))), _ONE))


@inlined
def log_sum(left: Any, right: Any) -> Any:
    """Return log(exp(left) + exp(right))."""
    most = max(left, right)
    result = most
    if most > -math.inf:
        result = most + math.log(exponential(left - most) + exponential(right - most))
    # The larger one of a number and NaN may be the number.
    if math.isnan(left + right):
        result = left + right
    return result


def scratch_size(steps: int, labels: int) -> int:
    """Return the numbers of a thread's scratch space, a multiple of 16."""
    return -(-(steps + (steps + 2) * (2 * labels + 1)) // LANES) * LANES


@inlined
def symbol(call: Alignments, n: int, place: int) -> Any:
    """Return the class at a place of a sample's extended label."""
    found = call.blank
    if place % 2 == 1:
        found = min(max(call.label[n * call.labels + place // 2], 0), call.classes - 1)
    return found


@inlined
def skips(call: Alignments, n: int, place: int) -> bool:
    """Return whether an alignment may go to a place from the one two places before."""
    here = symbol(call, n, place)
    return place >= 2 and here != call.blank and here != symbol(call, n, place - 2)


@inlined
def steps_of(call: Alignments, n: int) -> Any:
    """Return the length of a sample."""
    steps = call.steps
    if call.data_lengths is not None:
        steps = min(max(call.data_lengths[n], 0), steps)
    return steps


@inlined
def labels_of(call: Alignments, n: int) -> Any:
    """Return the number of labels of a sample."""
    count = call.labels
    if call.label_lengths is not None:
        count = min(max(call.label_lengths[n], 0), count)
    else:
        for place in range(call.labels):
            if count == call.labels and call.label[n * call.labels + place] == call.padding:
                count = place
    return count


@inlined
def fits(call: Alignments, n: int, steps: int, count: int) -> bool:
    """Return whether there are alignments of a label."""
    needed = count
    for index in range(1, count):
        needed += symbol(call, n, 2 * index + 1) == symbol(call, n, 2 * index - 1)
    return steps > 0 and needed <= steps


@inlined
def row_of(call: Alignments, n: int, t: int) -> Any:
    """Return the position of a step's data."""
    row = t * call.batch + n
    if call.is_batch_first:
        row = n * call.steps + t
    return row * call.classes


@inlined
def row_logarithms(call: Alignments, n: int, steps: int, own: int) -> None:
    """Write the logarithms of the sums of exponentials of a sample's steps."""
    classes = call.classes
    for t in range(steps):
        at = row_of(call, n, t)
        most = row_maximum(call.data, at, classes)
        shift, total = lanes(most), 0.0
        for j in range(0, classes, LANES):
            count = classes - j
            vector = exponentials(subtract_lanes(load_lanes(call.data, at + j, count), shift))
            total += sum_lanes(vector, count)
        call.scratch[own + t] = most + math.log(total)


@inlined
def logarithm(call: Alignments, n: int, t: int, place: int, own: int) -> Any:
    """Return the logarithm of the probability of a place's class at a step."""
    return call.data[row_of(call, n, t) + symbol(call, n, place)] - call.scratch[own + t]


@inlined
def forward_variables(call: Alignments, n: int, steps: int, count: int, own: int) -> Any:
    """Write the forward variables; return the logarithm of the label's probability."""
    sums, width, places = call.scratch, 2 * call.labels + 1, 2 * count + 1
    first = own + call.steps
    for place in range(places):
        sums[first + place] = -math.inf
        if place < 2:
            sums[first + place] = logarithm(call, n, 0, place, own)
    for t in range(1, steps):
        before, here = first + (t - 1) * width, first + t * width
        for place in range(places):
            total = sums[before + place]
            if place > 0:
                total = log_sum(total, sums[before + place - 1])
            if skips(call, n, place):
                total = log_sum(total, sums[before + place - 2])
            sums[here + place] = total + logarithm(call, n, t, place, own)
    last = first + (steps - 1) * width + places - 1
    total = sums[last]
    if count > 0:
        total = log_sum(total, sums[last - 1])
    return total


@inlined
def write_probabilities(call: Alignments, n: int, t: int, own: int) -> None:
    """gradient[t, n] = probabilities of a step."""
    at, total = row_of(call, n, t), call.scratch[own + t]
    # The difference to a float32 number near data is exact; the rest of the logarithm is small.
    shift = np.float32(total)
    near, rest = lanes(shift), lanes(np.float32(total - np.float64(shift)))
    for j in range(0, call.classes, LANES):
        count = call.classes - j
        vector = subtract_lanes(load_lanes(call.data, at + j, count), near)
        store_lanes(call.gradient, at + j, exponentials(subtract_lanes(vector, rest)), count)


@inlined
def clear_step(call: Alignments, n: int, t: int) -> None:
    """gradient[t, n] = 0."""
    clear(call.gradient, row_of(call, n, t), call.classes)


@inlined
def subtract_shares(call: Alignments, n: int, steps: int, count: int, own: int, total: Any) -> None:
    """Subtract from gradient[t, n] the shares of alignments with each class, from the last step."""
    sums, width, places = call.scratch, 2 * call.labels + 1, 2 * count + 1
    forward = own + call.steps
    backward = forward + call.steps * width
    for index in range(steps):
        t = steps - 1 - index
        here, after = backward + t % 2 * width, backward + (t + 1) % 2 * width
        for place in range(places):
            own_sum = -math.inf
            if index == 0:
                if place >= places - 2:
                    own_sum = 0.0
            else:
                own_sum = sums[after + place]
                if place + 1 < places:
                    own_sum = log_sum(own_sum, sums[after + place + 1])
                if place + 2 < places and skips(call, n, place + 2):
                    own_sum = log_sum(own_sum, sums[after + place + 2])
            part = exponential(sums[forward + t * width + place] + own_sum - total)
            at = row_of(call, n, t) + symbol(call, n, place)
            call.gradient[at] -= np.float32(part)
            sums[here + place] = own_sum + logarithm(call, n, t, place, own)


@native
def ctc_loop(call: Alignments) -> None:
    """output[n] = -log(probability of label[n]), and the gradient of data."""
    own = worker() * call.words_per_worker
    # share() splits at multiples of 16, so each sample counts as 16 elements.
    begin, end = share(call.batch * 16)
    for n in range(begin // 16, end // 16):
        steps, count, loss = steps_of(call, n), labels_of(call, n), 0.0
        fitting = fits(call, n, steps, count)
        if fitting:
            row_logarithms(call, n, steps, own)
            loss = -forward_variables(call, n, steps, count, own)
        if call.output is not None:
            call.output[n] = loss
        if call.gradient is not None:
            for t in range(call.steps):
                if fitting and t < steps:
                    write_probabilities(call, n, t, own)
                else:
                    clear_step(call, n, t)
            if fitting and loss != math.inf:
                subtract_shares(call, n, steps, count, own, -loss)


class ScaledGradients(Arguments):
    """Gradient [rows, classes]; scale: that of row r is the one of `repeats` rows after each other,
    modulo `batch`. The output may overwrite the gradient.
    """

    rows: Integer
    batch: Integer
    repeats: Integer
    classes: Integer
    gradient: Float32s
    scale: Float32s
    output: Float32s


@native
def scaled_gradients_loop(call: ScaledGradients) -> None:
    """Multiply each row by the scale of its sample."""
    begin, end = share(call.rows * 16)
    for row in range(begin // 16, end // 16):
        at = row * call.classes
        factor = lanes(call.scale[row // call.repeats % call.batch])
        for j in range(0, call.classes, LANES):
            count = call.classes - j
            vector = multiply_lanes(load_lanes(call.gradient, at + j, count), factor)
            store_lanes(call.output, at + j, vector, count)
