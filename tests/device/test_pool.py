"""Pool of threads: every task runs once, whoever calls, and nobody waits for a thread in vain."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest
from commands import python_output

from mxrun.codegen.arguments import Arguments, Int64s
from mxrun.codegen.intrinsics import current_task, fetch_add, worker
from mxrun.codegen.jit import native
from mxrun.device.cpu.call import TaskThreads, loop_call
from mxrun.device.cpu.pool import ThreadPool, pool_of

Counts = npt.NDArray[np.int64]
MOST_TASKS, THREADS = 32, 4


class Counting(Arguments):
    """counts: runs of each task; inside: for each worker, calls that run as it."""

    counts: Int64s
    inside: Int64s
    clashes: Int64s


@native
def counting_loop(call: Counting) -> None:
    """Count the task, and every case of two threads with one worker's number."""
    task, _ = current_task()
    if fetch_add(call.inside, worker(), 1) != 0:
        fetch_add(call.clashes, 0, 1)
    fetch_add(call.counts, task, 1)
    fetch_add(call.inside, worker(), -1)


class Counter:
    """Loop of some tasks on a pool."""

    def __init__(self, tasks: int, pool: ThreadPool, threads: int = THREADS) -> None:
        self.counts, self.clashes = np.zeros(MOST_TASKS, np.int64), np.zeros(1, np.int64)
        inside = np.zeros(THREADS, np.int64)
        given = Counting(counts=self.counts, inside=inside, clashes=self.clashes)
        self._call = loop_call(counting_loop, given, tasks, TaskThreads(threads, pool))
        arguments = self._call.arguments
        kind = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * len(arguments))
        self.run: Callable[[], None] = lambda: kind(self._call.function)(*arguments)
        self.tasks = tasks

    def check(self, runs: int) -> None:
        assert self.counts.tolist() == [runs] * self.tasks + [0] * (MOST_TASKS - self.tasks)
        assert self.clashes[0] == 0


@pytest.mark.parametrize("tasks", [2, 3, 8, 32])
def test_every_task_runs_once(tasks: int) -> None:
    counter = Counter(tasks, pool_of(0))
    for _ in range(3000):
        counter.run()
    counter.check(3000)


def test_loops_follow_each_other_with_pauses_and_without() -> None:
    """A thread that comes late to a loop finds the next one, with more tasks or fewer."""
    counters = [Counter(tasks, pool_of(0)) for tasks in (2, 7, 32, 3)]
    for turn in range(5000):
        for counter in counters:
            counter.run()
        if turn % 500 == 0:
            # Longer than threads poll, so that they sleep.
            threading.Event().wait(0.01)
    for counter in counters:
        counter.check(5000)


def test_several_callers_share_a_pool() -> None:
    """One uses its threads, while others run their tasks alone."""
    counters = [Counter(8, pool_of(0)) for _ in range(4)]

    def run(counter: Counter) -> None:
        for _ in range(500):
            counter.run()

    callers = [threading.Thread(target=run, args=[counter]) for counter in counters]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    for counter in counters:
        counter.check(500)


def test_a_forked_process_has_threads_of_its_own() -> None:
    counter = Counter(8, pool_of(0))
    counter.run()
    child = os.fork()
    if child == 0:
        for _ in range(100):
            counter.run()
        os._exit(0 if counter.counts[:8].tolist() == [101] * 8 else 1)
    for _ in range(100):
        counter.run()
    _, status = os.waitpid(child, 0)
    assert status == 0
    counter.check(101)


def test_threads_are_at_most_as_many_as_cores() -> None:
    pool = ThreadPool()
    assert pool.start(1) == 1
    assert pool.start(100) == len(os.sched_getaffinity(0))
    pool.stop()
    # A pool that has ended leaves all tasks to the caller.
    counter = Counter(8, pool, threads=1)
    counter.run()
    counter.check(1)


def test_a_process_ends_while_threads_wait() -> None:
    script = (
        "import mxrun, numpy as np; x = mxrun.nd.ones((1000, 1000)); y = (x + x).asnumpy(); "
        "print(int(y.sum()))"
    )
    assert python_output("-c", script).strip() == "2000000"
