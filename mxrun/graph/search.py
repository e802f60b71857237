"""A canonical depth-first search for a placement of blocks within a given capacity.

Any placement can be pushed down until every block lies at 0 or on another; placing the blocks of
such a normal form by rising offset, each lies exactly at its lowest free offset. So it is enough to
search those sequences (the idea of MiniMalloc: Moffitt, ASPLOS 2023): a block that could be slid
wholly under a candidate rules the candidate out, and so does a step at which what is placed and
what is still to come exceed the capacity.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.int64]


@dataclass
class _Budget:
    """Nodes the search may still visit: a count and not a time, so that plans are repeatable."""

    nodes: int


class _Search:
    def __init__(
        self, size: Integers, begin: Integers, end: Integers, capacity: int, rank: Integers
    ) -> None:
        self.size, self.begin, self.end = size, begin, end
        self.capacity = capacity
        self.rank = rank
        steps = np.arange(int(end.max()))
        self.alive = (begin[:, None] <= steps) & (steps < end[:, None])
        self.overlap = (begin[:, None] < end[None, :]) & (end[:, None] > begin[None, :])
        self.offsets = np.full(len(size), -1, np.int64)

    def run(self, budget: _Budget) -> bool:
        """Whether a placement was found within the budget."""
        count = len(self.size)
        lowest = np.zeros(count, np.int64)
        unplaced = np.ones(count, bool)
        floors = np.zeros(self.alive.shape[1], np.int64)
        # One frame per placed block: what to try there, and the state to go back to.
        stack = [(self._candidates(lowest, unplaced, floors, 0), lowest, floors, -1)]
        while stack:
            candidates, lowest, floors, _ = stack[-1]
            block = next(candidates, None)
            if block is None or budget.nodes <= 0:
                if budget.nodes <= 0:
                    return False
                placed = stack.pop()[3]
                if placed >= 0:
                    unplaced[placed] = True
                    self.offsets[placed] = -1
                continue
            budget.nodes -= 1
            offset = int(lowest[block])
            top = offset + int(self.size[block])
            unplaced[block] = False
            self.offsets[block] = offset
            if not unplaced.any():
                return True
            raised = np.where(self.overlap[block] & unplaced, np.maximum(lowest, top), lowest)
            lifted = np.where(self.alive[block], top, floors)
            following = self._candidates(raised, unplaced, lifted, offset)
            stack.append((following, raised, lifted, block))
        return False

    def _candidates(
        self, lowest: Integers, unplaced: npt.NDArray[np.bool_], floors: Integers, offset: int
    ) -> Iterator[int]:
        """Blocks to place next at `offset` or above, lowest first; none when it cannot end well."""
        tops = lowest + self.size
        if (tops[unplaced] > self.capacity).any():
            return iter(())
        to_come = (self.size[:, None] * (self.alive & unplaced[:, None])).sum(axis=0)
        needed = np.where(to_come > 0, np.maximum(floors, offset) + to_come, 0)
        if (needed > self.capacity).any():
            return iter(())
        chosen = np.flatnonzero(unplaced & (lowest >= offset))
        if not len(chosen):
            return iter(())
        chosen = chosen[lowest[chosen] < tops[chosen].min()]
        order = np.lexsort((self.rank[chosen], lowest[chosen]))
        return iter([int(block) for block in chosen[order]])


def search(
    size: Integers, begin: Integers, end: Integers, capacity: int, nodes: int
) -> Integers | None:
    """Offsets at which all blocks fit `capacity`, or None when `nodes` steps found none.

    Sizes in bytes; lifetimes half-open [begin, end). Four static orders take turns with a growing
    share of the nodes.
    """
    width = end - begin
    orders = [
        # In the order of the steps: what the first-fit orders miss often ends well at once.
        np.lexsort((-size, begin)),
        np.lexsort((-width, -size * width, -size)),
        np.lexsort((-size, -size * width, -width)),
        np.lexsort((-size, -width, -size * width)),
    ]
    share = 4 * len(size)
    while nodes > 0:
        for order in orders:
            rank = np.empty_like(order)
            rank[order] = np.arange(len(order))
            attempt = _Search(size, begin, end, capacity, rank)
            if attempt.run(_Budget(min(share, nodes))):
                return attempt.offsets
            nodes -= share
        share *= 2
    return None
