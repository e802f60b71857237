"""Plain records of profiling results.

Times are nanoseconds of the system's monotonic clock, which `time.monotonic_ns` reads, so that
records from native loops and from Python share one time axis.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from mxrun.base.dataclass import dataclass


@dataclass(frozen=True)
class Event:
    """Time span on one track of a trace.

    category: kind of the event (`forward`, `step`, ...); arguments: further values to show.
    """

    name: str
    category: str
    track: str
    start_ns: int
    duration_ns: int
    arguments: Mapping[str, str | int | float]


@dataclass(frozen=True)
class CandidateTime:
    """Time of one candidate implementation, in milliseconds, when a step was autotuned."""

    implementation: str
    ms: float


@dataclass(frozen=True)
class OperatorTime:
    """Mean time of one step of a plan's phase over `calls` runs.

    name: the step's; op: its operator; phase: forward, backward, update or reorder.
    ms: milliseconds of one run; share: its fraction of all operators' time, 0 to 1.
    gflops, gbytes_per_s: 10^9 floating-point operations and least bytes moved, per second.
    candidates: the autotuned ones with their times, the preferred one first.
    """

    name: str
    op: str
    phase: str
    implementation: str
    calls: int
    ms: float
    share: float
    gflops: float
    gbytes_per_s: float
    candidates: tuple[CandidateTime, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the record as plain JSON."""
        return asdict(self)
