"""Arrays that several threads use at once."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator

import numpy as np
import pytest

import mxrun
from mxrun import nd


@pytest.fixture(autouse=True)
def _frequent_switches() -> Iterator[None]:
    """Let threads lose the interpreter's lock between almost any two statements."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def at_once(*functions: Callable[[], object]) -> None:
    """Call functions in threads of their own that begin together; raise what one of them raises."""
    begin, errors = threading.Barrier(len(functions)), list[BaseException]()

    def run(function: Callable[[], object]) -> None:
        begin.wait(60)
        try:
            function()
        except BaseException as error:  # noqa: BLE001 - raised in the test's thread
            errors.append(error)

    threads = [threading.Thread(target=run, args=(each,)) for each in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    for error in errors:
        raise error


@pytest.mark.parametrize("number", range(41, 46))
def test_a_context_is_first_used_by_several_threads_at_once(number: int) -> None:
    arrays = list[nd.NDArray]()
    at_once(*[lambda: arrays.append(nd.ones((3, number), ctx=mxrun.cpu(number)))] * 6)
    total = arrays[0]
    for each in arrays[1:]:
        total = total + each
    assert (total.asnumpy() == 6).all()


def test_an_operator_is_first_prepared_by_several_threads_at_once() -> None:
    for size in range(65, 85):
        left, right = nd.ones((size, 70)), nd.ones((70, size + 3))
        results = list[nd.NDArray]()
        at_once(*[lambda: results.append(nd.dot(left, right))] * 6)  # noqa: B023 - awaited here
        assert all((each.asnumpy() == 70).all() for each in results)
