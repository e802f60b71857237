"""Offsets for blocks of known size and lifetime, compared with the lower bound.

The lower bound is the maximum of the live bytes: the largest sum of the sizes of blocks that are
live at one step. First-fit orders reach it on most networks. Where none does, a search looks for a
placement at the bound, then between the bound and the best known placement. The result states how
much smaller the arena could be at most.

The module can be used alone, on a list of (id, first, last, size) with lifetimes [first, last):

    offsets, allocation = solve([("a", 0, 2, 64), ("b", 1, 3, 64), ("c", 2, 4, 64)])
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain

import numpy as np

from mxrun.base.dataclass import dataclass
from mxrun.planner.allocator.first_fit import Placement, first_fit
from mxrun.planner.allocator.interval_compaction import (
    Integers,
    PlacementProblem,
    compact_lifetimes,
)
from mxrun.planner.allocator.placement_cache import find_placement, keep_placement
from mxrun.planner.allocator.refine import refine
from mxrun.planner.allocator.search import search

# Share of the search's work spent at the bound, and share of the rest spent on one capacity above.
_AT_BOUND = 1 / 2
_ABOVE = 1 / 6
# Work limits, in blocks and sections examined, of all first-fit placements, of the search, and of a
# portion of its continuation: a second or two each. Counts and not times, so that plans are
# reproducible.
FIRST_FIT_WORK = 600_000_000
PORTION_WORK = 400_000_000
_SEARCH_WORK = 1_000_000_000
# Results of searches with at least this work, a few milliseconds, are cached on disk.
_CACHED_WORK = 5_000_000


@dataclass(frozen=True)
class Allocation:
    """Offsets in bytes, one per block, the size of the arena, and bounds on smaller arenas.

    lower_bound_bytes: maximum of the live bytes. proved_bytes: size below which no placement
    exists; the search may have proved more than the lower bound. order: the order or method that
    found the offsets.
    """

    offsets: tuple[int, ...]
    arena_bytes: int
    lower_bound_bytes: int
    proved_bytes: int
    order: str

    @property
    def proved_optimal(self) -> bool:
        """True if no placement needs less memory."""
        return self.arena_bytes == self.proved_bytes

    @property
    def gap(self) -> float:
        """Upper bound on the relative excess over the smallest arena.

        Equal to arena_bytes / proved_bytes - 1.
        """
        return self.arena_bytes / self.proved_bytes - 1 if self.proved_bytes else 0.0


def solve(blocks: Iterable[tuple[str, int, int, int]]) -> tuple[dict[str, int], Allocation]:
    """Return the offset of each (id, first, last, size), and the allocation.

    Sizes are in bytes, lifetimes half-open.
    """
    return next(solve_incrementally(blocks))


def solve_incrementally(
    blocks: Iterable[tuple[str, int, int, int]],
) -> Iterator[tuple[dict[str, int], Allocation]]:
    """Yield the result of `solve`, then the best result after each further portion of search.

    Ends once no placement can be better.
    """
    rows = list(blocks)
    columns = ([row[column] for row in rows] for column in (3, 1, 2))
    for allocation in _allocations(*(np.asarray(values, np.int64) for values in columns)):
        names = (name for name, *_ in rows)
        yield dict(zip(names, allocation.offsets, strict=True)), allocation


def lower_bound(sizes: Integers, first: Integers, last: Integers) -> int:
    """Return the maximum of the live bytes; lifetimes are half-open [first, last)."""
    occupying = (sizes > 0) & (last > first)
    if not occupying.any():
        return 0
    return compact_lifetimes(sizes[occupying], first[occupying], last[occupying]).lower_bound


def allocate(sizes: Sequence[int], first: Sequence[int], last: Sequence[int]) -> Allocation:
    """Place blocks of `sizes` bytes, each live during [first, last), without overlap.

    Deterministic: the same blocks in the same order get the same offsets.
    """
    return next(_allocations(*(np.asarray(each, np.int64) for each in (sizes, first, last))))


def _allocations(size: Integers, begin: Integers, end: Integers) -> Iterator[Allocation]:
    """Yield the default allocation, then one after each further portion of search."""
    offsets = np.zeros_like(size)
    occupying = (size > 0) & (end > begin)
    if not occupying.any():
        yield Allocation(tuple(map(int, offsets)), 0, 0, 0, "none")
        return
    problem = compact_lifetimes(size[occupying], begin[occupying], end[occupying])
    placed = _placed(problem)
    for placement, proved in chain([placed], refine(problem, *placed, PORTION_WORK)):
        offsets[occupying] = placement.offsets
        yield Allocation(
            offsets=tuple(map(int, offsets)),
            arena_bytes=placement.arena_bytes,
            lower_bound_bytes=problem.lower_bound,
            proved_bytes=proved,
            order=placement.order,
        )


def _placed(problem: PlacementProblem) -> tuple[Placement, int]:
    """Return a placement and the proved minimum size of the arena."""
    bound = problem.lower_bound
    placement = first_fit(problem, FIRST_FIT_WORK)
    if placement.arena_bytes == bound:
        return placement, bound
    known = find_placement(problem, placement.arena_bytes)
    if known is not None:
        return known
    found, proved, work = _searched(problem, placement, _SEARCH_WORK)
    if work >= _CACHED_WORK:
        keep_placement(problem, found, proved)
    return found, proved


def _searched(problem: PlacementProblem, best: Placement, work: int) -> tuple[Placement, int, int]:
    """Search for a better placement; return it, the proved minimum size, and the work done."""
    bound = problem.lower_bound
    outcome = search(problem, bound, int(work * _AT_BOUND))
    if outcome.offsets is not None:
        return Placement(outcome.offsets, bound, "search"), bound, outcome.work
    # Every offset is a sum of block sizes, so arena sizes are multiples of this.
    unit = math.gcd(*map(int, problem.size))
    proved = bound + unit if outcome.is_impossible else bound
    found, proved, done = _between(problem, best, proved, unit, work - outcome.work)
    return found, proved, outcome.work + done


def _between(
    problem: PlacementProblem, best: Placement, proved: int, unit: int, work: int
) -> tuple[Placement, int, int]:
    """Bisect between the lower bound and the best placement while work is left."""
    missed, allowed = problem.lower_bound, work
    share = int(work * _ABOVE)
    while work > 0 and best.arena_bytes - missed > unit:
        capacity = missed + (best.arena_bytes - missed) // unit // 2 * unit
        outcome = search(problem, capacity, min(work, share))
        # Each search counts at least 1, so that the loop ends.
        work -= max(outcome.work, 1)
        if outcome.offsets is not None:
            arena = int((outcome.offsets + problem.size).max())
            best = replace(best, offsets=outcome.offsets, arena_bytes=arena, order="search")
            continue
        missed = capacity
        if outcome.is_impossible:
            proved = capacity + unit
    return best, proved, allowed - work
