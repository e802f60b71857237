"""Placement search within a capacity, on problems with known optimum."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from puzzles import fits, puzzle

from mxrun.planner.allocator.allocate import FIRST_FIT_WORK, PORTION_WORK
from mxrun.planner.allocator.first_fit import Placement, first_fit
from mxrun.planner.allocator.interval_compaction import PlacementProblem, compact_lifetimes
from mxrun.planner.allocator.placement_search import SearchOutcome
from mxrun.planner.allocator.refine import refine
from mxrun.planner.allocator.search import Search, search

UNITS = 40


def problem(seed: int, count: int) -> PlacementProblem:
    found = compact_lifetimes(*puzzle(seed, count, 24, UNITS))
    assert found.lower_bound == UNITS
    return found


@pytest.mark.parametrize("count", [10, 15, 20, 25, 30])
def test_known_optima_are_found(count: int) -> None:
    for seed in range(12):
        given = problem(1000 * count + seed, count)
        outcome = search(given, UNITS, work=100_000_000)
        assert outcome.offsets is not None, seed
        assert fits(outcome.offsets, (given.size, given.begin, given.end), UNITS)


def test_what_cannot_fit_is_not_found() -> None:
    outcome = search(problem(5, 12), UNITS - 1, work=100_000_000)
    assert outcome.offsets is None
    assert outcome.is_impossible


def test_what_cannot_be_searched_in_time_or_memory_is_left_alone() -> None:
    """The table of blocks by section is too large for ten thousand blocks, half live at a time."""
    size = np.ones(10_000, np.int64)
    first = np.arange(10_000)
    given = compact_lifetimes(size, first, first + 5_000)
    assert given.rows > 1 << 24
    assert search(given, given.lower_bound, work=1 << 40) == SearchOutcome(None, False, 0)
    assert search(problem(5, 12), UNITS, work=10) == SearchOutcome(None, False, 0)


def test_the_search_is_repeatable_and_keeps_its_budget() -> None:
    given = problem(123, 30)
    first, second = (search(given, UNITS, work=100_000_000) for _ in range(2))
    assert first.offsets is not None
    assert second.offsets is not None
    assert first.offsets.tobytes() == second.offsets.tobytes()
    assert first.work == second.work
    one_attempt = search(given, UNITS, work=given.rows).work
    for work in (0, given.rows, given.rows + 500):
        outcome = search(given, UNITS, work)
        assert outcome.offsets is None
        assert not outcome.is_impossible
        assert outcome.work <= one_attempt + 1_000


def test_steps_at_which_nothing_more_is_alive_make_no_sections() -> None:
    """Lifetimes are compacted to the steps with a maximal set of live blocks."""
    size, first, last = puzzle(4, 30, 24, UNITS, missing=1 / 3)
    given = compact_lifetimes(size, first, last)
    assert given.sections < len(set(first.tolist()))
    together = (first[:, None] < last) & (last[:, None] > first)
    sharing = (given.begin[:, None] < given.end) & (given.end[:, None] > given.begin)
    assert (together == sharing).all()


def test_a_search_that_is_continued_ends_as_one_in_a_single_run() -> None:
    given = problem(30_005, 30)
    whole = search(given, UNITS, work=100_000_000)
    parts, portions = Search(given, UNITS), 0
    outcome = parts.run(0)
    while outcome.offsets is None and portions < 1000:
        outcome = parts.run(2_000_000)
        portions += 1
    assert whole.offsets is not None
    assert outcome.offsets is not None
    assert fits(outcome.offsets, (given.size, given.begin, given.end), UNITS)


def refined(given: PlacementProblem, start: Placement, proved: int) -> list[tuple[Placement, int]]:
    return list(refine(given, start, proved, PORTION_WORK))


def test_refining_ends_with_what_is_proved_to_be_the_least() -> None:
    """From a first-fit placement, no portion makes it worse; two searches give the same result."""
    random = np.random.default_rng(0)
    improved = 0
    for _ in range(60):
        first = random.integers(0, 12, 14)
        last = first + random.integers(1, 8, 14)
        given = compact_lifetimes(random.integers(1, 9, 14), first, last)
        start = first_fit(given, FIRST_FIT_WORK)
        after_start = refined(given, start, given.lower_bound)
        states = [(start, given.lower_bound), *after_start]
        for (before, proved), (after, proved_then) in pairwise(states):
            assert after.arena_bytes <= before.arena_bytes
            assert proved <= proved_then
        best, proved = states[-1]
        assert best.arena_bytes == proved
        assert fits(best.offsets, (given.size, given.begin, given.end), best.arena_bytes)
        improved += best.arena_bytes < start.arena_bytes
        again = refined(given, start, given.lower_bound)
        assert [each.arena_bytes for each, _ in again] == [e.arena_bytes for e, _ in after_start]
    assert improved


def test_refining_learns_which_arenas_are_too_small() -> None:
    given = problem(5, 12)
    start = first_fit(given, FIRST_FIT_WORK)
    *_, (best, proved) = refined(given, start, UNITS - 3)
    assert best.arena_bytes == proved == UNITS
    assert fits(best.offsets, (given.size, given.begin, given.end), UNITS)
