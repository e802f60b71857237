"""A search that goes on for as long as it is wanted, in portions of work.

The usual search gives up after a second or two. This one begins with what that one found, and looks
in turn at the least arena that may be possible and at capacities between it and the best placement
known, nearer and nearer to the latter.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from mxrun.planner.allocator.first_fit import Placement
from mxrun.planner.allocator.interval_compaction import PlacementProblem
from mxrun.planner.allocator.search import MAX_ROWS, Search

# The work of one portion: about half a second.
_PORTION = 400_000_000


def refine(
    problem: PlacementProblem, best: Placement, proved: int
) -> Iterator[tuple[Placement, int]]:
    """After each portion the best placement and the bytes proved necessary.

    Ends where both meet, or where the problem is too large to be searched. The n-th portion gives
    the same whenever it is asked for.
    """
    if problem.rows > MAX_ROWS:
        return
    # Whatever lies on others lies at a sum of sizes, so that arenas differ by this at least.
    unit = math.gcd(*map(int, problem.size))
    searches: dict[int, Search] = {}
    turn = 0
    while best.arena_bytes > proved:
        capacity = _capacity(proved, best.arena_bytes, unit, turn)
        if capacity not in searches:
            searches[capacity] = Search(problem, capacity)
        outcome = searches[capacity].run(_PORTION)
        turn += 1
        if outcome.offsets is not None:
            arena = int((outcome.offsets + problem.size).max())
            best = replace(best, offsets=outcome.offsets, arena_bytes=arena, order="search")
            turn = 0
        elif outcome.is_impossible:
            proved = capacity + unit
            turn = 0
        open_sizes = range(proved, best.arena_bytes)
        searches = {size: each for size, each in searches.items() if size in open_sizes}
        yield best, proved


def _capacity(proved: int, arena: int, unit: int, turn: int) -> int:
    """Every other turn the least that may be possible; the others halve what is left above it."""
    units = (arena - proved) // unit
    # Distances below the best: half of what there is, a quarter, and so on down to one unit.
    halvings = max(units.bit_length() - 1, 1)
    if turn % 2 == 0:
        return proved
    return arena - max(units >> (turn // 2 % halvings + 1), 1) * unit
