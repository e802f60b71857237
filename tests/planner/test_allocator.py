"""Allocator: problems with known optimum, and all orders of tiny problems."""

from __future__ import annotations

import itertools
import os
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from puzzles import Blocks, fits, puzzle

from mxrun.commands.memory_problem import read_problem
from mxrun.planner.allocator.allocate import Allocation, allocate, lower_bound, solve

UNIT = 64


@pytest.fixture(autouse=True)
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Use an empty placement cache; compiled loops come from the usual cache."""
    small = puzzle(3, 80, 60, 1 << 20)
    assert allocated(small).order == "search"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def allocated(blocks: Blocks) -> Allocation:
    """Return the allocation after checking it against its own figures."""
    size, first, last = blocks
    allocation = allocate(size.tolist(), first.tolist(), last.tolist())
    assert fits(allocation.offsets, blocks, allocation.arena_bytes)
    assert allocation.lower_bound_bytes == lower_bound(size, first, last)
    assert allocation.lower_bound_bytes <= allocation.proved_bytes <= allocation.arena_bytes
    assert allocation.proved_optimal == (allocation.gap == 0)
    return allocation


def smallest_arena(blocks: Blocks) -> int:
    """Return the optimum by brute force: all orders, each block placed as low as possible."""
    size, first, last = (values.tolist() for values in blocks)
    smallest = sum(size)
    for order in itertools.permutations(range(len(size))):
        tops: dict[int, int] = {}
        for block in order:
            under = [
                top
                for other, top in tops.items()
                if first[other] < last[block] and first[block] < last[other]
            ]
            tops[block] = max(under, default=0) + size[block]
        smallest = min(smallest, max(tops.values()))
    return smallest


def test_tiny_problems_are_as_small_as_any_order_makes_them() -> None:
    random = np.random.default_rng(8)
    for _ in range(60):
        count = int(random.integers(1, 7))
        first = random.integers(0, 8, count)
        blocks = random.integers(1, 9, count), first, first + random.integers(1, 6, count)
        allocation = allocated(blocks)
        assert allocation.arena_bytes == smallest_arena(blocks)
        assert allocation.proved_optimal


@pytest.mark.parametrize("count", [10, 20, 40, 60])
def test_known_optima_are_found(count: int) -> None:
    for seed in range(12):
        size, first, last = puzzle(1000 * count + seed, count, 24, 40)
        allocation = allocated((size * UNIT, first, last))
        assert allocation.arena_bytes == 40 * UNIT
        assert allocation.proved_optimal


@pytest.mark.parametrize(
    ("count", "steps", "units"), [(200, 60, 200), (400, 60, 200), (400, 100, 1000)]
)
def test_known_optima_of_large_puzzles_are_found(count: int, steps: int, units: int) -> None:
    """A third of the pieces is missing, as real networks leave gaps as well."""
    for seed in range(4):
        blocks = puzzle(7 * seed + count, count, steps, units, missing=1 / 3)
        allocation = allocated(blocks)
        assert allocation.arena_bytes == units
        assert allocation.proved_optimal


@pytest.mark.full
def test_what_is_not_found_is_told_with_its_gap() -> None:
    """400 pieces without any gap between them: the remaining distance must be reported, however
    large.
    """
    blocks = puzzle(400, 400, 400, 1 << 20)
    allocation = allocated(blocks)
    assert allocation.lower_bound_bytes == 1 << 20
    assert allocation.gap == allocation.arena_bytes / allocation.proved_bytes - 1
    assert allocation.arena_bytes < 1.25 * (1 << 20)


@pytest.mark.full
@pytest.mark.parametrize(
    ("count", "life"),
    [pytest.param(50_000, 50_000, marks=pytest.mark.full), (50_000, 20)],
)
def test_huge_problems_are_answered(count: int, life: int) -> None:
    """Half of the blocks are live at a time, too many to list all pairs, or only a few."""
    random = np.random.default_rng(count)
    first = random.integers(0, count, count)
    blocks = random.integers(1, 1 << 20, count), first, first + random.integers(1, life, count)
    lists = [values.tolist() for values in blocks]
    tracemalloc.start()
    allocation = allocate(*lists)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 500 << 20
    assert allocation.gap < 0.25
    assert fits(allocation.offsets, blocks, allocation.arena_bytes)


@pytest.mark.full
def test_no_shape_of_problem_takes_more_work_than_others() -> None:
    """The search gives up after seconds for problems of any shape."""
    random = np.random.default_rng(1)
    shapes = [puzzle(150, 150, 60, 1 << 20), puzzle(400, 400, 400, 1 << 20)]
    for count, life in ((2_000, 2_000), (3_000, 300)):
        first = random.integers(0, count, count)
        size = random.integers(1, 1 << 20, count)
        shapes.append((size, first, first + random.integers(1, life, count)))
    for blocks in shapes:
        allocated(blocks)


def test_allocations_are_repeatable() -> None:
    for blocks in (puzzle(3, 40, 24, 40), puzzle(5, 200, 300, 1 << 20)):
        assert allocated(blocks) == allocated(blocks)


@pytest.mark.parametrize("name", ["C", "G", "K"])
def test_minimallocs_problems_reach_their_lower_bound(name: str) -> None:
    folder = os.environ.get("MXRUN_TEST_DATA")
    if folder is None:
        pytest.skip("MXRUN_TEST_DATA does not name a folder with MiniMalloc's problems")
    rows = read_problem(Path(folder) / f"minimalloc/{name}.1048576.csv")
    offsets, allocation = solve(rows)
    assert allocation.arena_bytes <= 1_048_576
    assert allocation.proved_optimal
    assert list(offsets) == [row[0] for row in rows]
    first, last, size = np.array([row[1:] for row in rows]).T
    assert fits(list(offsets.values()), (size, first, last), allocation.arena_bytes)


def test_a_list_of_blocks_is_solved_alone() -> None:
    offsets, allocation = solve([("a", 0, 2, 64), ("b", 1, 3, 64), ("c", 2, 4, 64)])
    assert allocation.arena_bytes == 128
    assert offsets["a"] != offsets["b"] != offsets["c"]


def test_blocks_without_bytes_or_life_take_nothing() -> None:
    assert allocate([], [], []) == Allocation((), 0, 0, 0, "none")
    assert allocate([0, 64], [0, 3], [2, 3]).arena_bytes == 0
    allocation = allocate([0, 64, 64], [0, -5, 3], [2, 10**15, 3])
    assert (allocation.offsets, allocation.arena_bytes) == ((0, 0, 0), 64)


@pytest.mark.parametrize("seed", range(6))
def test_training_steps_of_two_thousand_operators_reach_their_bound(seed: int) -> None:
    """Activations are live until backward or are soon freed; gradients are short-lived."""
    random = np.random.default_rng(seed)
    rows, end = [], 2000
    for step in range(end // 2):
        nbytes = int(random.integers(1, 200)) * UNIT * int(random.choice([1, 4, 16]))
        soon = min(step + int(random.integers(2, 6)), end)
        rows.append((nbytes, step, end - step if random.random() < 0.6 else soon))
        rows.append((nbytes, end - step - 1, min(end - step + 1, end)))
    size, first, last = np.array(rows, np.int64).T
    assert allocated((size, first, last)).proved_optimal


@pytest.mark.parametrize("seed", range(4))
def test_inference_of_two_thousand_operators_reaches_its_bound(seed: int) -> None:
    """A random graph: each tensor is read by the next operator, and some by later ones."""
    random = np.random.default_rng(seed)
    end = 2000
    first = np.arange(end)
    last = np.minimum(first + 2 + (random.random(end) < 0.3) * random.integers(1, 60, end), end)
    size = random.integers(1, 200, end) * UNIT * random.choice([1, 4, 16], end)
    assert allocated((size, first, last)).proved_optimal
