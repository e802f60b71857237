"""The search for placements within a capacity, on problems whose best placement is known."""

from __future__ import annotations

import numpy as np
import pytest
from puzzles import fits, puzzle

from mxrun.graph.attempt import Outcome
from mxrun.graph.search import search
from mxrun.graph.sections import Problem, sectioned

UNITS = 40


def problem(seed: int, count: int) -> Problem:
    found = sectioned(*puzzle(seed, count, 24, UNITS))
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
    """A row for each block of each section: of ten thousand, half at a time, too many."""
    size = np.ones(10_000, np.int64)
    first = np.arange(10_000)
    given = sectioned(size, first, first + 5_000)
    assert given.rows > 1 << 24
    assert search(given, given.lower_bound, work=1 << 40) == Outcome(None, False, 0)
    assert search(problem(5, 12), UNITS, work=10) == Outcome(None, False, 0)


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
    """Lifetimes as they are, and the fullest stretches of time that they come down to."""
    size, first, last = puzzle(4, 30, 24, UNITS, missing=1 / 3)
    given = sectioned(size, first, last)
    assert given.sections < len(set(first.tolist()))
    together = (first[:, None] < last) & (last[:, None] > first)
    sharing = (given.begin[:, None] < given.end) & (given.end[:, None] > given.begin)
    assert (together == sharing).all()
