"""Calls that run at once, and the limit of the results that pending calls may have."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import numpy as np
import pytest
from memory_in_use import bytes_in_use

from mxrun import nd
from mxrun.base.context import cpu
from mxrun.device.storage import storage_pools
from mxrun.imperative.calls.pending import PendingResults
from mxrun.runtime.engine.default import engine, using_engine
from mxrun.runtime.engine.failure import JobError
from mxrun.runtime.engine.interface import Engine, EngineOperator, RunContext
from mxrun.runtime.engine.naive import NaiveEngine
from mxrun.runtime.engine.threaded import ThreadedEngine
from mxrun.runtime.profiler import Event

PATIENCE_S = 60.0
MEBIBYTE = 1 << 20


@pytest.fixture
def threaded() -> Iterator[ThreadedEngine]:
    made = ThreadedEngine()
    yield made
    made.close()


class Held:
    """Function of the engine that ends when it may, and then has perhaps failed."""

    def __init__(self, error: Exception | None = None) -> None:
        self.may_end, self.is_over = threading.Event(), False
        self._error = error

    def __call__(self, _: RunContext) -> None:
        assert self.may_end.wait(PATIENCE_S)
        self.is_over = True
        if self._error is not None:
            raise self._error


def nothing(_: RunContext) -> None:
    return


@pytest.mark.parametrize("error", [None, ValueError("broken")])
def test_a_call_beyond_the_limit_waits_for_older_ones(
    threaded: ThreadedEngine, error: Exception | None
) -> None:
    pending, held = PendingResults(100, PATIENCE_S), Held(error)
    variable, seen = threaded.new_variable(), list[bool]()
    pending.push(threaded, threaded.new_operator(held, writes=[variable]), 60)

    def push() -> None:
        pending.push(threaded, threaded.new_operator(nothing, reads=[variable]), 60)
        seen.append(held.is_over)

    thread = threading.Thread(target=push)
    thread.start()
    thread.join(0.1)
    held.may_end.set()
    thread.join()
    assert seen == [True]
    if error is not None:
        # The wait for room has raised nothing, and hidden nothing.
        with pytest.raises(JobError, match="broken"):
            threaded.wait_for_all()


def test_calls_within_the_limit_and_those_without_results_do_not_wait(
    threaded: ThreadedEngine,
) -> None:
    pending, held = PendingResults(100, PATIENCE_S), Held()
    pending.push(threaded, threaded.new_operator(held), 60)
    for nbytes in (40, 0):
        pending.push(threaded, threaded.new_operator(nothing), nbytes)
    assert not held.is_over
    held.may_end.set()


def test_one_call_may_have_more_results_than_the_limit(threaded: ThreadedEngine) -> None:
    pending, done = PendingResults(100, PATIENCE_S), list[int]()
    for number in range(3):
        function = lambda _, number=number: done.append(number)  # noqa: E731
        pending.push(threaded, threaded.new_operator(function), 1000)
    threaded.wait_for_all()
    assert done == [0, 1, 2]


def test_what_waits_for_the_caller_is_not_awaited_for_ever(threaded: ThreadedEngine) -> None:
    pending, held = PendingResults(100, 0.01), Held()
    for _ in range(3):
        pending.push(threaded, threaded.new_operator(held), 60)
    held.may_end.set()
    threaded.wait_for_all()
    assert held.is_over


def test_several_threads_that_wait_for_one_call_go_on_together(threaded: ThreadedEngine) -> None:
    pending, held = PendingResults(100, 4 * PATIENCE_S), Held()
    pending.push(threaded, threaded.new_operator(held), 100)

    def push() -> None:
        pending.push(threaded, threaded.new_operator(nothing), 60)

    threads = [threading.Thread(target=push, daemon=True) for _ in range(3)]
    for thread in threads:
        thread.start()
        thread.join(0.1)
    held.may_end.set()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert not any(thread.is_alive() for thread in threads)


@pytest.mark.parametrize("kind", [ThreadedEngine, NaiveEngine])
def test_a_function_of_the_engine_does_not_wait(kind: type[Engine]) -> None:
    owner, pending, done = kind(), PendingResults(100, PATIENCE_S), list[str]()

    def outer(_: RunContext) -> None:
        # These need the worker that runs this function.
        for name in ("first", "second"):
            inner = EngineOperator(lambda _, name=name: done.append(name))
            pending.push(owner, inner, 80)
        assert not done

    owner.push_sync(outer)
    owner.wait_for_all()
    owner.close()
    assert done == ["first", "second"]


def test_calls_that_write_to_given_arrays_do_not_wait(threaded: ThreadedEngine) -> None:
    with using_engine(threaded):
        weight, gradient, held = nd.ones((1024, 1024)), nd.ones((1024, 1024)), Held()
        threaded.push_sync(held, updates=[weight.chunk])
        begin = time.monotonic()
        # Were these new arrays, all but the first ones would wait for a second each.
        for _ in range(128):
            nd.sgd_update(weight, gradient, lr=0.0, out=weight)
        assert time.monotonic() - begin < PATIENCE_S
        held.may_end.set()
        weight.wait_to_read()


@pytest.mark.full
def test_large_products_reserve_little_more_than_the_limit() -> None:
    x, pool = nd.ones((256, 256)), storage_pools().of(cpu())
    nd.dot(x, x).wait_to_read()
    before = bytes_in_use()
    pool.reset_peak()
    for _ in range(600):
        y = nd.dot(x, x)
    y.wait_to_read()
    assert (y.asnumpy() == 256).all()
    assert pool.statistics().peak_bytes - before <= 66 * MEBIBYTE


# -- calls that run at once ------------------------------------------------------------------------


@pytest.fixture
def tracks(threaded: ThreadedEngine) -> Iterator[list[str]]:
    """Tracks of the functions that the process's engine has run."""
    found: list[str] = []

    def sink(event: Event) -> None:
        found.append(event.track)

    with using_engine(threaded):
        threaded.record(sink)
        yield found
        threaded.wait_for_all()
        threaded.record(None)


def test_a_call_that_is_bound_by_memory_runs_at_once_if_nothing_uses_its_arrays(
    tracks: list[str],
) -> None:
    x = nd.array(np.ones(500_000, np.float32))
    x.wait_to_read()
    tracks.clear()
    for result in (x + x, nd.sum(x), x * 2):
        assert engine().is_idle(result.chunk)
    assert tracks == ["cpu:0 caller"] * 3
    assert float((x + x).asnumpy()[-1]) == 2.0


def test_behind_a_pending_function_it_is_left_to_a_worker(tracks: list[str]) -> None:
    x, held = nd.array(np.ones(500_000, np.float32)), Held()
    x.wait_to_read()
    engine().push_sync(held, updates=[x.chunk], name="hold")
    y = x + x
    assert not held.is_over
    held.may_end.set()
    assert (y.asnumpy() == 2).all()
    assert all("caller" not in track for track in tracks[-2:])


def test_a_product_of_matrices_is_left_to_a_worker(tracks: list[str]) -> None:
    x = nd.ones((512, 512))
    x.wait_to_read()
    tracks.clear()
    assert (nd.dot(x, x).asnumpy() == 512).all()
    assert "caller" not in tracks[0]


def test_calls_of_several_threads_give_the_same_values() -> None:
    x = nd.array(np.arange(300_000, dtype=np.float32))
    wanted = nd.sum(x * 2).asnumpy()
    found: list[object] = []

    def work() -> None:
        for _ in range(20):
            found.append(nd.sum(x * 2).asnumpy())

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 60
    assert all(value == wanted for value in found)
