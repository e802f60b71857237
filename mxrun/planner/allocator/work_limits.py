"""Work limits of placement, in blocks and sections examined.

Counts and not times, so that plans are reproducible. A second or two each: the interpreter examines
a three-hundredth of the blocks that machine code examines in that time.
"""

from __future__ import annotations

from dataclasses import dataclass

from mxrun.codegen.interpreted import may_load_code


@dataclass(frozen=True)
class WorkLimits:
    """Work limits of all first-fit placements, of the search, and of a portion of its continuation.

    cached: results of searches with at least this work, a few milliseconds, are cached on disk.
    """

    first_fit: int
    search: int
    portion: int
    cached: int


COMPILED = WorkLimits(
    first_fit=600_000_000, search=1_000_000_000, portion=400_000_000, cached=5_000_000
)
INTERPRETED = WorkLimits(first_fit=2_000_000, search=3_000_000, portion=1_200_000, cached=15_000)


def work_limits() -> WorkLimits:
    """Return the limits for the loops that are made now."""
    return COMPILED if may_load_code() else INTERPRETED
