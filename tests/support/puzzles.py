"""Allocation problems of known optimum, and a check of placements."""

from __future__ import annotations

import bisect

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.int64]
# Sizes, and lifetimes [first, last).
Blocks = tuple[Integers, Integers, Integers]


def puzzle(seed: int, count: int, steps: int, units: int, missing: float = 0.0) -> Blocks:
    """Return a rectangle of steps and units cut into `count` blocks without gaps, shuffled.

    Every cut divides one complete piece (guillotine cuts), so the pieces fill the rectangle, and
    its height is the smallest arena. This remains true if, of the pieces that are not live at one
    step, the fraction `missing` is removed.
    """
    random = np.random.default_rng(seed)
    pieces = [(0, steps, 0, units)]
    while len(pieces) < count:
        # Large pieces are more likely to be cut; those of one step and unit are never cut.
        areas = np.array([(b - a) * (d - c) - 1 for a, b, c, d in pieces], float)
        a, b, c, d = pieces.pop(int(random.choice(len(pieces), p=areas / areas.sum())))
        if b - a > 1 and (d - c == 1 or random.integers(2)):
            at = int(random.integers(a + 1, b))
            pieces += [(a, at, c, d), (at, b, c, d)]
        else:
            at = int(random.integers(c + 1, d))
            pieces += [(a, b, c, at), (a, b, at, d)]
    random.shuffle(pieces)
    first, last, low, high = np.array(pieces, np.int64).T
    full = int(random.integers(steps))
    kept = (random.random(count) >= missing) | ((first <= full) & (full < last))
    return (high - low)[kept], first[kept], last[kept]


def fits(offsets: npt.ArrayLike, blocks: Blocks, capacity: int) -> bool:
    """Return whether all blocks are within [0, capacity) and no two live blocks overlap."""
    size, first, last = (values.tolist() for values in blocks)
    low = np.asarray(offsets, np.int64).tolist()
    moments = [(last[block], 0, block) for block in range(len(size))]
    moments += [(first[block], 1, block) for block in range(len(size))]
    live: list[tuple[int, int]] = []
    for _, is_birth, block in sorted(moments):
        if size[block] == 0 or last[block] <= first[block]:
            continue
        own = low[block], low[block] + size[block]
        place = bisect.bisect_left(live, own)
        if not is_birth:
            live.pop(place)
            continue
        if own[0] < 0 or own[1] > capacity:
            return False
        if place > 0 and live[place - 1][1] > own[0]:
            return False
        if place < len(live) and live[place][0] < own[1]:
            return False
        live.insert(place, own)
    return True
