"""Time in which a thread waits for a core used by others."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from mxrun.runtime.contention import core_wait_s

_BUSY = "import os, sys; os.sched_setaffinity(0, {int(sys.argv[1])})\nwhile True: pass"
# Long enough for any machine: the test ends as soon as the thread has waited at all.
_MAX_WAIT_S = 300


def test_a_thread_that_shares_its_core_waits_for_it() -> None:
    before = core_wait_s()
    if before is None:
        pytest.skip("the kernel keeps no scheduler statistics (CONFIG_SCHED_INFO)")
    cores = os.sched_getaffinity(0)
    core = min(cores)
    other = subprocess.Popen([sys.executable, "-c", _BUSY, str(core)])
    os.sched_setaffinity(0, {core})
    try:
        end = time.monotonic() + _MAX_WAIT_S
        while (core_wait_s() or 0) < before + 0.05 and time.monotonic() < end:
            pass
    finally:
        os.sched_setaffinity(0, cores)
        other.kill()
        other.wait()
    assert (core_wait_s() or 0) >= before + 0.05
