"""Attempts of the placement search: the native loop and its arrays, one static order at a time."""

from __future__ import annotations

import numpy as np

from mxrun.base.dataclass import dataclass
from mxrun.codegen.host_loop import HostLoop
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
        # Arrays by the name of the argument.
        self._arrays: dict[str, Integers] = {
            "size": problem.size,
            "begin": problem.begin,
            "end": problem.end,
            "rank": unknown.copy(),
            "twin": unknown.copy(),
            "row_start": row_start,
            "rows": rows,
            "lowest": unknown.copy(),
            "offset": unknown.copy(),
            "low_row": np.empty(sections, np.int64),
            "total": np.empty(sections, np.int64),
            "cut": np.empty(sections, np.int64),
            "members": unknown.copy(),
            "frames": np.empty(loop.FRAME_SLOTS * (count + 1), np.int64),
            "trail": np.empty(2 * trail, np.int64),
            "result": np.empty(loop.RESULT_SLOTS, np.int64),
        }
        attempt = loop.Attempt(
            count=count,
            capacity=capacity,
            nodes=0,
            work=0,
            trail_entries=trail,
            **self._arrays,
        )
        self._run = HostLoop(loop.search_loop, attempt, unlocked=True)

    @property
    def setup_work(self) -> int:
        """Work spent on preparing the arrays."""
        return len(self._arrays["rows"])

    def run(self, rank: Integers, nodes: int, work: int) -> SearchOutcome:
        """Search in one order from the start, with at most `nodes` nodes and `work` work."""
        arrays, count = self._arrays, len(self._problem.size)
        starts: dict[str, Integers | int] = {
            "rank": rank,
            "twin": _twins(self._problem, rank),
            "lowest": 0,
            "offset": -1,
            "low_row": arrays["row_start"][:-1],
            "total": self._problem.totals,
            "cut": self._cuts,
            "members": np.arange(count),
            "result": 0,
        }
        for name, start in starts.items():
            arrays[name][:] = start
        first = arrays["frames"]
        first[: loop.FRAME_SLOTS] = 0
        # Key of an imaginary block that was placed before all others, below them.
        first[loop.LAST] = count + 1
        first[loop.KEY_RANK] = -1
        self._run.set("nodes", nodes)
        self._run.set("work", work)
        self._run()
        status, done = map(int, arrays["result"][[loop.STATUS, loop.WORK_DONE]])
        found = arrays["offset"].copy() if status == loop.FOUND else None
        return SearchOutcome(
            found, status == loop.IMPOSSIBLE, done + _START_WORK + _BLOCK_WORK * count
        )


def _rows(problem: PlacementProblem) -> tuple[Integers, Integers]:
    """Return the start of each section's rows, and the blocks of all sections in a row."""
    change = np.bincount(problem.begin, minlength=problem.sections + 1)
    change -= np.bincount(problem.end, minlength=problem.sections + 1)
    starts = np.concatenate(([0], np.cumsum(np.cumsum(change)[:-1])))
    free, rows = starts.copy(), np.empty(starts[-1], np.int64)
    listing = loop.SectionRows(
        count=len(problem.size),
        begin=problem.begin,
        end=problem.end,
        free=free,
        rows=rows,
    )
    HostLoop(loop.rows_loop, listing)()
    return starts, rows


def _twins(problem: PlacementProblem, rank: Integers) -> Integers:
    """Return for each block the previous one in rank with equal size and lifetime, or -1."""
    order = np.lexsort((rank, problem.size, problem.end, problem.begin))
    key = np.stack((problem.begin, problem.end, problem.size))[:, order]
    alike = (key[:, 1:] == key[:, :-1]).all(axis=0)
    twins = np.full(len(order), -1, np.int64)
    twins[order[1:][alike]] = order[:-1][alike]
    return twins
