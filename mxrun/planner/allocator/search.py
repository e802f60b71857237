"""A canonical depth-first search for a placement of blocks within a given capacity.

Any placement can be pushed down until every block lies at 0 or on another; placing the blocks of
such a normal form by rising offset, each lies exactly at its lowest free offset. So it is enough to
search those sequences (the idea of MiniMalloc: Moffitt, ASPLOS 2023): a block that could be slid
wholly under a candidate rules the candidate out, and so does a section in which what is to come
does not fit above the least offset that is left for it.

A static order of the blocks decides between equal offsets and, by that, where the search looks
first. Which order ends soon differs widely from problem to problem, and most that do, end after
hardly more nodes than there are blocks: so many orders take turns with a growing share of nodes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from mxrun.backend import philox
from mxrun.planner.allocator.interval_compaction import Integers, PlacementProblem
from mxrun.planner.allocator.placement_search import Attempts, SearchOutcome

# The blocks of every section, listed in 8 bytes each, may be so many.
MAX_ROWS = 1 << 24
# Nodes per block that an order has: one that is drawn, and one that stays in the first turn.
_SHARE = 4
# Orders drawn in the first turn. They double from turn to turn, as the shares of those that stay.
_DRAWN = 4
# By how much a key is raised at most when it is varied.
_SPREAD = 0.75


def search(problem: PlacementProblem, capacity: int, work: int) -> SearchOutcome:
    """Look for offsets at which all blocks fit `capacity`, doing about as much work at most.

    The same arguments give the same offsets.
    """
    if capacity < problem.lower_bound:
        return SearchOutcome(None, True, 0)
    if problem.rows > min(work, MAX_ROWS):
        return SearchOutcome(None, False, 0)
    return Search(problem, capacity).run(work)


class Search:
    """A search for one problem and capacity that can be continued.

    The problem has at most `MAX_ROWS` rows, and the capacity is no less than its lower bound.
    """

    def __init__(self, problem: PlacementProblem, capacity: int) -> None:
        self._attempts = Attempts(problem, capacity)
        self._nodes = _SHARE * len(problem.size)
        self._ranks = _ranks(problem)
        self._setup_work = self._attempts.setup_work

    def run(self, work: int) -> SearchOutcome:
        """Try the next orders, doing about as much work at most.

        An order that this limit ends is not tried again.
        """
        done, self._setup_work = self._setup_work, 0
        for rank, times in self._ranks:
            outcome = self._attempts.run(rank, times * self._nodes, work - done)
            done += outcome.work
            if outcome.offsets is not None or outcome.is_impossible or done >= work:
                break
        return SearchOutcome(outcome.offsets, outcome.is_impossible, done)


def _ranks(problem: PlacementProblem) -> Iterator[tuple[Integers, int]]:
    """Orders without end: the place of each block in it, and the shares of nodes it has.

    Three put what is long-lived, large in area, or alive at the fullest time first, one goes by
    time, as memory that is handed from operator to operator lies well; the others vary keys by
    chance.
    """
    life, area = problem.life.astype(np.float64), problem.area
    total = problem.fullest.astype(np.float64)
    keys = ((life, area, total), (total, area, life), (total, life, area), (-problem.begin, area))
    staying = [_rank(*of_order) for of_order in keys]
    varied = (area, life, area * life)
    drawn, times = 0, 1
    while True:
        for rank in staying:
            yield rank, times
        for _ in range(_DRAWN * times):
            words = philox.words(0, drawn, len(life))
            yield _rank(varied[drawn % len(varied)] * (1 + words * (_SPREAD / 2**32))), 1
            drawn += 1
        times *= 2


def _rank(*keys: npt.NDArray[Any]) -> Integers:
    """The place of each block, the largest first; the first key counts most."""
    order = np.lexsort([-key for key in reversed(keys)])
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return rank
