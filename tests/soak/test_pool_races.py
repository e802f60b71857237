"""Half a minute of loops on the pool, beside processes that take its threads' cores."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable

import numpy as np
import pytest

from mxrun.codegen.arguments import Arguments, Int64s
from mxrun.codegen.intrinsics import current_task, fetch_add
from mxrun.codegen.jit import native
from mxrun.device.cpu.call import TaskThreads
from mxrun.device.cpu.pool import available_cores
from mxrun.device.cpu.pooled_loop import PooledLoop

pytestmark = pytest.mark.soak

Record = Callable[[str, object], None]
SECONDS, TASKS = 30, (2, 7, 32, 3, 16, 4)


class Runs(Arguments):
    """counts: runs of each task."""

    counts: Int64s


@native
def counting_loop(call: Runs) -> None:
    """Count a run of the task."""
    task, _ = current_task()
    fetch_add(call.counts, task, 1)


def test_every_task_of_millions_of_loops_runs_once(record_property: Record) -> None:
    """A thread that loses its core between reading a loop and claiming a task finds the next."""
    threads = TaskThreads(available_cores())
    counts = [np.zeros(tasks, np.int64) for tasks in TASKS]
    loops = [PooledLoop(counting_loop, Runs(counts=each), each.size, threads) for each in counts]
    busy = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"])
        for _ in range(available_cores())
    ]
    end, runs = time.monotonic() + SECONDS, 0
    try:
        while time.monotonic() < end:
            for _ in range(100):
                for loop in loops:
                    loop()
            runs += 100
    finally:
        for process in busy:
            process.kill()
            process.wait()
    for each in counts:
        assert each.tolist() == [runs] * each.size
    record_property("loops", runs * len(loops))
