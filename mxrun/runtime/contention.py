"""Time that the calling thread spends ready to run while other threads occupy the cores."""

from __future__ import annotations

import time
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


class CoreWaits:
    """Measurement of this thread's waits for a core, from now on."""

    def __init__(self) -> None:
        self._waited_s, self._started = core_wait_s(), time.perf_counter()

    def share(self) -> float | None:
        """Return the share of the time so far spent waiting; None if Linux does not report it."""
        waited_s = core_wait_s()
        if self._waited_s is None or waited_s is None:
            return None
        return (waited_s - self._waited_s) / max(time.perf_counter() - self._started, 1e-9)
