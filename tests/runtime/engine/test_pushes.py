"""Pushed functions: where they run, what runs beside what, their callbacks, and who may push.

Functions that must run beside each other meet at a barrier, and events say what has happened:
nothing here depends on the speed of the machine.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from commands import HANG_S
from engine_functions import Gate, fail, nothing, waited
from engine_programs import guarded

from mxrun.base.errors import InternalError
from mxrun.runtime.engine.failure import Failure
from mxrun.runtime.engine.interface import Engine, OnComplete, Pool, RunContext
from mxrun.runtime.engine.threaded import ThreadedEngine
from mxrun.runtime.profiler import Event


def test_E1_a_push_returns_while_the_function_runs_on_a_worker(threaded: ThreadedEngine) -> None:
    gate, seen = Gate(), list[tuple[RunContext, int]]()

    def function(context: RunContext) -> None:
        gate(context)
        seen.append((context, threading.get_ident()))

    threaded.push_sync(function)
    assert gate.entered.wait(HANG_S)
    assert seen == []
    gate.open()
    threaded.wait_for_all()
    [(context, thread)] = seen
    assert thread != threading.get_ident()
    assert (str(context.context), context.stream) == ("cpu:0", None)
    assert context.worker.startswith("cpu:0 compute")


def test_E4_readers_of_one_variable_run_beside_each_other(threaded: ThreadedEngine) -> None:
    variable, meeting = threaded.new_variable(), threading.Barrier(2, timeout=HANG_S)
    threaded.push_sync(nothing, writes=[variable])
    for _ in range(2):
        threaded.push_sync(lambda context: meeting.wait(), reads=[variable])
    guarded(threaded.wait_for_all)


def test_E5_functions_on_other_variables_overlap_in_the_trace(threaded: ThreadedEngine) -> None:
    events, meeting = list[Event](), threading.Barrier(2, timeout=HANG_S)
    threaded.record(events.append)
    for name in ("left", "right"):
        variable = threaded.new_variable(name)
        threaded.push_sync(lambda context: meeting.wait(), writes=[variable], name=name)
    guarded(threaded.wait_for_all)
    left, right = sorted(events, key=lambda event: event.name)
    assert (left.name, right.name) == ("left", "right")
    assert left.track != right.track
    assert left.start_ns < right.start_ns + right.duration_ns
    assert right.start_ns < left.start_ns + left.duration_ns


def test_E5_idle_and_new_workers_take_what_is_ready_at_once() -> None:
    """Functions pushed together all start, although fewer workers were idle than are allowed."""
    for idle in range(4):
        engine = ThreadedEngine(4)
        started = threading.Barrier(idle + 1, timeout=HANG_S)
        for _ in range(idle):
            engine.push_sync(lambda context, started=started: started.wait())
        if idle:
            started.wait()
        guarded(engine.wait_for_all)
        meeting = threading.Barrier(4, timeout=HANG_S)
        for _ in range(4):
            engine.push_sync(lambda context, meeting=meeting: meeting.wait())
        guarded(engine.wait_for_all)
        engine.close()


def test_E7_an_asynchronous_function_keeps_no_worker() -> None:
    engine = ThreadedEngine(1)
    file, callbacks, order = engine.new_variable("file"), list[OnComplete](), list[str]()

    def start(context: RunContext, on_complete: OnComplete) -> None:
        callbacks.append(on_complete)

    engine.push_async(start, writes=[file])
    engine.push_sync(lambda context: order.append("reader"), reads=[file])
    other = engine.new_variable()
    engine.push_sync(lambda context: order.append("unrelated"), writes=[other])
    guarded(lambda: engine.wait_for_variable(other))
    assert order == ["unrelated"]
    threading.Thread(target=lambda: callbacks[0]()).start()
    guarded(engine.wait_for_all)
    assert order == ["unrelated", "reader"]
    with pytest.raises(InternalError, match="completed twice"):
        callbacks[0]()
    engine.close()


def test_E7_an_asynchronous_function_fails_by_its_callback_or_by_raising(engine: Engine) -> None:
    def complete_with_error(context: RunContext, on_complete: OnComplete) -> None:
        threading.Thread(target=lambda: on_complete(OSError("disk full"))).start()

    def raise_first(context: RunContext, on_complete: OnComplete) -> None:
        raise ValueError("no file")

    def raise_after(context: RunContext, on_complete: OnComplete) -> None:
        on_complete()
        raise ValueError("too late")

    for function, message in (
        (complete_with_error, "disk full"),
        (raise_first, "no file"),
        (raise_after, "too late"),
    ):
        engine.push_async(function, name="load")
        [failure] = waited(lambda: guarded(engine.wait_for_all))
        assert str(failure) == f"load failed: {message}"


def test_E13_the_callback_comes_once_after_the_function(engine: Engine) -> None:
    order, done = list[object](), threading.Event()
    variable = engine.new_variable()

    def on_done(failure: Failure | None) -> None:
        order.append(failure)
        done.set()

    engine.push_sync(lambda context: order.append("ran"), writes=[variable], on_done=on_done)
    assert done.wait(HANG_S)
    engine.push_sync(fail, writes=[variable], name="failing", on_done=order.append)
    engine.push_sync(nothing, reads=[variable], on_done=order.append)
    failures = waited(engine.wait_for_all)
    assert order == ["ran", None, failures[0], failures[0]]


def test_an_exception_of_a_callback_is_a_failure_of_the_function(engine: Engine) -> None:
    variable = engine.new_variable()

    def on_done(failure: Failure | None) -> None:
        raise KeyError("callback")

    engine.push_sync(nothing, writes=[variable], name="job", on_done=on_done)
    [failure] = waited(lambda: guarded(engine.wait_for_all))
    assert failure.job == "job"
    assert isinstance(failure.error, KeyError)
    assert waited(lambda: engine.wait_for_variable(variable)) == (failure,)


def test_E14_any_thread_may_push(engine: Engine) -> None:
    """Threads push updates of one counter, and of one of their own, at the same time."""
    shared, count, threads = engine.new_variable(), 300, 8
    totals, sums = [0], [0] * threads
    start = threading.Barrier(threads, timeout=HANG_S)

    def add(context: RunContext) -> None:
        before = totals[0]
        for _ in range(20):
            pass
        totals[0] = before + 1

    def push(number: int) -> None:
        own = engine.new_variable()

        def append(context: RunContext, value: int) -> None:
            sums[number] = sums[number] * 3 % 1_000_003 + value

        start.wait()
        for value in range(count):
            engine.push_sync(add, updates=[shared])
            engine.push_sync(lambda context, v=value: append(context, v), updates=[own])

    pushing = [threading.Thread(target=push, args=(number,)) for number in range(threads)]
    for thread in pushing:
        thread.start()
    for thread in pushing:
        guarded(thread.join)
    guarded(engine.wait_for_all)
    expected = 0
    for value in range(count):
        expected = expected * 3 % 1_000_003 + value
    assert totals == [threads * count]
    assert sums == [expected] * threads


def test_functions_and_callbacks_may_push(engine: Engine) -> None:
    """A tree of functions, each pushed by the one above or by its callback."""
    variable, leaves = engine.new_variable(), list[int]()

    def grow(depth: int) -> Callable[[RunContext], None]:
        def function(context: RunContext) -> None:
            if depth == 0:
                leaves.append(1)
                return
            engine.push_sync(
                grow(depth - 1),
                updates=[variable],
                on_done=lambda _: engine.push_sync(grow(depth - 1)),
            )

        return function

    engine.push_sync(grow(6))
    guarded(engine.wait_for_all)
    # F(n) = 2 F(n - 1): one by the function and one by its callback.
    assert len(leaves) == 2**6


def test_higher_priorities_leave_the_queue_first() -> None:
    engine = ThreadedEngine(1)
    gate, order = Gate(), list[int]()
    engine.push_sync(gate)
    assert gate.entered.wait(HANG_S)
    for priority in (0, 3, -2, 3, 1, 0):
        number = len(order), priority
        engine.push_sync(lambda context, p=number[1]: order.append(p), priority=priority)
    gate.open()
    guarded(engine.close)
    assert order == [3, 3, 1, 0, 0, -2]


def test_pools_do_not_wait_for_each_other() -> None:
    engine = ThreadedEngine(1)
    meeting = threading.Barrier(len(Pool), timeout=HANG_S)
    for pool in Pool:
        engine.push_sync(lambda context: meeting.wait(), pool=pool)
    guarded(engine.close)


def test_a_closed_engine_takes_no_more(engine: Engine) -> None:
    variable, ran = engine.new_variable(), list[int]()
    for _ in range(50):
        engine.push_sync(lambda context: ran.append(1), updates=[variable])
    guarded(engine.close)
    assert len(ran) == 50
    with pytest.raises(InternalError, match="closed"):
        engine.push_sync(nothing)
    guarded(engine.close)
