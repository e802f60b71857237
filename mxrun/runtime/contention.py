"""Time that the calling thread spends ready to run while other threads occupy the cores."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

# Fields for the calling thread: nanoseconds on a core, nanoseconds waiting for a core, number of
# time slices (Linux's Documentation/scheduler/sched-stats.rst).
_STATISTICS = Path("/proc/thread-self/schedstat")


def core_wait_s() -> float | None:
    """Return the seconds this thread has waited for a core; None if Linux does not report them."""
    with suppress(OSError, ValueError, IndexError):
        return int(_STATISTICS.read_text().split()[1]) * 1e-9
    return None
