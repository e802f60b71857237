"""The placement cache saves search time in later processes and changes no result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from puzzles import Blocks, puzzle

from mxrun.planner.allocator.allocate import FIRST_FIT_WORK, Allocation, allocate
from mxrun.planner.allocator.first_fit import Placement, first_fit
from mxrun.planner.allocator.interval_compaction import PlacementProblem, compact_lifetimes
from mxrun.planner.allocator.placement_cache import KIND, find_placement, keep_placement

# First-fit misses the optimum of these pieces, and the search takes a while.
PIECES: Blocks = puzzle(200, 200, 400, 1 << 20)
PROBLEM = compact_lifetimes(*PIECES)


def allocated(blocks: Blocks = PIECES) -> Allocation:
    return allocate(*(values.tolist() for values in blocks))


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of the cache entries; compiled loops come from the usual cache."""
    allocated()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "mxrun" / KIND


def fallback() -> Placement:
    """Return a valid placement that the search would not find."""
    placement = first_fit(PROBLEM, FIRST_FIT_WORK)
    assert placement.arena_bytes > PROBLEM.lower_bound
    return replace(placement, order="kept")


def test_an_allocation_is_the_same_with_and_without_what_was_kept(folder: Path) -> None:
    fresh = allocated()
    assert fresh.order == "search"
    assert len(list(folder.iterdir())) == 1
    assert allocated() == fresh


def test_what_was_kept_is_taken() -> None:
    placement = fallback()
    keep_placement(PROBLEM, placement, PROBLEM.lower_bound)
    found = allocated()
    assert found.order == "kept"
    assert found.offsets == tuple(placement.offsets.tolist())
    assert found.arena_bytes == placement.arena_bytes
    assert found.proved_bytes == PROBLEM.lower_bound


def test_a_proof_is_kept_as_well() -> None:
    placement = fallback()
    keep_placement(PROBLEM, placement, placement.arena_bytes)
    assert allocated().proved_optimal


def test_another_problem_is_another_entry() -> None:
    keep_placement(PROBLEM, fallback(), PROBLEM.lower_bound)
    size, first, last = PIECES
    for other in ((size + 1, first, last), (size, first, last + (last == last.max()))):
        assert find_placement(compact_lifetimes(*other), 1 << 40) is None


def keep_offsets(offsets: np.ndarray, proved: int = PROBLEM.lower_bound) -> None:
    arena = int((offsets + PROBLEM.size[: len(offsets)]).max())
    keep_placement(PROBLEM, Placement(offsets, arena, "kept"), proved)


@pytest.mark.parametrize(
    "keep",
    [
        lambda good: keep_offsets(np.zeros_like(good)),
        lambda good: keep_offsets(good - 1),
        lambda good: keep_offsets(good + 1),
        lambda good: keep_offsets(good[:-1]),
        lambda good: keep_offsets(good, PROBLEM.lower_bound - 1),
        lambda good: keep_offsets(good, 1 << 40),
    ],
    ids=["overlapping", "below 0", "too large", "too few", "less than alive", "more than needed"],
)
def test_what_is_no_placement_is_not_taken(keep: Callable[[np.ndarray], None]) -> None:
    keep(fallback().offsets)
    found = allocated()
    assert found.order == "search"
    assert found.proved_optimal


def test_a_damaged_entry_is_as_if_absent(folder: Path) -> None:
    fresh = allocated()
    (entry,) = folder.iterdir()
    content = entry.read_bytes()
    offset = content.index(b'"offsets": [') + 20
    digit = bytes([content[offset] ^ 1])
    for damaged in (
        b"",
        content[: len(content) // 2],
        content[:offset] + digit + content[offset + 1 :],
        content.replace(b'"search"', b'"shelved"'),
        b'{"of": 1}',
        b"\xff" * 100,
    ):
        entry.write_bytes(damaged)
        assert allocated() == fresh
        assert entry.read_bytes() == content


def test_what_took_no_time_is_not_kept(folder: Path) -> None:
    blocks = puzzle(3, 80, 60, 1 << 20)
    assert allocated(blocks).order == "search"
    assert not folder.exists()


def test_a_folder_that_cannot_be_written_costs_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fresh = allocated()
    blocked = tmp_path / "file"
    blocked.write_text("")
    for home in (str(blocked), "relative"):
        monkeypatch.setenv("XDG_CACHE_HOME", home)
        assert allocated() == fresh


def test_a_huge_problem_is_not_kept(folder: Path) -> None:
    count = 20_001
    first = np.arange(count)
    huge = compact_lifetimes(np.ones(count, np.int64), first, first + 1)
    assert isinstance(huge, PlacementProblem)
    keep_placement(huge, Placement(np.zeros(count, np.int64), 1, "kept"), 1)
    assert not folder.exists()
    assert find_placement(huge, 1) is None
