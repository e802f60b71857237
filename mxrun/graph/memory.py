"""Offsets for blocks of known size and lifetime, held against the lower bound.

The lower bound is the largest sum of the sizes of blocks alive at one step; no arena can be
smaller. Placing blocks one by one, each at the lowest offset where nothing alive with it lies,
reaches the bound on most networks for one of a few orders (studied for TensorFlow Lite by Pisarchyk
and Lee, arXiv:2001.03288). Where none does, blocks that stick out beyond the bound are moved to the
front of the order and all are placed again (squeaky wheel optimisation: Joslin and Clements, JAIR
10, 1999), and then a search looks for a placement at the bound itself. What is found at the bound
is taken, else the best.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from mxrun.graph.search import search

Integers = npt.NDArray[np.int64]

# Placements tried per order before the next order is.
_ROUNDS = 4
# Work of the search, in blocks looked at over all steps: a second or two.
_SEARCH_WORK = 400_000_000


@dataclass(frozen=True)
class Allocation:
    """Offsets in bytes, one per block; the arena's size and the lower bound."""

    offsets: tuple[int, ...]
    arena_bytes: int
    lower_bound_bytes: int
    order: str


def lower_bound(sizes: Integers, first: Integers, last: Integers) -> int:
    """The largest sum of sizes alive at one step; lifetimes are half-open [first, last)."""
    if not len(sizes):
        return 0
    change = np.zeros(int(last.max()) + 1, np.int64)
    np.add.at(change, first, sizes)
    np.add.at(change, last, -sizes)
    return int(np.cumsum(change).max())


def allocate(sizes: Sequence[int], first: Sequence[int], last: Sequence[int]) -> Allocation:
    """Place blocks of `sizes` bytes, each alive during [first, last), without overlap."""
    size, begin, end = (np.asarray(values, np.int64) for values in (sizes, first, last))
    bound = lower_bound(size, begin, end)
    best: Allocation | None = None
    for name, key in _orders(size, begin, end):
        order = np.argsort(-key, kind="stable")
        for _ in range(_ROUNDS):
            offsets = _first_fit(size, begin, end, order)
            tops = offsets + size
            arena = int(tops.max(initial=0))
            if best is None or arena < best.arena_bytes:
                best = Allocation(tuple(map(int, offsets)), arena, bound, name)
            if arena == bound:
                return best
            sticking_out = tops[order] > bound
            order = np.concatenate((order[sticking_out], order[~sticking_out]))
    nodes = _SEARCH_WORK // (len(size) * int(end.max()))
    found = search(size, begin, end, bound, nodes)
    if found is not None:
        return Allocation(tuple(map(int, found)), bound, bound, "search")
    assert best is not None
    return best


def _orders(size: Integers, begin: Integers, end: Integers) -> list[tuple[str, Integers]]:
    """Keys to place blocks by, the largest first."""
    width = end - begin
    return [
        ("size", size),
        ("area", size * width),
        ("width", width * (int(size.max(initial=0)) + 1) + size),
        ("start", -begin),
    ]


def _first_fit(size: Integers, begin: Integers, end: Integers, order: Integers) -> Integers:
    """Each block, in order, at the lowest offset free during its whole life."""
    offsets = np.zeros_like(size)
    placed = np.empty(0, np.int64)
    for block in order:
        alive = placed[(begin[placed] < end[block]) & (end[placed] > begin[block])]
        alive = alive[np.argsort(offsets[alive], kind="stable")]
        tops = np.maximum.accumulate(offsets[alive] + size[alive])
        floors = np.concatenate(([0], tops))
        ceilings = np.append(offsets[alive], np.iinfo(np.int64).max)
        fits = np.flatnonzero(ceilings - floors >= size[block])
        offsets[block] = floors[fits[0]]
        placed = np.append(placed, block)
    return offsets
