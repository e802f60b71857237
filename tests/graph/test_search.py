"""The search for placements at the bound, on problems whose best placement is known."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from mxrun.graph.memory import allocate, lower_bound
from mxrun.graph.search import search

Integers = npt.NDArray[np.int64]
UNIT = 64


def cut(seed: int, count: int) -> tuple[Integers, Integers, Integers, int]:
    """A rectangle of steps and bytes cut up into `count` blocks, edge to edge, and shuffled.

    Every cut goes through one whole piece, so the pieces fill the rectangle: its height is the
    smallest arena there is.
    """
    random = np.random.default_rng(seed)
    pieces = [(0, 24, 0, 40)]
    while len(pieces) < count:
        areas = np.array([(b - a) * (d - c) for a, b, c, d in pieces], float)
        a, b, c, d = pieces.pop(int(random.choice(len(pieces), p=areas / areas.sum())))
        along_steps = bool(random.integers(2))
        if (along_steps and b - a > 1) or d - c == 1:
            at = int(random.integers(a + 1, b))
            pieces += [(a, at, c, d), (at, b, c, d)]
        else:
            at = int(random.integers(c + 1, d))
            pieces += [(a, b, c, at), (a, b, at, d)]
    random.shuffle(pieces)
    begin, end, low, high = np.array(pieces, np.int64).T
    return (high - low) * UNIT, begin, end, 40 * UNIT


def fits(offsets: Integers, size: Integers, begin: Integers, end: Integers, capacity: int) -> bool:
    if (offsets < 0).any() or (offsets + size > capacity).any():
        return False
    for i in range(len(size)):
        for j in range(i):
            together = begin[i] < end[j] and begin[j] < end[i]
            apart = offsets[i] + size[i] <= offsets[j] or offsets[j] + size[j] <= offsets[i]
            if together and not apart:
                return False
    return True


@pytest.mark.parametrize("count", [10, 15, 20, 25, 30])
def test_known_optima_are_found(count: int) -> None:
    for seed in range(12):
        size, begin, end, capacity = cut(1000 * count + seed, count)
        assert lower_bound(size, begin, end) == capacity
        offsets = search(size, begin, end, capacity, nodes=200_000)
        assert offsets is not None, seed
        assert fits(offsets, size, begin, end, capacity)


def test_allocations_reach_known_optima() -> None:
    """As the planner calls it: first-fit orders, and the search where they all miss the bound."""
    orders = set()
    for seed in range(36):
        size, begin, end, capacity = cut(31 * seed, 10 + 10 * (seed % 3))
        allocation = allocate(size.tolist(), begin.tolist(), end.tolist())
        assert allocation.arena_bytes == allocation.lower_bound_bytes == capacity
        assert fits(np.array(allocation.offsets), size, begin, end, capacity)
        orders.add(allocation.order)
    assert {"size", "search"} <= orders


def test_what_cannot_fit_is_not_found() -> None:
    size, begin, end, capacity = cut(5, 12)
    assert search(size, begin, end, capacity - UNIT, nodes=20_000) is None


def test_the_search_is_repeatable_and_keeps_its_budget() -> None:
    size, begin, end, capacity = cut(123, 30)
    first = search(size, begin, end, capacity, nodes=200_000)
    second = search(size, begin, end, capacity, nodes=200_000)
    assert first is not None
    assert second is not None
    assert first.tobytes() == second.tobytes()
    # Less than one node per block cannot place them all.
    assert search(size, begin, end, capacity, nodes=len(size) - 1) is None
    assert search(size, begin, end, capacity, nodes=0) is None
