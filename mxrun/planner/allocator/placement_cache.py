"""Placements that took a search, kept for later processes, so that none repeats the search.

An entry is named by the problem and by the code that searches, and says what that code found: with
it or without it, the same problem has the same offsets. What was changed since it was written, or
is no placement, is as if it were not there.
"""

from __future__ import annotations

import hashlib
import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from mxrun.backend import philox
from mxrun.base import disk_cache
from mxrun.planner.allocator.first_fit import Placement
from mxrun.planner.allocator.interval_compaction import Integers, PlacementProblem

# The folder of placements among what is kept, and how many it holds.
KIND = "placements"
_MAX_ENTRIES = 256
# A larger problem's entry would be a megabyte and more.
_MAX_BLOCKS = 20_000
# What decides the offsets: files of this folder.
_SOURCES = (
    "placement_search",
    "first_fit",
    "allocate",
    "search",
    "search_loop",
    "interval_compaction",
)
# Offsets are 64 bits wide.
_END = 1 << 62


def find_placement(problem: PlacementProblem, most: int) -> tuple[Placement, int] | None:
    """The placement kept for a problem in at most so many bytes, and the bytes proved necessary.

    None where there is none that is sound.
    """
    if len(problem.size) > _MAX_BLOCKS:
        return None
    figures = disk_cache.get(KIND, _key(problem))
    if not isinstance(figures, dict) or figures.pop("digest", None) != _digest(figures):
        return None
    try:
        offsets = np.array([int(offset) for offset in figures["offsets"]], np.int64)
        proved, order = int(figures["proved_bytes"]), str(figures["order"])
    except (KeyError, OverflowError, TypeError, ValueError):
        return None
    if len(offsets) != len(problem.size) or not all(0 <= offset <= _END for offset in offsets):
        return None
    arena = int((offsets + problem.size).max())
    if arena > most or not problem.lower_bound <= proved <= arena or _overlaps(problem, offsets):
        return None
    return Placement(offsets, arena, order), proved


def keep_placement(problem: PlacementProblem, placement: Placement, proved: int) -> None:
    """Keep what a search came to; entries of long ago go."""
    if len(problem.size) > _MAX_BLOCKS:
        return
    figures = {
        "offsets": placement.offsets.tolist(),
        "proved_bytes": proved,
        "order": placement.order,
    }
    disk_cache.put(KIND, _key(problem), figures | {"digest": _digest(figures)}, _MAX_ENTRIES)


def _key(problem: PlacementProblem) -> str:
    arrays = problem.size, problem.begin, problem.end, problem.life
    content = b"".join(np.ascontiguousarray(array, "<i8").tobytes() for array in arrays)
    digest = hashlib.sha256(content).hexdigest()
    return f"blocks: {len(problem.size)}\nproblem: {digest}\ncode: {_code()}"


@cache
def _code() -> str:
    """A digest of all that decides where blocks lie."""
    files = [Path(philox.__file__), *(Path(__file__).with_name(f"{name}.py") for name in _SOURCES)]
    return hashlib.sha256(b"\0".join(file.read_bytes() for file in files)).hexdigest()


def _digest(figures: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(figures, sort_keys=True).encode()).hexdigest()


def _overlaps(problem: PlacementProblem, offsets: Integers) -> bool:
    """Whether blocks lie on each other, gone through from the lowest to the highest."""
    tops = np.zeros(problem.sections, np.int64)
    for block in np.argsort(offsets, kind="stable"):
        under = tops[problem.begin[block] : problem.end[block]]
        if under.max() > offsets[block]:
            return True
        under[:] = offsets[block] + problem.size[block]
    return False
