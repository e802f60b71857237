"""Pool of threads that run the tasks of one loop at a time.

A call publishes its loop in the pool's words and runs tasks itself; threads of the pool that are
awake, or wake up, claim tasks until none is left. The call returns when all claimed tasks have
ended. It never waits for a thread that has claimed none: on a busy machine a thread without a core
delays a loop by its one task at most, and without any thread the call runs all tasks. While one
call uses the pool, others run their tasks alone.

oneDNN's primitives are tasks too, each for one thread.

Threads begin with the same tasks in every call, and so find their tensors in their caches; then
they claim what others have left.
"""

from __future__ import annotations

import atexit
import ctypes
import mmap
import os
import sys
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from mxrun.base.locks import new_lock
from mxrun.base.once import once
from mxrun.codegen.arguments import Arguments, Int64s, Integer
from mxrun.codegen.intrinsics import (
    call_address,
    exchange_word,
    fetch_add,
    load_word,
    spin,
    store_word,
)
from mxrun.codegen.jit import inlined, native
from mxrun.device.cpu.onednn import library

# Words of a cache line; of those below each that several threads change has its own.
LINE = 8
# Number of the published loop; then 1 once the threads shall end, which no loop overwrites.
_EPOCH, _ENDED = 0, 1
# The loop: function, argument block, tasks, threads that may run them.
_FUNCTION, _BLOCK, _TASKS, _WORKERS = LINE, LINE + 1, LINE + 2, LINE + 3
# 1 while a call uses the pool; tasks that have ended; 1 if the call sleeps.
_LOCK, _DONE, _WAITING = 2 * LINE, 3 * LINE, 4 * LINE
# For each thread, the loop's number and the next of its tasks, epoch << 16 | task; then 1 while it
# sleeps.
_CLAIMS = 5 * LINE
_SLEEPS = _CLAIMS + 1
_TASK_BITS = 16
MOST_TASKS = (1 << _TASK_BITS) - 1

# Polls of a waiting thread before it sleeps, some 20 to 60 us: longer than the short operators
# between two loops, much shorter than a time slice of the system's scheduler.
_POLLS = 1000

_FUTEX = {"x86_64": 202, "aarch64": 98}
_WAIT, _WAKE = 128, 129


class PoolWords(Arguments):
    """Arguments of all functions of a pool.

    pool: its words; address: theirs. system_call: address of syscall(2); futex: its number.
    """

    pool: Int64s
    address: Integer
    system_call: Integer
    futex: Integer


class PooledTasks(PoolWords):
    """Arguments of `run_tasks`.

    function: address of a native function; block: of its arguments. workers: most threads that run
    its tasks.
    """

    function: Integer
    block: Integer
    tasks: Integer
    workers: Integer


class PoolThread(PoolWords):
    """Arguments of `pool_thread`.

    number: of the thread, from 1 on. set_threads: address of oneDNN's function that sets how many
    threads a call of it uses, 0 if it has none.
    """

    number: Integer
    set_threads: Integer


@inlined
def wait_for_change(call: PoolWords, word: int, value: int) -> None:
    """Sleep until another thread wakes this one, unless the word has changed already."""
    call_address(call.system_call, call.futex, call.address + 8 * word, _WAIT, value, 0, 0)


@inlined
def wake(call: PoolWords, word: int, count: int) -> None:
    """Wake up to `count` threads that wait for a change of a word."""
    call_address(call.system_call, call.futex, call.address + 8 * word, _WAKE, count, 0, 0)


@inlined
def claimed_tasks(pool: Any, epoch: int, number: int) -> int:
    """Run tasks of loop `epoch` until none is left, as thread `number`; return how many.

    A claim of this loop's number succeeds only while the loop runs, so that what was read before it
    was the loop's own.
    """
    function, block = load_word(pool, _FUNCTION), load_word(pool, _BLOCK)
    tasks, workers = load_word(pool, _TASKS), load_word(pool, _WORKERS)
    ended = 0
    if number < workers:
        for turn in range(workers):
            owner = (number + turn) % workers
            end = (epoch << _TASK_BITS) + (owner + 1) * tasks // workers
            at = _CLAIMS + owner * LINE
            claim = load_word(pool, at)
            while claim >> _TASK_BITS == epoch and claim < end:
                found = exchange_word(pool, at, claim, claim + 1)
                if found == claim:
                    task = claim - (epoch << _TASK_BITS)
                    call_address(function, block, task, tasks, number, 0, 0)
                    ended += 1
                    found = load_word(pool, at)
                claim = found
    return ended


@native
def pool_thread(call: PoolThread) -> None:
    """Run tasks of every loop that is published, until the pool ends."""
    pool, seen = call.pool, 0
    sleeps = _SLEEPS + call.number * LINE
    if call.set_threads != 0:
        call_address(call.set_threads, 1, 0, 0, 0, 0, 0)
    while load_word(pool, _ENDED) == 0:
        polls = 0
        epoch = load_word(pool, _EPOCH)
        while epoch == seen and load_word(pool, _ENDED) == 0:
            spin()
            polls += 1
            if polls == _POLLS:
                exchange_word(pool, sleeps, 0, 1)
                if load_word(pool, _EPOCH) == seen and load_word(pool, _ENDED) == 0:
                    wait_for_change(call, sleeps, 1)
                store_word(pool, sleeps, 0)
                polls = 0
            epoch = load_word(pool, _EPOCH)
        seen = epoch
        ended = claimed_tasks(pool, epoch, call.number)
        if ended > 0:
            fetch_add(pool, _DONE, ended)
            if load_word(pool, _WAITING) != 0:
                wake(call, _DONE, 1)


@native
def run_tasks(call: PooledTasks) -> None:
    """Run all tasks, together with the pool's threads unless another call uses them."""
    pool = call.pool
    if exchange_word(pool, _LOCK, 0, 1) != 0:
        for task in range(call.tasks):
            call_address(call.function, call.block, task, call.tasks, 0, 0, 0)
    else:
        epoch = load_word(pool, _EPOCH) + 1
        # Before it is changed what a late thread reads of the loop before, its claims are closed.
        for owner in range(load_word(pool, _WORKERS)):
            store_word(pool, _CLAIMS + owner * LINE, epoch << _TASK_BITS)
        store_word(pool, _FUNCTION, call.function)
        store_word(pool, _BLOCK, call.block)
        store_word(pool, _TASKS, call.tasks)
        store_word(pool, _WORKERS, call.workers)
        store_word(pool, _DONE, 0)
        for owner in range(call.workers):
            begin = (epoch << _TASK_BITS) + owner * call.tasks // call.workers
            store_word(pool, _CLAIMS + owner * LINE, begin)
        fetch_add(pool, _EPOCH, 1)
        for number in range(1, call.workers):
            sleeps = _SLEEPS + number * LINE
            if load_word(pool, sleeps) != 0 and exchange_word(pool, sleeps, 1, 0) == 1:
                wake(call, sleeps, 1)
        ended = claimed_tasks(pool, epoch, 0)
        done = fetch_add(pool, _DONE, ended) + ended
        polls = 0
        while done != call.tasks:
            spin()
            polls += 1
            if polls == _POLLS:
                fetch_add(pool, _WAITING, 1)
                done = load_word(pool, _DONE)
                if done != call.tasks:
                    wait_for_change(call, _DONE, done)
                fetch_add(pool, _WAITING, -1)
                polls = 0
            done = load_word(pool, _DONE)
        store_word(pool, _LOCK, 0)


class ThreadPool:
    """Threads for the loops of one device; the thread that calls a loop is number 0."""

    def __init__(self, largest: int) -> None:
        self._largest = largest
        # Never freed: a thread may read it until the process ends.
        # Private, because the threads of a forked process have loops of their own.
        size = 8 * (_CLAIMS + self._largest * LINE)
        self._memory = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self.words: npt.NDArray[np.int64] = np.frombuffer(self._memory, np.int64)
        self._threads: list[Any] = []
        self._lock = new_lock()
        _pools.append(self)

    def start(self, threads: int) -> int:
        """Start threads until `threads` may work, at most as many as cores; return their number.

        They are fewer if the system refuses one, and none where it has no futex or the pool has
        stopped.
        """
        with self._lock:
            wanted = min(threads, self._largest) if _futex() and not self.words[_ENDED] else 1
            while len(self._threads) + 1 < wanted and self._start_one(len(self._threads) + 1):
                pass
            return min(wanted, len(self._threads) + 1)

    def _start_one(self, number: int) -> bool:
        onednn = library.load()
        set_threads = 0 if onednn is None else onednn.set_threads
        given = PoolThread(number=number, set_threads=set_threads, **self.arguments()).packed()
        identity = ctypes.c_ulong()
        function = ctypes.c_void_p(pool_thread.address)
        block = ctypes.c_void_p(given.ctypes.data)
        status = _library().pthread_create(ctypes.byref(identity), None, function, block)
        if status == 0:
            self._threads.append((identity, given))
        return bool(status == 0)

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of a native function that uses the pool."""
        function = ctypes.cast(_library().syscall, ctypes.c_void_p).value or 0
        return {
            "pool": self.words,
            "address": self.words.ctypes.data,
            "system_call": function,
            "futex": _futex(),
        }

    def restart(self) -> None:
        """Start the threads anew in a forked process, which has none."""
        threads, self._threads = len(self._threads), []
        self._lock = new_lock()
        self.words[:] = 0
        self.start(threads + 1)

    def stop(self) -> None:
        """End the threads and wait for them: their code goes with the interpreter.

        A loop that another thread runs meanwhile, or later, is completed without them.
        """
        with self._lock:
            self.words[_ENDED] = 1
            for number, (identity, _) in enumerate(self._threads, 1):
                sleeps = _SLEEPS + number * LINE
                self.words[sleeps] = 0
                address = ctypes.c_void_p(self.words[sleeps:].ctypes.data)
                _library().syscall(_futex(), address, _WAKE, 1, None, None, 0)
                _library().pthread_join(identity, None)
            self._threads.clear()


_pools: list[ThreadPool] = []


def available_cores() -> int:
    """Return the number of cores this process may use."""
    return len(os.sched_getaffinity(0))


@cache
def pool_of(index: int) -> ThreadPool:
    """Return the pool of the CPU's device `index`."""
    _register()
    return ThreadPool(available_cores())


@once
def _register() -> None:
    os.register_at_fork(after_in_child=_restart_all)
    atexit.register(_stop_all)


def _restart_all() -> None:
    for pool in _pools:
        pool.restart()


def _stop_all() -> None:
    for pool in _pools:
        pool.stop()


@cache
def _library() -> ctypes.CDLL:
    return ctypes.CDLL(None)


@cache
def _futex() -> int:
    """Return the number of the system call futex(2); 0 on a system that has none."""
    return _FUTEX.get(os.uname().machine, 0) if sys.platform == "linux" else 0
