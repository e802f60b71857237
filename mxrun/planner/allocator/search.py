"""Canonical depth-first search for a placement of blocks within a given capacity.

Any placement can be pushed down until every block is at offset 0 or on top of another. If the
blocks of such a normal form are placed by ascending offset, each is placed exactly at its lowest
free offset. Searching these sequences is therefore complete (the idea of MiniMalloc: Moffitt,
ASPLOS 2023). Two rules prune candidates: another block would fit entirely below the candidate, or
in some section the remaining blocks do not fit above the lowest offset left there.

A static order of the blocks breaks ties between equal offsets and thereby decides which placements
are tried first. The order that ends soon differs from problem to problem, and most successful
orders need hardly more nodes than there are blocks. The search therefore restarts with many orders
and increasing node limits.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from mxrun.codegen import philox
from mxrun.planner.allocator.interval_compaction import Integers, PlacementProblem
from mxrun.planner.allocator.placement_search import Attempts, SearchOutcome

# Maximum of `PlacementProblem.rows`, which are listed in 8 bytes each.
MAX_ROWS = 1 << 24
# Node limit per block of a random order, and of a fixed order in the first round.
_SHARE = 4
# Random orders in the first round. Their number and the node limits of the fixed orders double with
# every round.
_DRAWN = 4
# Maximum relative increase of a key by a random order.
_SPREAD = 0.75


def search(problem: PlacementProblem, capacity: int, work: int) -> SearchOutcome:
    """Search for offsets at which all blocks fit `capacity`, with about `work` work at most.

    Deterministic: the same arguments give the same offsets.
    """
    if capacity < problem.lower_bound:
        return SearchOutcome(None, True, 0)
    if problem.rows > min(work, MAX_ROWS):
        return SearchOutcome(None, False, 0)
    return Search(problem, capacity).run(work)


class Search:
    """Search for one problem and capacity that can be continued.

    The problem has at most `MAX_ROWS` rows, and the capacity is at least its lower bound.
    """

    def __init__(self, problem: PlacementProblem, capacity: int) -> None:
        self._attempts = Attempts(problem, capacity)
        self._nodes = _SHARE * len(problem.size)
        self._ranks = _ranks(problem)
        self._setup_work = self._attempts.setup_work

    def run(self, work: int) -> SearchOutcome:
        """Try the next orders, with about `work` work at most.

        An order that is interrupted by this limit is not tried again.
        """
        done, self._setup_work = self._setup_work, 0
        for rank, times in self._ranks:
            outcome = self._attempts.run(rank, times * self._nodes, work - done)
            done += outcome.work
            if outcome.offsets is not None or outcome.is_impossible or done >= work:
                break
        return SearchOutcome(outcome.offsets, outcome.is_impossible, done)


def _ranks(problem: PlacementProblem) -> Iterator[tuple[Integers, int]]:
    """Yield orders without end, as the rank of each block and a multiple of the base node limit.

    The fixed orders put first the blocks with the longest life, those live at the highest live
    bytes (ties by area, then by life), and the earliest, because memory passed from operator to
    operator packs well in time order. The random orders multiply the area, the life or their
    product by random factors.
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
    """Return the rank of each block, the largest first; the first key is the primary one."""
    order = np.lexsort([-key for key in reversed(keys)])
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return rank
