"""Continued search for a better placement, in portions of work.

The default search stops after a second or two. This one starts with its result and alternates
between the proved minimum size of the arena and capacities between that and the best known
placement, successively nearer to the latter.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from mxrun.planner.allocator.first_fit import Placement
from mxrun.planner.allocator.interval_compaction import PlacementProblem
from mxrun.planner.allocator.search import MAX_ROWS, Search


def refine(
    problem: PlacementProblem, best: Placement, proved: int, portion: int
) -> Iterator[tuple[Placement, int]]:
    """Yield the best placement and the proved minimum size after each portion of work.

    portion: limit of the work, in blocks and sections examined; the n-th portion always gives the
    same result. Ends when both are equal, or at once if the problem is too large to be searched.
    """
    if problem.rows > MAX_ROWS:
        return
    # Every offset is a sum of block sizes, so arena sizes are multiples of this.
    unit = math.gcd(*map(int, problem.size))
    searches: dict[int, Search] = {}
    round_number = 0
    while best.arena_bytes > proved:
        capacity = _capacity(
            proved=proved, arena=best.arena_bytes, unit=unit, round_number=round_number
        )
        if capacity not in searches:
            searches[capacity] = Search(problem, capacity)
        outcome = searches[capacity].run(portion)
        round_number += 1
        if outcome.offsets is not None:
            arena = int((outcome.offsets + problem.size).max())
            best = replace(best, offsets=outcome.offsets, arena_bytes=arena, order="search")
            round_number = 0
        elif outcome.is_impossible:
            proved = capacity + unit
            round_number = 0
        open_sizes = range(proved, best.arena_bytes)
        searches = {size: each for size, each in searches.items() if size in open_sizes}
        yield best, proved


def _capacity(proved: int, arena: int, unit: int, round_number: int) -> int:
    """Return the capacity to try: the proved minimum in even rounds, a bisection in odd ones."""
    units = (arena - proved) // unit
    # Distance below the best placement: half of the gap, a quarter, and so on down to one unit.
    halvings = max(units.bit_length() - 1, 1)
    if round_number % 2 == 0:
        return proved
    return arena - max(units >> (round_number // 2 % halvings + 1), 1) * unit
