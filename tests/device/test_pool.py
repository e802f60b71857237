"""Pool of threads: sleeping ones are woken, and those that a loop does not want stay out of it."""

from __future__ import annotations

import ctypes
import time

import numpy as np
import pytest
from commands import python_output

from mxrun.codegen.arguments import Arguments, Int64s
from mxrun.codegen.host_loop import HostLoop
from mxrun.codegen.intrinsics import current_task, fetch_add, spin, worker
from mxrun.codegen.jit import native
from mxrun.device.cpu.onednn import library
from mxrun.device.cpu.pool import PooledTasks, ThreadPool, available_cores, run_tasks


class Runs(Arguments):
    """counts: runs of each task. workers: runs by each thread."""

    counts: Int64s
    workers: Int64s


@native
def slow_loop(call: Runs) -> None:
    """Count a run of the task, which takes some microseconds."""
    task, _ = current_task()
    for _ in range(200):
        spin()
    fetch_add(call.counts, task, 1)
    fetch_add(call.workers, worker(), 1)


def loop_on(pool: ThreadPool, workers: int, counts: Runs, tasks: int) -> HostLoop:
    """Return a loop of tasks on some threads of a pool."""
    block = counts.packed()
    given = PooledTasks(
        function=slow_loop.address,
        block=block.ctypes.data,
        tasks=tasks,
        workers=workers,
        **pool.arguments(),
    )
    loop = HostLoop(run_tasks, given, unlocked=True)
    loop.owner = (block, counts, pool)  # type: ignore[attr-defined]
    return loop


def test_loops_of_different_widths_run_each_task_once_and_wake_whom_they_need() -> None:
    """More threads than cores, all asleep before each loop of a wide pool."""
    pool, tasks = ThreadPool(4), 12
    assert pool.start(4) == 4
    found = {
        workers: (np.zeros(tasks, np.int64), np.zeros(4, np.int64)) for workers in (1, 2, 3, 4)
    }
    loops = {
        workers: loop_on(pool, workers, Runs(counts=counts, workers=by), tasks)
        for workers, (counts, by) in found.items()
    }
    for _ in range(20):
        for loop in loops.values():
            loop()
        time.sleep(0.002)
    for workers, (counts, by) in found.items():
        assert counts.tolist() == [20] * tasks
        assert by.sum() == 20 * tasks
        assert not by[workers:].any()
    pool.stop()


def test_available_cores_follow_the_affinity() -> None:
    script = (
        "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}); "
        "from mxrun.device.cpu.pool import available_cores; print(available_cores())"
    )
    assert python_output("-c", script).strip() == "1"
    assert available_cores() >= 1


@pytest.mark.skipif(library.load() is None, reason=library.reason())
def test_threads_that_run_primitives_have_one_of_openmps() -> None:
    """Each tells the runtime so: the number is a thread's own."""
    onednn = library.require()
    assert onednn.set_threads
    openmp = ctypes.CDLL("libgomp.so.1")
    openmp.omp_set_num_threads(3)
    onednn.use_one_thread()
    assert openmp.omp_get_max_threads() == 1
