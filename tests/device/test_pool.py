"""Pool of threads: sleeping ones are woken, and those that a loop does not want stay out of it."""

from __future__ import annotations

import ctypes
import threading
import time

import numpy as np
import pytest
from commands import python_output

from mxrun.base.errors import InternalError
from mxrun.codegen.arguments import Arguments, Int64s
from mxrun.codegen.host_loop import HostLoop
from mxrun.codegen.intrinsics import current_task, fetch_add, spin, worker
from mxrun.codegen.jit import ALONE, NativeFunction, native
from mxrun.device.cpu import binding
from mxrun.device.cpu.call import NativeCall, loop_call
from mxrun.device.cpu.onednn import library
from mxrun.device.cpu.pool import PooledTasks, ThreadPool, available_cores, run_tasks
from mxrun.device.cpu.tape import NativeSegment, TapeEntry


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


@native
def counting_loop(call: Runs) -> None:
    """Count a run of the task, which takes no time."""
    task, _ = current_task()
    fetch_add(call.counts, task, 1)


def tasks_on(
    pool: ThreadPool, workers: int, function: NativeFunction, counts: Runs, tasks: int
) -> tuple[PooledTasks, np.ndarray]:
    """Return the arguments of `run_tasks` for a function, and the block of its own."""
    block = counts.packed()
    given = PooledTasks(
        function=function.address,
        block=block.ctypes.data,
        tasks=tasks,
        workers=workers,
        **pool.arguments(),
    )
    return given, block


def loop_on(pool: ThreadPool, workers: int, counts: Runs, tasks: int) -> HostLoop:
    """Return a loop of tasks on some threads of a pool."""
    given, block = tasks_on(pool, workers, slow_loop, counts, tasks)
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


def test_a_pool_stops_while_another_thread_runs_loops_on_it() -> None:
    """The loops are short, so that one is always being published; what is left runs alone."""
    repeats, tasks = 100_000, 8
    for _ in range(3):
        pool = ThreadPool(2)
        assert pool.start(2) == 2
        counts = Runs(counts=np.zeros(tasks, np.int64), workers=np.zeros(2, np.int64))
        given, block = tasks_on(pool, 2, counting_loop, counts, tasks)
        packed = given.packed()
        owner = (packed, given, block, counts)
        loop = NativeCall(run_tasks.address, (packed.ctypes.data, *ALONE), owner)
        segment = NativeSegment([TapeEntry("loops", binding._loop(repeats, [loop], 0))])
        running = threading.Thread(target=segment, daemon=True)
        running.start()
        time.sleep(0.005)
        stopping = threading.Thread(target=pool.stop, daemon=True)
        stopping.start()
        stopping.join(60)
        running.join(60)
        assert not stopping.is_alive()
        assert not running.is_alive()
        assert counts.counts.tolist() == [repeats] * tasks
        assert pool.start(2) == 1


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


def test_a_loop_with_more_tasks_than_the_pool_numbers_is_refused() -> None:
    counts = Runs(counts=np.zeros(1 << 16, np.int64), workers=np.zeros(1, np.int64))
    with pytest.raises(InternalError, match="65536 tasks"):
        loop_call(counting_loop, counts, 1 << 16)
