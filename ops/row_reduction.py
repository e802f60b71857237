"""Reductions over runs of float32 vectors, for the loops of compiled operators.

A reduction takes the function terms(j, count), which returns the vector of the `count` elements
from place j on, and an accumulator of its own type. The vectors are combined in 64 lanes, pairwise
across lanes; sums do so within blocks of a run, and add the blocks in float64. The order depends on
the number of elements alone.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from mxrun.codegen.jit import inlined
from mxrun.codegen.vectors import (
    LANES,
    add_lanes,
    keep_lanes,
    lanes,
    largest_lane,
    maximum_lanes,
    sum_lanes,
)

# Elements of a run that are summed in float32.
BLOCK = 2048
# Elements of one iteration: four accumulators that do not depend on each other.
STEP = 4 * LANES


@inlined
def _combined(begin: int, full: int, start: Any, combine: Any, terms: Any) -> Any:
    """Return the lanes' results for complete vectors: combine(term, before), from `start` on."""
    a, b, c, d = start, start, start, start
    steps = begin + (full - begin) // STEP * STEP
    for j in range(begin, steps, STEP):
        a = combine(terms(j, LANES), a)
        b = combine(terms(j + LANES, LANES), b)
        c = combine(terms(j + 2 * LANES, LANES), c)
        d = combine(terms(j + 3 * LANES, LANES), d)
    for j in range(steps, full, LANES):
        a = combine(terms(j, LANES), a)
    return combine(combine(a, b), combine(c, d))


@inlined
def row_sum(begin: int, end: int, terms: Any) -> Any:
    """Return the float64 sum of the terms of a run."""
    total = 0.0
    for first in range(begin, end, BLOCK):
        beyond = min(first + BLOCK, end)
        full = first + (beyond - first) // LANES * LANES
        total += sum_lanes(_combined(first, full, lanes(0.0), add_lanes, terms), LANES)
        if full < beyond:
            total += sum_lanes(terms(full, beyond - full), beyond - full)
    return total


@inlined
def row_maximum(begin: int, end: int, terms: Any) -> Any:
    """Return the largest float32 term of a run; NaN is passed over."""
    low, full = lanes(np.float32(-math.inf)), begin + (end - begin) // LANES * LANES
    most = _combined(begin, full, low, maximum_lanes, terms)
    if full < end:
        most = maximum_lanes(keep_lanes(terms(full, end - full), end - full, low), most)
    return largest_lane(most)
