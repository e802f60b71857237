"""Disk cache of placements that took a search, so that later processes do not repeat it.

The key of an entry covers the problem and the searching code with its work limits, and the entry
holds that code's result: the offsets of a problem are the same with the cache or without. Entries
that were modified since they were written, or that hold no valid placement, are ignored.
"""

from __future__ import annotations

import hashlib
import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from mxrun.base import disk_cache
from mxrun.codegen import philox
from mxrun.planner.allocator.first_fit import Placement
from mxrun.planner.allocator.interval_compaction import Integers, PlacementProblem

# Name of this cache, and the maximum number of its entries.
KIND = "placements"
_MAX_ENTRIES = 256
# The entry of a larger problem would exceed a megabyte.
_MAX_BLOCKS = 20_000
# Files of this folder that decide the offsets.
_SOURCES = (
    "placement_search",
    "first_fit",
    "allocate",
    "search",
    "search_loop",
    "interval_compaction",
)
# Upper limit of an offset, which has 64 bits.
_END = 1 << 62


def find_placement(problem: PlacementProblem, max_bytes: int) -> tuple[Placement, int] | None:
    """Return the cached placement of a problem, and its proved minimum size in bytes.

    None if there is no valid entry, or if its placement needs more than `max_bytes` bytes.
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
    if (
        arena > max_bytes
        or not problem.lower_bound <= proved <= arena
        or _overlaps(problem, offsets)
    ):
        return None
    return Placement(offsets, arena, order), proved


def keep_placement(problem: PlacementProblem, placement: Placement, proved: int) -> None:
    """Store the result of a search; the oldest entries beyond the maximum are removed."""
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
    """Return a digest of all source files that decide the offsets."""
    files = [Path(philox.__file__), *(Path(__file__).with_name(f"{name}.py") for name in _SOURCES)]
    return hashlib.sha256(b"\0".join(file.read_bytes() for file in files)).hexdigest()


def _digest(figures: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(figures, sort_keys=True).encode()).hexdigest()


def _overlaps(problem: PlacementProblem, offsets: Integers) -> bool:
    """Return whether any blocks overlap, by a sweep over the blocks in order of offset."""
    tops = np.zeros(problem.sections, np.int64)
    for block in np.argsort(offsets, kind="stable"):
        under = tops[problem.begin[block] : problem.end[block]]
        if under.max() > offsets[block]:
            return True
        under[:] = offsets[block] + problem.size[block]
    return False
