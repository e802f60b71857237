"""How long this thread was ready to run while other threads had the cores."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

# Of the calling thread: nanoseconds on a core, nanoseconds waiting for one, and turns
# (Linux's Documentation/scheduler/sched-stats.rst).
_STATISTICS = Path("/proc/thread-self/schedstat")


def core_wait_s() -> float | None:
    """Seconds that the calling thread has waited for a core; None where Linux does not tell."""
    with suppress(OSError, ValueError, IndexError):
        return int(_STATISTICS.read_text().split()[1]) * 1e-9
    return None
