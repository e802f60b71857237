"""Arrays that several threads use at once."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial

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


def test_threads_use_an_output_in_a_layout_of_its_own_at_once() -> None:
    data, weight = nd.random.normal(0, 1, (2, 3, 16, 16)), nd.random.normal(0, 1, (8, 3, 3, 3))
    parameters = {"num_filter": 8, "kernel": (3, 3), "pad": (1, 1), "no_bias": True}
    expected = nd.Convolution(data, weight, **parameters).asnumpy()
    zeros = nd.zeros(expected.shape)
    ways: list[Callable[[nd.NDArray], nd.NDArray]] = [
        lambda x: x,
        lambda x: x + 0,
        lambda x: x + zeros,
        lambda x: x.reshape((-1,)).reshape(x.shape),
    ]

    def use(way: Callable[[nd.NDArray], nd.NDArray], x: nd.NDArray) -> None:
        assert (way(x).asnumpy() == expected).all()

    for _ in range(50):
        output = nd.Convolution(data, weight, **parameters)
        at_once(*[partial(use, way, output) for way in ways * 2])
