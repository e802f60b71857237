"""Short functions that the pushing thread runs itself."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from commands import HANG_S
from engine_functions import Gate, fail, nothing, waited
from engine_programs import guarded

from mxrun.runtime.engine.interface import Engine, RunContext, Variable
from mxrun.runtime.engine.naive import NaiveEngine
from mxrun.runtime.engine.threaded import ThreadedEngine


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


class _Contended(Variable):
    """Variable at whose check, during a push, another thread begins to run a function."""

    def __init__(self, begin: Callable[[], object]) -> None:
        self._begin = begin
        super().__init__()

    @property
    def deleted(self) -> bool:
        self._begin()
        return False

    @deleted.setter
    def deleted(self, value: bool) -> None:
        return


def test_what_another_thread_runs_later_is_not_complete() -> None:
    engine, gate, done = NaiveEngine(), Gate(), list[int]()
    other = threading.Thread(target=lambda: engine.push_sync(gate))

    def begin() -> None:
        if other.ident is None:
            other.start()
            assert gate.entered.wait(HANG_S)

    operator = engine.new_operator(lambda context: done.append(1), updates=[_Contended(begin)])
    is_complete = engine.run_or_push(operator)
    assert (is_complete, done) == (False, [])
    gate.open()
    other.join()
    assert (operator.pending, done) == (0, [1])
