"""Native loop over a batch's predictions that computes the inputs and sums of class metrics."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from mxrun.codegen.arguments import Arguments, Float32s, Float64s, Int32s, Int64s, Integer
from mxrun.codegen.intrinsics import reduced_run
from mxrun.codegen.jit import inlined, native

# Dtypes of labels that the loop reads, with the argument for each.
LABELS = {"float32": "float32_labels", "int32": "int32_labels", "float64": "float64_labels"}
# Bits of the requested results, and the row of `sums` for each.
BEST, LOG, LIMITED_LOG = 1, 2, 4
ROWS = {BEST: 0, LOG: 1, LIMITED_LOG: 2}

# Constant that MXNet's CrossEntropy adds to a probability before the logarithm, and the lower bound
# of the probability in its Perplexity.
_EPSILON = 1e-12
_FLOOR = 1e-10
# Labels of a larger absolute value are not classes: they are read as -_MAX_CLASS, which is none.
_MAX_CLASS = 2.0**53
# Number of elements in which the position of a maximum is searched one by one.
_CHUNK = 256


class Reading(Arguments):
    """Arguments of `read_classes_loop`: `count` predictions of `classes` classes.

    requested: sum of the bits of the requested results. The labels [count] have one of three
    dtypes; the pointers of the other two are None. output [count, classes]: each row is a
    distribution over the classes; if `classes` is 0, output [count] is the probability of class 1
    of two. row_weights: one for `per_row` predictions each. has_ignored: whether a prediction whose
    label is `ignored` has the weight 0.

    labels, best, doubts and weights [count]: written for each prediction. sums [3, 2]: rows as in
    `ROWS`; the sum of weight * value, and that of weight.
    """

    requested: Integer
    float32_labels: Float32s
    int32_labels: Int32s
    float64_labels: Float64s
    output: Float32s
    row_weights: Float32s
    count: Integer
    classes: Integer
    per_row: Integer
    has_ignored: Integer
    ignored: Integer
    labels: Int64s
    best: Int64s
    doubts: Float64s
    weights: Float64s
    sums: Float64s


@inlined
def label_at(call: Reading, i: int, is_binary: bool) -> int:
    """Return label i as a class; of a probability label, class 1 above 0.5."""
    if call.float32_labels is not None:
        value = np.float64(call.float32_labels[i])
    elif call.int32_labels is not None:
        value = np.float64(call.int32_labels[i])
    else:
        value = call.float64_labels[i]
    if is_binary:
        return 1 if value > 0.5 else 0
    return int(value if -_MAX_CLASS < value < _MAX_CLASS else -_MAX_CLASS)


@inlined
def best_of(output: Any, first: int, classes: int) -> int:
    """Return the index of the first maximum of a row, or of its first NaN."""
    largest = reduced_run(1, -np.inf, output, first, min(classes, _CHUNK), output[first], 0)
    place = 0
    for start in range(_CHUNK, classes, _CHUNK):
        count = min(classes - start, _CHUNK)
        top = reduced_run(1, -np.inf, output, first + start, count, output[first], 0)
        if largest == largest and not top <= largest:
            largest, place = top, start
    while output[first + place] == output[first + place] and output[first + place] != largest:
        place += 1
    return place


@native
def read_classes_loop(call: Reading) -> None:
    """Compute labels and weights of all predictions, and the requested sums of weight * value.

    If the best class is requested, it is written with its doubt: NaN if a probability is NaN, else
    0. The value summed for accuracy is 1 for a hit plus the doubt; for the other sums it is the
    logarithm of the label's probability. A prediction of weight 0 adds nothing, even if it is NaN.
    """
    requested, output, classes = call.requested, call.output, call.classes
    best, doubts, sums = call.best, call.doubts, call.sums
    is_binary = classes == 0
    total, hits, logarithms, limited = 0.0, 0.0, 0.0, 0.0
    for i in range(call.count):
        label = label_at(call, i, is_binary)
        weight = np.float64(call.row_weights[i // call.per_row])
        if call.has_ignored and label == call.ignored:
            weight = 0.0
        call.labels[i], call.weights[i] = label, weight
        total += weight
        if requested & 1:
            place = i if is_binary else i * classes + best_of(output, i * classes, classes)
            largest = np.float64(output[place])
            best[i] = (1 if largest > 0.5 else 0) if is_binary else place - i * classes
            doubts[i] = largest - largest
            if weight != 0:
                hits += weight * ((1.0 if best[i] == label else 0.0) + doubts[i])
        if requested > 1 and weight != 0:
            if is_binary:
                chance = 1 - abs(label - np.float64(output[i]))
            else:
                chance = np.float64(output[i * classes + max(0, min(label, classes - 1))])
            if requested & 2:
                logarithms += weight * math.log(chance + _EPSILON)
            if requested & 4:
                limited += weight * math.log(_FLOOR if chance < _FLOOR else chance)
    for i in range(3):
        sums[2 * i + 1] = total
    sums[0], sums[2], sums[4] = hits, logarithms, limited
