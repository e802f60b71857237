"""Native loop over a batch's predictions that computes the inputs and sums of class metrics."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from mxrun.backend.jit import (
    Block,
    float32s,
    float64s,
    inlined,
    int32s,
    int64s,
    integer,
    native,
    reduced_run,
)

# Dtypes of labels that the loop reads, with their codes.
KINDS = {"float32": 0, "int32": 1, "float64": 2}
# Bits of the requested results, and the row of `sums` for each.
BEST, LOG, LIMITED_LOG = 1, 2, 4
ROWS = {BEST: 0, LOG: 1, LIMITED_LOG: 2}
# Argument slots that change between two runs.
REQUESTED, KIND, LABEL, OUTPUT, ROW_WEIGHTS = 0, 1, 2, 3, 4

# Constant that MXNet's CrossEntropy adds to a probability before the logarithm, and the lower bound
# of the probability in its Perplexity.
_EPSILON = 1e-12
_FLOOR = 1e-10
# Labels of a larger absolute value are not classes: they are read as -_MAX_CLASS, which is none.
_MAX_CLASS = 2.0**53
# Number of elements in which the position of a maximum is searched one by one.
_CHUNK = 256


@inlined
def label_at(block: Block, i: int, is_binary: bool) -> int:
    """Return label i as a class; of a probability label, class 1 above 0.5."""
    kind = integer(block, 1)
    if kind == 0:
        value = np.float64(float32s(block, 2)[i])
    elif kind == 1:
        value = np.float64(int32s(block, 2)[i])
    else:
        value = float64s(block, 2)[i]
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
def read_classes_loop(block: Block) -> None:
    """Compute labels and weights of all predictions, and the requested sums of weight * value.

    A row of the output is a distribution over the classes. If `classes` is 0, it is the probability
    of class 1 of two. If the best class is requested, it is written with its doubt: NaN if a
    probability is NaN, else 0. The value summed for accuracy is 1 for a hit plus the doubt; for the
    other sums it is the logarithm of the label's probability. A prediction of weight 0 adds
    nothing, even if it is NaN.
    """
    requested, output, row_weights = integer(block, 0), float32s(block, 3), float32s(block, 4)
    count, classes, per_row = integer(block, 5), integer(block, 6), integer(block, 7)
    has_ignored, ignored = integer(block, 8), integer(block, 9)
    labels, best, doubts = int64s(block, 10), int64s(block, 11), float64s(block, 12)
    weights, sums = float64s(block, 13), float64s(block, 14)
    is_binary = classes == 0
    total, hits, logarithms, limited = 0.0, 0.0, 0.0, 0.0
    for i in range(count):
        label = label_at(block, i, is_binary)
        weight = np.float64(row_weights[i // per_row])
        if has_ignored and label == ignored:
            weight = 0.0
        labels[i], weights[i] = label, weight
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
