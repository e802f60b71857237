"""The search for placements within a capacity, on problems whose best placement is known."""

from __future__ import annotations

import pytest
from puzzles import fits, puzzle

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
        outcome = search(given, UNITS, nodes=200_000)
        assert outcome.offsets is not None, seed
        assert fits(outcome.offsets, (given.size, given.begin, given.end), UNITS)


def test_what_cannot_fit_is_not_found() -> None:
    outcome = search(problem(5, 12), UNITS - 1, nodes=20_000)
    assert outcome.offsets is None
    assert outcome.is_impossible


def test_the_search_is_repeatable_and_keeps_its_budget() -> None:
    given = problem(123, 30)
    first, second = (search(given, UNITS, nodes=200_000) for _ in range(2))
    assert first.offsets is not None
    assert second.offsets is not None
    assert first.offsets.tobytes() == second.offsets.tobytes()
    assert first.nodes == second.nodes
    # Less than one node per block cannot place them all.
    for nodes in (0, 1, len(given.size) - 1):
        outcome = search(given, UNITS, nodes)
        assert outcome.offsets is None
        assert not outcome.is_impossible
        assert outcome.nodes == nodes


def test_steps_at_which_nothing_more_is_alive_make_no_sections() -> None:
    """Lifetimes as they are, and the fullest stretches of time that they come down to."""
    size, first, last = puzzle(4, 30, 24, UNITS, missing=1 / 3)
    given = sectioned(size, first, last)
    assert given.sections < len(set(first.tolist()))
    together = (first[:, None] < last) & (last[:, None] > first)
    sharing = (given.begin[:, None] < given.end) & (given.end[:, None] > given.begin)
    assert (together == sharing).all()
