"""Attempts of the placement search: the native loop and its arrays, one static order at a time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mxrun.backend.jit import HostLoop
from mxrun.planner.allocator import search_loop as loop
from mxrun.planner.allocator.interval_compaction import Integers, PlacementProblem

# Maximum number of trail entries (changes that can be undone), 16 bytes each.
_MAX_TRAIL = 1 << 23
# Work counted for starting an attempt, and in addition for each block.
_START_WORK, _BLOCK_WORK = 100_000, 160


@dataclass(frozen=True)
class SearchOutcome:
    """Result of a search: the offsets found, or whether it proved that none exist.

    work: approximate number of blocks and sections examined.
    """

    offsets: Integers | None
    is_impossible: bool
    work: int


class Attempts:
    """Searches in any number of orders, for one problem and capacity."""

    def __init__(self, problem: PlacementProblem, capacity: int) -> None:
        self._problem = problem
        count, sections = len(problem.size), problem.sections
        crossing = np.zeros(sections + 1, np.int64)
        np.add.at(crossing, problem.begin, 1)
        np.add.at(crossing, problem.end - 1, -1)
        self._cuts = np.cumsum(crossing)[:-1]
        row_start, rows = _rows(problem)
        trail = min((count + 1) ** 2, _MAX_TRAIL)
        unknown = np.empty(count, np.int64)
        self._arrays: dict[int, Integers] = {
            loop.SIZE: problem.size,
            loop.BEGIN: problem.begin,
            loop.END: problem.end,
            loop.RANK: unknown.copy(),
            loop.TWIN: unknown.copy(),
            loop.ROW_START: row_start,
            loop.ROWS: rows,
            loop.LOWEST: unknown.copy(),
            loop.OFFSET: unknown.copy(),
            loop.LOW_ROW: np.empty(sections, np.int64),
            loop.TOTAL: np.empty(sections, np.int64),
            loop.CUT: np.empty(sections, np.int64),
            loop.MEMBERS: unknown.copy(),
            loop.FRAMES: np.empty(loop.FRAME_SLOTS * (count + 1), np.int64),
            loop.TRAIL: np.empty(2 * trail, np.int64),
            loop.RESULT: np.empty(loop.RESULT_SLOTS, np.int64),
        }
        numbers = {
            loop.COUNT: count,
            loop.CAPACITY: capacity,
            loop.NODES: 0,
            loop.WORK: 0,
            loop.TRAIL_ENTRIES: trail,
        }
        slots = numbers | {slot: array.ctypes.data for slot, array in self._arrays.items()}
        arguments = tuple(slots[slot] for slot in range(len(slots)))
        self._run = HostLoop(loop.search_loop, arguments, unlocked=True)

    @property
    def setup_work(self) -> int:
        """Work spent on preparing the arrays."""
        return len(self._arrays[loop.ROWS])

    def run(self, rank: Integers, nodes: int, work: int) -> SearchOutcome:
        """Search in one order from the start, with at most `nodes` nodes and `work` work."""
        arrays, count = self._arrays, len(self._problem.size)
        starts: dict[int, Integers | int] = {
            loop.RANK: rank,
            loop.TWIN: _twins(self._problem, rank),
            loop.LOWEST: 0,
            loop.OFFSET: -1,
            loop.LOW_ROW: arrays[loop.ROW_START][:-1],
            loop.TOTAL: self._problem.totals,
            loop.CUT: self._cuts,
            loop.MEMBERS: np.arange(count),
            loop.RESULT: 0,
        }
        for slot, start in starts.items():
            arrays[slot][:] = start
        first = arrays[loop.FRAMES]
        first[: loop.FRAME_SLOTS] = 0
        # Key of an imaginary block that was placed before all others, below them.
        first[loop.LAST] = count + 1
        first[loop.KEY_RANK] = -1
        self._run.set(loop.NODES, nodes)
        self._run.set(loop.WORK, work)
        self._run()
        status, done = map(int, arrays[loop.RESULT][[loop.STATUS, loop.WORK_DONE]])
        found = arrays[loop.OFFSET].copy() if status == loop.FOUND else None
        return SearchOutcome(
            found, status == loop.IMPOSSIBLE, done + _START_WORK + _BLOCK_WORK * count
        )


def _rows(problem: PlacementProblem) -> tuple[Integers, Integers]:
    """Return the start of each section's rows, and the blocks of all sections in a row."""
    change = np.bincount(problem.begin, minlength=problem.sections + 1)
    change -= np.bincount(problem.end, minlength=problem.sections + 1)
    starts = np.concatenate(([0], np.cumsum(np.cumsum(change)[:-1])))
    free, rows = starts.copy(), np.empty(starts[-1], np.int64)
    arrays = problem.begin, problem.end, free, rows
    HostLoop(loop.rows_loop, (len(problem.size), *(array.ctypes.data for array in arrays)))()
    return starts, rows


def _twins(problem: PlacementProblem, rank: Integers) -> Integers:
    """Return for each block the previous one in rank with equal size and lifetime, or -1."""
    order = np.lexsort((rank, problem.size, problem.end, problem.begin))
    key = np.stack((problem.begin, problem.end, problem.size))[:, order]
    alike = (key[:, 1:] == key[:, :-1]).all(axis=0)
    twins = np.full(len(order), -1, np.int64)
    twins[order[1:][alike]] = order[:-1][alike]
    return twins
