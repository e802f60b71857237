"""Start time of the process."""

from __future__ import annotations

import os
import time
from pathlib import Path


def process_start() -> float:
    """Return the start time of this process, in seconds of `time.monotonic`.

    Linux reports the start in ticks since boot (proc(5): /proc/pid/stat, field 22), so a duration
    measured from it includes the start-up of the interpreter. Elsewhere the current time is
    returned.
    """
    now = time.monotonic()
    try:
        status = Path("/proc/self/stat").read_text()
    except OSError:
        return now
    # The second field, the program's name in parentheses, may contain spaces and parentheses.
    ticks = int(status.rpartition(")")[2].split()[19])
    since_boot = time.clock_gettime(time.CLOCK_BOOTTIME)
    return now - max(0.0, since_boot - ticks / os.sysconf("SC_CLK_TCK"))
