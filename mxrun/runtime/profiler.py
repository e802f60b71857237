"""What profiling finds, as plain records; who measures and who shows them is elsewhere.

Times are nanoseconds of the system's monotonic clock, the one that `time.monotonic_ns` reads, so
that records from native loops and from Python stand on one axis.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Event:
    """One stretch of time on one track of a trace.

    category: what kind of thing it is (`forward`, `step`, ...); arguments: what else to show of it.
    """

    name: str
    category: str
    track: str
    start_ns: int
    duration_ns: int
    arguments: Mapping[str, str | int | float]


@dataclass(frozen=True)
class CandidateTime:
    """What one candidate took, in milliseconds, when a step's implementation was chosen."""

    implementation: str
    ms: float


@dataclass(frozen=True)
class OperatorTime:
    """What one step of a plan's phase took on the average over `calls` runs.

    name: the step's; op: its operator; phase: forward, backward, update or reorder.
    ms: milliseconds of one run; share: its part of all operators' time, 0 to 1.
    gflops, gbytes_per_s: 10^9 floating-point operations and least bytes moved, per second.
    candidates: those that were timed beforehand, the preferred one first.
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
        """The record for machines."""
        return asdict(self)
