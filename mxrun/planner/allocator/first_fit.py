"""First fit: blocks placed one by one, each at the lowest offset free during its lifetime.

With the best of a few orders this reaches the lower bound on most networks (studied for TensorFlow
Lite by Pisarchyk and Lee, arXiv:2001.03288). Where it does not, blocks that exceed the bound are
moved to the front of the order and all are placed again (squeaky wheel optimisation: Joslin and
Clements, JAIR 10, 1999).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from mxrun.base.dataclass import dataclass
from mxrun.codegen.arguments import Arguments, Int64s, Integer
from mxrun.codegen.host_loop import HostLoop
from mxrun.codegen.jit import inlined, native
from mxrun.planner.allocator.interval_compaction import Integers, PlacementProblem

# Placements tried per order; the second round begins after every order has had its first.
_ROUNDS = 5
# Blocks examined per pass of the branch-free loop.
_CHUNK = 64


@dataclass(frozen=True)
class Placement:
    """Offsets in bytes, size of the arena, and name of the order or method that found them."""

    offsets: Integers
    arena_bytes: int
    order: str


def first_fit(problem: PlacementProblem, work: int) -> Placement:
    """Return the best of several placements for each of a few orders; stop at the lower bound.

    work: limit of all placements, in blocks examined. At least one placement is made.
    """
    best: Placement | None = None
    bound = problem.lower_bound
    loop = _FirstFit(problem)
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
            if loop.work >= work:
                return best
    assert best is not None
    return best


def _keys(problem: PlacementProblem) -> list[tuple[str, npt.NDArray[Any]]]:
    """Return the named sort keys of the orders; the largest key is placed first."""
    by_life = np.empty_like(problem.size)
    by_life[np.lexsort((problem.size, problem.life))] = np.arange(len(by_life))
    return [
        ("size", problem.size),
        ("area", problem.area),
        ("width", by_life),
        ("start", -problem.begin),
    ]


class _FirstFit:
    """Native first-fit loop with its arrays, for one problem."""

    def __init__(self, problem: PlacementProblem) -> None:
        count = len(problem.size)
        self._order = np.empty(count, np.int64)
        self._offsets = np.empty(count, np.int64)
        self._work = np.zeros(1, np.int64)
        placing = Placing(
            count=count,
            size=problem.size,
            begin=problem.begin,
            end=problem.end,
            order=self._order,
            offsets=self._offsets,
            placed=np.empty(count, np.int64),
            together=np.empty(_CHUNK, np.int64),
            work=self._work,
        )
        self._run = HostLoop(first_fit_loop, placing, unlocked=True)

    def run(self, order: Integers) -> Integers:
        """Return the offsets for one order."""
        self._order[:] = order
        self._run()
        offsets: Integers = self._offsets.copy()
        return offsets

    @property
    def work(self) -> int:
        """Number of blocks examined in all runs."""
        return int(self._work[0])


class Placing(Arguments):
    """Arguments of `first_fit_loop`: the blocks' properties, the order, and the state of the run.

    placed [count]: the placed blocks by offset. together [_CHUNK]: scratch space. work [1]: number
    of blocks examined in all runs.
    """

    count: Integer
    size: Int64s
    begin: Int64s
    end: Int64s
    order: Int64s
    offsets: Int64s
    placed: Int64s
    together: Int64s
    work: Int64s


@inlined
def lowest_gap(call: Placing, current: int, count: int) -> int:
    """Return the lowest offset at which a block overlaps none of the `count` placed blocks.

    Placed blocks whose lifetimes intersect are collected chunk by chunk without a branch, because
    the branch would be unpredictable.
    """
    needed, born, gone = call.size[current], call.begin[current], call.end[current]
    floor = 0
    for start in range(0, count, _CHUNK):
        stop = min(start + _CHUNK, count)
        call.work[0] += stop - start
        found = 0
        for place in range(start, stop):
            other = call.placed[place]
            call.together[found] = other
            found += (call.begin[other] < gone) & (call.end[other] > born)
        for index in range(found):
            other = call.together[index]
            if call.offsets[other] - floor >= needed:
                return floor
            floor = max(floor, call.offsets[other] + call.size[other])
    return floor


@native
def first_fit_loop(call: Placing) -> None:
    """Place each block of `order` in the lowest gap."""
    placed, offsets = call.placed, call.offsets
    for number in range(call.count):
        current = call.order[number]
        offsets[current] = lowest_gap(call, current, number)
        place = number
        while place > 0 and offsets[placed[place - 1]] > offsets[current]:
            placed[place] = placed[place - 1]
            place -= 1
        placed[place] = current
