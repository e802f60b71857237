"""Waits: what they wait for, and the failures that they raise."""

from __future__ import annotations

import threading

import pytest
from commands import HANG_S
from engine_functions import Gate, fail, nothing, waited
from engine_programs import guarded

from mxrun.base.errors import InternalError
from mxrun.runtime.engine.failure import JobError
from mxrun.runtime.engine.interface import Engine, RunContext
from mxrun.runtime.engine.threaded import ThreadedEngine


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


@pytest.mark.parametrize("what", ["variable", "all"])
def test_a_function_that_would_wait_is_refused(engine: Engine, what: str) -> None:
    variable = engine.new_variable()

    def function(context: RunContext) -> None:
        engine.wait_for_variable(variable) if what == "variable" else engine.wait_for_all()

    engine.push_sync(function, updates=[variable])
    [failure] = waited(lambda: guarded(engine.wait_for_all))
    assert isinstance(failure.error, InternalError)
    assert "waits for" in str(failure.error)
