"""CTCLoss in compiled loops, for float32 data and int32 labels.

A sample's places are the blanks and labels of its extended label: blank, label 0, blank, label 1,
... The logarithms of the sums over alignments are float64.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from mxrun.codegen.arguments import Arguments, Float32s, Float64s, Int32s, Integer
from mxrun.codegen.intrinsics import worker
from mxrun.codegen.jit import inlined, native
from mxrun.codegen.loops import rows_of_task, vectors
from mxrun.codegen.vectors import (
    LANES,
    add_lanes,
    lanes,
    load_lanes,
    log_lanes,
    maximum_lanes,
    multiply_lanes,
    narrow_lanes,
    store_lanes,
    subtract_lanes,
    sum_lanes,
    wide_lanes,
)
from mxrun.ops.row_reduction import row_maximum
from mxrun.ops.rows import clear
from mxrun.ops.softmax.loops import exponentials

_ONE = 1
_LOWEST = -3e38


class Alignments(Arguments):
    """Data [steps, batch, classes] or, if `is_batch_first`, [batch, steps, classes]; label [batch,
    labels].

    data_lengths, label_lengths: None if not used. output, gradient: None if not requested. scratch:
    the threads' space of `words_per_worker` numbers each, see `scratch_size`: the logarithms of the
    sums of exponentials [steps] and the rows of `row_start`, of `width` numbers each.
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
    width: Integer
    words_per_worker: Integer
    scratch: Float64s


def row_width(labels: int) -> int:
    """Return the numbers of a row of variables: the places, with two more before and after them."""
    return 2 * labels + 5


def scratch_size(steps: int, labels: int) -> int:
    """Return the numbers of a thread's scratch space, a multiple of 16."""
    return -(-(steps + (steps + 5) * row_width(labels)) // LANES) * LANES


@inlined
def row_start(call: Alignments, own: int, row: int) -> Any:
    """Return the position of the first place in a row of the scratch space.

    Row 0 is the start of the forward variables and row t + 1 has those of step t. The rows after
    them have the backward variables of two steps, the skips and the shares.
    """
    return own + call.steps + row * call.width + 2


@inlined
def symbol(call: Alignments, n: int, place: int) -> Any:
    """Return the class at a place of a sample's extended label."""
    found = call.blank
    if place % 2 == 1:
        found = min(max(call.label[n * call.labels + place // 2], 0), call.classes - 1)
    return found


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
        most = row_maximum(at, at + classes, lambda j, count: load_lanes(call.data, j, count))
        shift, total = lanes(most), 0.0
        for j in range(0, classes, LANES):
            count = classes - j
            vector = exponentials(subtract_lanes(load_lanes(call.data, at + j, count), shift))
            total += sum_lanes(vector, count)
        call.scratch[own + t] = most + math.log(total)


@inlined
def clear_row(call: Alignments, own: int, row: int) -> Any:
    """Set a row to the logarithm of 0; return the position of its first place."""
    first = row_start(call, own, row)
    for place in range(first - 2, first - 2 + call.width):
        call.scratch[place] = -math.inf
    return first


@inlined
def write_skips(call: Alignments, n: int, count: int, own: int) -> Any:
    """Write 0 where an alignment may go to a place from two places before, else -inf."""
    skips = clear_row(call, own, call.steps + 3)
    for place in range(3, 2 * count + 1, 2):
        here = symbol(call, n, place)
        if here != call.blank and here != symbol(call, n, place - 2):
            call.scratch[skips + place] = 0.0
    return skips


@inlined
def write_logarithms(call: Alignments, n: int, t: int, count: int, own: int, at: int) -> None:
    """Write the logarithms of the probabilities of the places' classes at a step."""
    row, total = row_of(call, n, t), call.scratch[own + t]
    of_blank = call.data[row + call.blank] - total
    for place in range(0, 2 * count, 2):
        call.scratch[at + place] = of_blank
        call.scratch[at + place + 1] = call.data[row + symbol(call, n, place + 1)] - total
    call.scratch[at + 2 * count] = of_blank


@inlined
def log_sums(call: Alignments, at: int, step: int, skips: int, count: int) -> Any:
    """Return log(exp(s[at]) + exp(s[at + step]) + exp(s[at + 2 * step] + s[skips])).

    s is the scratch space; this is done for `count` neighbouring places.
    """
    sums = call.scratch
    first, second = load_lanes(sums, at, count), load_lanes(sums, at + step, count)
    third = add_lanes(load_lanes(sums, at + 2 * step, count), load_lanes(sums, skips, count))
    # If all are -inf, the differences must not be NaN.
    lowest = wide_lanes(lanes(np.float32(_LOWEST)))
    most = maximum_lanes(maximum_lanes(first, second), maximum_lanes(third, lowest))
    total = wide_lanes(exponentials(narrow_lanes(subtract_lanes(first, most))))
    total = add_lanes(total, exponentials(narrow_lanes(subtract_lanes(second, most))))
    total = add_lanes(total, exponentials(narrow_lanes(subtract_lanes(third, most))))
    return add_lanes(most, log_lanes(total))


@inlined
def forward_variables(call: Alignments, n: int, steps: int, count: int, own: int) -> Any:
    """Write the skips and the forward variables; return the logarithm of a label's probability."""
    sums, places, skips = call.scratch, 2 * count + 1, write_skips(call, n, count, own)
    here = clear_row(call, own, 0)
    sums[here] = 0.0
    for t in range(steps):
        before, here = here, clear_row(call, own, t + 1)
        write_logarithms(call, n, t, count, own, here)
        for place in range(0, places, LANES):
            rest = places - place
            vector = log_sums(call, before + place, -1, skips + place, rest)
            vector = add_lanes(vector, load_lanes(sums, here + place, rest))
            store_lanes(sums, here + place, vector, rest)
    last, total = places - 1, row_start(call, own, call.steps + 4)
    store_lanes(sums, total, log_sums(call, here + last, -1, skips + last, _ONE), _ONE)
    return sums[total]


@inlined
def write_probabilities(call: Alignments, n: int, t: int, own: int) -> None:
    """gradient[t, n] = probabilities of a step."""
    at, total = row_of(call, n, t), call.scratch[own + t]
    # The difference to a float32 number near data is exact; the rest of the logarithm is small.
    shift = np.float32(total)
    near, rest = lanes(shift), lanes(np.float32(total - np.float64(shift)))
    for j, count in vectors(at, at + call.classes):
        vector = subtract_lanes(load_lanes(call.data, j, count), near)
        store_lanes(call.gradient, j, exponentials(subtract_lanes(vector, rest)), count)


@inlined
def clear_step(call: Alignments, n: int, t: int) -> None:
    """gradient[t, n] = 0."""
    clear(call.gradient, row_of(call, n, t), call.classes)


@inlined
def subtract_shares(call: Alignments, n: int, steps: int, count: int, own: int, loss: Any) -> None:
    """Subtract from gradient[t, n] the shares of alignments with each class, from the last step."""
    sums, places = call.scratch, 2 * count + 1
    skips, shares = row_start(call, own, call.steps + 3), row_start(call, own, call.steps + 4)
    here, after = clear_row(call, own, call.steps + 1), clear_row(call, own, call.steps + 2)
    sums[here + places - 1] = loss
    for index in range(steps):
        t = steps - 1 - index
        here, after = after, here
        forward = row_start(call, own, t + 1)
        write_logarithms(call, n, t, count, own, here)
        for place in range(0, places, LANES):
            rest = places - place
            vector = log_sums(call, after + place, 1, skips + 2 + place, rest)
            share = narrow_lanes(add_lanes(load_lanes(sums, forward + place, rest), vector))
            store_lanes(sums, shares + place, exponentials(share), rest)
            vector = add_lanes(vector, load_lanes(sums, here + place, rest))
            store_lanes(sums, here + place, vector, rest)
        at, of_blank = row_of(call, n, t), sums[shares + 2 * count]
        for place in range(0, 2 * count, 2):
            of_blank += sums[shares + place]
            label = at + symbol(call, n, place + 1)
            call.gradient[label] -= np.float32(sums[shares + place + 1])
        call.gradient[at + call.blank] -= np.float32(of_blank)


@native
def ctc_loop(call: Alignments) -> None:
    """output[n] = -log(probability of label[n]), and the gradient of data."""
    own = worker() * call.words_per_worker
    for n in rows_of_task(call.batch):
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
                subtract_shares(call, n, steps, count, own, loss)


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
    for row in rows_of_task(call.rows):
        at = row * call.classes
        factor = lanes(call.scale[row // call.repeats % call.batch])
        for j, count in vectors(at, at + call.classes):
            vector = multiply_lanes(load_lanes(call.gradient, j, count), factor)
            store_lanes(call.output, j, vector, count)
