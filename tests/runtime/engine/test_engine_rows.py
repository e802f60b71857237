"""Promises of the engine, on both kinds where both make them.

Functions that must run beside each other meet at a barrier, and events say what has happened:
nothing here depends on the speed of the machine.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from engine_programs import guarded

from mxrun.base.errors import InternalError
from mxrun.runtime.engine.default import KINDS, new_engine
from mxrun.runtime.engine.failure import Failure, JobError
from mxrun.runtime.engine.interface import Engine, OnComplete, Pool, RunContext, Variable
from mxrun.runtime.engine.threaded import ThreadedEngine
from mxrun.runtime.profiler import Event

HANG_S = 300.0


@pytest.fixture(params=list(KINDS))
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    """Engine of either kind, with the default workers."""
    before = threading.enumerate()
    made = new_engine(request.param)
    yield made
    guarded(lambda: _closed(made, before))


@pytest.fixture
def threaded() -> Iterator[ThreadedEngine]:
    """Threaded engine with two workers in each pool."""
    before = threading.enumerate()
    made = ThreadedEngine(2)
    yield made
    guarded(lambda: _closed(made, before))


def _closed(engine: Engine, before: list[threading.Thread]) -> None:
    """Close an engine, whose workers end; the process's engine may have others."""
    try:
        engine.close()
    finally:
        new = [each for each in threading.enumerate() if each not in before]
        assert not [each for each in new if each.name.startswith("mxrun ")]


def fail(context: RunContext) -> None:
    raise ValueError("broken")


def nothing(context: RunContext) -> None:
    pass


class Gate:
    """Function that waits until the gate is opened."""

    def __init__(self) -> None:
        self.entered, self._open = threading.Event(), threading.Event()

    def __call__(self, context: RunContext) -> None:
        self.entered.set()
        assert self._open.wait(HANG_S)

    def open(self) -> None:
        self._open.set()


def waited(wait: Callable[[], None]) -> tuple[Failure, ...]:
    """Return the failures that a wait raises."""
    try:
        wait()
    except JobError as error:
        return error.failures
    return ()


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


def test_E9_deletion_follows_the_pending_uses(threaded: ThreadedEngine) -> None:
    variable, gate, order = threaded.new_variable("data"), Gate(), list[str]()
    threaded.push_sync(gate, writes=[variable])
    threaded.push_sync(lambda context: order.append("reader"), reads=[variable])
    threaded.delete_variable(variable, lambda: order.append("deleted"))
    for uses in ({"reads": [variable]}, {"writes": [variable]}, {"updates": [variable]}):
        with pytest.raises(InternalError, match="deleted"):
            threaded.push_sync(nothing, **uses)
    assert gate.entered.wait(HANG_S)
    assert order == []
    gate.open()
    guarded(threaded.wait_for_all)
    assert order == ["reader", "deleted"]


def test_E9_an_unused_variable_is_deleted_at_once(engine: Engine) -> None:
    called = threading.Event()
    engine.delete_variable(engine.new_variable(), called.set)
    assert called.is_set()


def test_E9_an_exception_of_a_deletion_is_a_failure(engine: Engine) -> None:
    variable, ran = engine.new_variable(), list[int]()

    def on_delete() -> None:
        raise KeyError("block")

    engine.push_sync(nothing, updates=[variable])
    engine.delete_variable(variable, on_delete)
    [failure] = waited(lambda: guarded(engine.wait_for_all))
    assert (failure.job, type(failure.error)) == ("deletion", KeyError)
    engine.push_sync(lambda context: ran.append(1))
    assert waited(lambda: guarded(engine.wait_for_all)) == ()
    assert ran == [1]


def test_E9_the_garbage_collector_may_delete_at_any_time(engine: Engine) -> None:
    """Also while its thread is inside of the engine: there it would wait for itself."""
    import gc
    import weakref

    count, deleted = 2_000, list[int]()

    class Array:
        def __init__(self, number: int) -> None:
            self.variable, self.cycle = engine.new_variable(), self
            done = deleted.append
            weakref.finalize(
                self, engine.delete_variable, self.variable, lambda: done(number)
            ).atexit = False

    before = gc.get_threshold()
    gc.set_threshold(5)
    try:
        for number in range(count):
            array = Array(number)
            engine.push_sync(nothing, updates=[array.variable])
        del array
    finally:
        gc.set_threshold(*before)
    gc.collect()
    guarded(engine.wait_for_all)
    assert sorted(deleted) == list(range(count))


def test_E10_waiting_for_a_variable_waits_for_its_users_alone() -> None:
    engine = ThreadedEngine(3)
    variable, long, reader = engine.new_variable(), Gate(), Gate()
    order = list[str]()
    engine.push_sync(long, writes=[engine.new_variable()])
    engine.push_sync(lambda context: order.append("writer"), writes=[variable])
    engine.push_sync(reader, reads=[variable])
    guarded(lambda: engine.wait_for_variable(variable, writers_only=True))
    assert order == ["writer"]
    arrived = threading.Event()

    def wait() -> None:
        engine.wait_for_variable(variable)
        arrived.set()

    thread = threading.Thread(target=wait)
    thread.start()
    assert reader.entered.wait(HANG_S)
    assert not arrived.is_set()
    reader.open()
    guarded(thread.join)
    assert arrived.is_set()
    long.open()
    guarded(engine.close)


def test_E11_waiting_for_all_raises_every_failure_once(engine: Engine) -> None:
    variable = engine.new_variable()
    engine.push_sync(fail, writes=[variable], name="first")
    engine.push_sync(nothing, reads=[variable], name="dependant")
    engine.push_sync(fail, name="second")
    failures = waited(engine.wait_for_all)
    assert [failure.job for failure in failures] == ["first", "second"]
    assert waited(engine.wait_for_all) == ()
    assert waited(lambda: engine.wait_for_variable(variable)) == failures[:1]
    assert waited(lambda: engine.wait_for_variable(variable)) == failures[:1]
    engine.push_sync(nothing, writes=[variable])
    assert waited(lambda: engine.wait_for_variable(variable)) == ()


def test_E11_the_error_names_the_function_and_carries_its_exception(engine: Engine) -> None:
    engine.push_sync(fail, name="resize images")
    with pytest.raises(JobError, match="resize images failed: broken") as raised:
        engine.wait_for_all()
    assert isinstance(raised.value.__cause__, ValueError)
    assert raised.value.exit_code == 1


def test_unreported_failures_are_those_that_no_wait_has_raised(engine: Engine) -> None:
    variable = engine.new_variable()
    engine.push_sync(fail, writes=[variable], name="seen")
    engine.push_sync(fail, name="unseen")
    assert waited(lambda: engine.wait_for_variable(variable))
    guarded(engine.close)
    assert [failure.job for failure in engine.unreported()] == ["unseen"]
    assert [failure.job for failure in waited(engine.wait_for_all)] == ["unseen"]
    assert engine.unreported() == ()


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


@pytest.mark.parametrize("what", ["variable", "all"])
def test_a_function_that_would_wait_is_refused(engine: Engine, what: str) -> None:
    variable = engine.new_variable()

    def function(context: RunContext) -> None:
        engine.wait_for_variable(variable) if what == "variable" else engine.wait_for_all()

    engine.push_sync(function, updates=[variable])
    [failure] = waited(lambda: guarded(engine.wait_for_all))
    assert isinstance(failure.error, InternalError)
    assert "waits for" in str(failure.error)


def test_E16_a_variable_is_named_once(engine: Engine) -> None:
    one, other = engine.new_variable("weight"), engine.new_variable()
    lists: list[dict[str, Any]] = [
        {"reads": [one, one]},
        {"writes": [one, other, one]},
        {"updates": [other, other]},
        {"reads": [one], "writes": [one]},
        {"reads": [one], "updates": [one]},
        {"writes": [one], "updates": [one]},
    ]
    for uses in lists:
        for make in (engine.push_sync, engine.push_async, engine.new_operator):
            with pytest.raises(InternalError, match="names a variable twice: <Variable"):
                make(nothing, **uses, name="copy")
    guarded(engine.wait_for_all)


def test_E15_a_cached_push_makes_no_operator(engine: Engine, monkeypatch: Any) -> None:
    """Pushing an operator again neither checks its variables for duplicates nor copies them."""
    from mxrun.runtime.engine.interface import EngineOperator

    made, before = list[str](), EngineOperator.__init__

    def counted(self: EngineOperator, *arguments: Any, **more: Any) -> None:
        made.append(more["name"])
        before(self, *arguments, **more)

    monkeypatch.setattr(EngineOperator, "__init__", counted)
    variable = engine.new_variable()
    operator = engine.new_operator(nothing, updates=[variable], name="cached")
    for _ in range(1_000):
        engine.push(operator)
    assert made == ["cached"]
    for _ in range(10):
        engine.push_sync(nothing, updates=[variable], name="anonymous")
    assert made == ["cached", *["anonymous"] * 10]
    guarded(engine.wait_for_all)


def test_E15_an_operator_is_deleted_after_its_pushes(threaded: ThreadedEngine) -> None:
    gate, order = Gate(), list[str]()
    variable = threaded.new_variable()
    operator = threaded.new_operator(lambda context: order.append("ran"), updates=[variable])
    threaded.push_sync(gate, writes=[variable])
    for _ in range(3):
        threaded.push(operator)
    threaded.delete_operator(operator, lambda: order.append("deleted"))
    with pytest.raises(InternalError, match="deleted"):
        threaded.push(operator)
    with pytest.raises(InternalError, match="deleted"):
        threaded.run_or_push(operator)
    assert order == []
    gate.open()
    guarded(threaded.wait_for_all)
    assert order == ["ran", "ran", "ran", "deleted"]
    unused = threaded.new_operator(nothing)
    threaded.delete_operator(unused, lambda: order.append("unused"))
    assert order[-1] == "unused"


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


def test_run_or_push_runs_here_if_nothing_is_before_it(threaded: ThreadedEngine) -> None:
    variable, gate, threads = threaded.new_variable(), Gate(), list[int]()
    operator = threaded.new_operator(
        lambda context: threads.append(threading.get_ident()), updates=[variable]
    )
    assert threaded.run_or_push(operator)
    assert threads == [threading.get_ident()]
    threaded.push_sync(gate, reads=[variable])
    assert not threaded.run_or_push(operator)
    gate.open()
    guarded(lambda: threaded.wait_for_variable(variable))
    assert len(threads) == 2
    assert threads[1] != threads[0]


def test_run_or_push_keeps_the_exception_for_the_wait(engine: Engine) -> None:
    variable = engine.new_variable()
    assert engine.run_or_push(engine.new_operator(fail, updates=[variable], name="here"))
    [failure] = waited(lambda: engine.wait_for_variable(variable))
    assert failure.job == "here"


def test_ctrl_c_in_a_function_that_runs_here_reaches_the_caller(engine: Engine) -> None:
    def interrupted(context: RunContext) -> None:
        raise KeyboardInterrupt

    variable = engine.new_variable()
    with pytest.raises(KeyboardInterrupt):
        engine.run_or_push(engine.new_operator(interrupted, updates=[variable]))
    # The caller has it; what the function should have written is failed all the same.
    assert waited(lambda: guarded(engine.wait_for_all)) == ()
    assert waited(lambda: engine.wait_for_variable(variable))
    engine.push_sync(nothing, writes=[variable])
    assert waited(lambda: engine.wait_for_variable(variable)) == ()


def test_E8_variables_are_small_objects() -> None:
    import sys

    variables = [Variable() for _ in range(100_000)]
    assert sys.getsizeof(variables[0]) <= 128
    assert not hasattr(variables[0], "__dict__")
    assert variables[0].waiting is None


def test_a_closed_engine_takes_no_more(engine: Engine) -> None:
    variable, ran = engine.new_variable(), list[int]()
    for _ in range(50):
        engine.push_sync(lambda context: ran.append(1), updates=[variable])
    guarded(engine.close)
    assert len(ran) == 50
    with pytest.raises(InternalError, match="closed"):
        engine.push_sync(nothing)
    guarded(engine.close)
