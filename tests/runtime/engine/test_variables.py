"""Variables and operators: names, sizes, repeated pushes, and deletion."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from commands import HANG_S
from engine_functions import Gate, nothing, waited
from engine_programs import guarded

from mxrun.base.errors import InternalError
from mxrun.runtime.engine.interface import Engine, Variable
from mxrun.runtime.engine.threaded import ThreadedEngine


def test_E8_variables_are_small_objects() -> None:
    import sys

    variables = [Variable() for _ in range(100_000)]
    assert sys.getsizeof(variables[0]) <= 128
    assert not hasattr(variables[0], "__dict__")
    assert variables[0].waiting is None


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


@pytest.mark.full
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
