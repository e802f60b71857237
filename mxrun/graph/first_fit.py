"""Blocks placed one by one, each at the lowest offset where nothing alive with it lies.

For one of a few orders this reaches the lower bound on most networks (studied for TensorFlow Lite
by Pisarchyk and Lee, arXiv:2001.03288). Where it does not, blocks that stick out beyond the bound
are moved to the front of the order and all are placed again (squeaky wheel optimisation: Joslin and
Clements, JAIR 10, 1999).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from mxrun.backend.jit import Block, HostLoop, int64s, integer, native
from mxrun.graph.sections import Integers, Problem

# Placements tried per order; the second round begins once every order has had its first.
_ROUNDS = 8


@dataclass(frozen=True)
class Placement:
    """Offsets in bytes, the arena they need, and what found them."""

    offsets: Integers
    arena_bytes: int
    order: str


def first_fit(problem: Problem) -> Placement:
    """The best of several placements for each of a few orders; one at the lower bound ends it."""
    best: Placement | None = None
    bound = problem.lower_bound
    loop = _Loop(problem)
    orders = {name: np.argsort(-key, kind="stable") for name, key in _keys(problem)}
    for _ in range(_ROUNDS):
        for name, order in orders.items():
            offsets = loop.run(order)
            tops = offsets + problem.size
            arena = int(tops.max())
            if best is None or arena < best.arena_bytes:
                best = Placement(offsets, arena, name)
            if arena == bound:
                return best
            sticking_out = tops[order] > bound
            orders[name] = np.concatenate((order[sticking_out], order[~sticking_out]))
    assert best is not None
    return best


def _keys(problem: Problem) -> list[tuple[str, npt.NDArray[Any]]]:
    """Keys to place blocks by, the largest first."""
    by_life = np.empty_like(problem.size)
    by_life[np.lexsort((problem.size, problem.life))] = np.arange(len(by_life))
    return [
        ("size", problem.size),
        ("area", problem.area),
        ("width", by_life),
        ("start", -problem.begin),
    ]


class _Loop:
    """The native loop with its arrays, for one problem."""

    def __init__(self, problem: Problem) -> None:
        count = len(problem.size)
        self._order = np.empty(count, np.int64)
        self._offsets = np.empty(count, np.int64)
        placed = np.empty(count, np.int64)
        self._arrays = problem.size, problem.begin, problem.end, self._order, self._offsets, placed
        addresses = (array.ctypes.data for array in self._arrays)
        self._run = HostLoop(first_fit_loop, (count, *addresses), unlocked=True)

    def run(self, order: Integers) -> Integers:
        """The offsets for one order."""
        self._order[:] = order
        self._run()
        offsets: Integers = self._offsets.copy()
        return offsets


@native
def first_fit_loop(block: Block) -> None:
    """Place each block of `order` in the lowest gap; `placed` lists them by offset."""
    count, size = integer(block, 0), int64s(block, 1)
    begin, end, order = int64s(block, 2), int64s(block, 3), int64s(block, 4)
    offsets, placed = int64s(block, 5), int64s(block, 6)
    for turn in range(count):
        current = order[turn]
        wanted, born, gone = size[current], begin[current], end[current]
        floor = 0
        for place in range(turn):
            other = placed[place]
            if begin[other] < gone and end[other] > born:
                if offsets[other] - floor >= wanted:
                    break
                floor = max(floor, offsets[other] + size[other])
        offsets[current] = floor
        place = turn
        while place > 0 and offsets[placed[place - 1]] > floor:
            placed[place] = placed[place - 1]
            place -= 1
        placed[place] = current
