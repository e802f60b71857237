"""When the process began."""

from __future__ import annotations

import os
import time
from pathlib import Path


def process_start() -> float:
    """When this process was started, in seconds of `time.monotonic`'s clock.

    Linux counts a process's start in ticks since boot (proc(5): /proc/pid/stat, field 22), so the
    interpreter's own start-up is part of the time since; elsewhere the count begins here.
    """
    now = time.monotonic()
    try:
        status = Path("/proc/self/stat").read_text()
    except OSError:
        return now
    # The second field, the program's name in parentheses, may hold anything.
    ticks = int(status.rpartition(")")[2].split()[19])
    since_boot = time.clock_gettime(time.CLOCK_BOOTTIME)
    return now - max(0.0, since_boot - ticks / os.sysconf("SC_CLK_TCK"))
