"""Asynchronous arrays: order, waits, errors, in-place operations, both faces of operators."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mxrun
from mxrun import nd
from mxrun.device.storage import storage_pools
from mxrun.imperative.arrays.ndarray import NDArray
from mxrun.operator.property import ResourceKind, ResourceRequest
from mxrun.operator.simple import simple_operator
from mxrun.runtime.engine.failure import JobError
from mxrun.runtime.engine.interface import RunContext, Variable

_WATCHDOG_S = 60


@contextmanager
def held(array: NDArray, *, changing: bool) -> Iterator[Callable[[], None]]:
    """Have a pushed function read or change an array until the yielded function is called."""
    released = threading.Event()

    def hold(context: RunContext) -> None:
        assert released.wait(_WATCHDOG_S)

    variables: list[Variable] = [array.chunk.variable]
    array.chunk.engine.push_sync(
        hold, () if changing else variables, (), variables if changing else (), name="held"
    )
    try:
        yield released.set
    finally:
        released.set()


def in_thread(function: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=function)
    thread.start()
    return thread


def test_N1_a_product_returns_before_it_is_computed() -> None:
    a, b = nd.array([[1, 2], [3, 4]]), nd.array([[5, 6], [7, 8]])
    with held(a, changing=True) as release:
        c = a @ b
        read: list[Any] = []
        reader = in_thread(lambda: read.append(c.asnumpy()))
        assert not read
        release()
        reader.join(_WATCHDOG_S)
    np.testing.assert_array_equal(read[0], [[19, 22], [43, 50]])


def test_N1_the_error_appears_at_the_read_with_the_operators_name(separate_registry: None) -> None:
    @simple_operator("failing_at_run")
    def failing(env, data):  # type: ignore[no-untyped-def]
        "It always raises."
        raise ValueError("cannot be computed")

    result = nd.failing_at_run(nd.ones((2,)))
    dependent = result + 1
    for array in (result, dependent):
        for _ in range(2):
            with pytest.raises(JobError, match=r"failing_at_run.*cannot be computed"):
                array.asnumpy()
    # A failure that was raised is not reported again.
    nd.waitall()
    nd.failing_at_run(nd.ones((2,)))
    with pytest.raises(JobError, match="failing_at_run"):
        nd.waitall()
    nd.waitall()
    # Written anew, the array is whole again, also in place.
    result[:] = 3
    nd.add(nd.ones((2,)), 1, out=dependent)
    np.testing.assert_array_equal(result.asnumpy(), [3, 3])
    np.testing.assert_array_equal(dependent.asnumpy(), [2, 2])


def test_E10_wait_to_read_waits_for_writers_only() -> None:
    x = nd.ones((3,))
    with held(x, changing=False) as release:
        x.wait_to_read()
        ended: list[str] = []

        def ending() -> None:
            x.wait_to_write()
            ended.append("waited")

        waiter = in_thread(ending)
        assert not ended
        ended.append("released")
        release()
        waiter.join(_WATCHDOG_S)
    assert ended == ["released", "waited"]


def test_N4_functions_leave_their_inputs_alone_and_out_is_written() -> None:
    values = np.array([-1.5, 0.25, 2], "float32")
    for name in ("relu", "exp", "negative", "BlockGrad", "Flatten", "_copy", "zeros_like"):
        x = nd.array(values.reshape(1, 3))
        function = getattr(nd, name)
        result = function(x)
        assert result is not x
        result[:] = 9
        np.testing.assert_array_equal(x.asnumpy(), values.reshape(1, 3), name)
        expected = function(x).asnumpy()
        assert function(x, out=x) is x
        np.testing.assert_array_equal(x.asnumpy(), expected, name)


def test_N4_out_may_be_a_view() -> None:
    x = nd.zeros((3, 2))
    nd.add(nd.ones((2,)), 1, out=x[1])
    np.testing.assert_array_equal(x.asnumpy(), [[0, 0], [2, 2], [0, 0]])


@pytest.mark.parametrize("size", [3, 100_000])
def test_E16_an_array_may_be_both_operands_and_the_result(size: int) -> None:
    values = np.arange(1, size + 1, dtype="float32") % 97 + 1
    x = nd.array(values)
    x += x
    x *= x
    x -= x / 2
    nd.elemwise_mul(x, x, out=x)
    values = (values + values) ** 2
    values -= values / 2
    np.testing.assert_allclose(x.asnumpy(), values * values, 1e-6)


def test_E16_operands_that_overlap_with_the_result_are_read_first() -> None:
    x = nd.arange(8)
    nd.add(x[:6], 10, out=x[2:])
    np.testing.assert_array_equal(x.asnumpy(), [0, 1, 10, 11, 12, 13, 14, 15])
    y = nd.arange(6)
    y[1:] = y[:-1]
    np.testing.assert_array_equal(y.asnumpy(), [0, 0, 1, 2, 3, 4])


@pytest.mark.parametrize("shape", [(3,), (257, 129)])
def test_E18_in_place_operations_allocate_nothing(shape: tuple[int, ...]) -> None:
    w, g = nd.ones(shape), nd.ones(shape)

    def update() -> None:
        nonlocal w
        w += g
        w *= 0.5
        w -= 0.25
        nd.sgd_update(w, g, lr=0.1, out=w)

    # The first calls prepare the operators.
    update()
    nd.waitall()
    pool = storage_pools().of(mxrun.cpu())
    before = pool.statistics()
    for _ in range(5):
        update()
    nd.waitall()
    after = pool.statistics()
    assert after.requests == before.requests
    assert after.bytes_in_use <= before.bytes_in_use


def scaled_square(x: Any, scalar: Any) -> Any:
    return x * x * scalar


def test_Q1_one_registration_gives_a_function_and_a_layer(
    separate_registry: None, empty_folder: Path
) -> None:
    document = "output = scalar * data^2."
    simple_operator("scaled_square", scalar=1.0, description=document)(scaled_square)
    values = np.random.default_rng(2).standard_normal((5, 7)).astype("float32")
    for name in ("smooth_l1", "scaled_square"):
        config = {
            "name": name,
            "network": {
                "inputs": {"data": [7], "label": [7]},
                "layers": [
                    {name: {"name": "layer", "scalar": 0.75}},
                    {"FullyConnected": {"num_hidden": 7}},
                    {"LinearRegressionOutput": {"label": "label"}},
                ],
            },
            "data": {"batch_size": 5, "train": {"dataset": "synthetic"}},
            "train": {"epochs": 1, "optimizer": "sgd"},
        }
        layer = mxrun.load(config).predict(values, outputs=["layer"]).values
        function = getattr(nd, name)(nd.array(values), scalar=0.75)
        assert function.asnumpy().tobytes() == np.asarray(layer, "float32").tobytes()
    assert nd.scaled_square.__doc__.startswith("output = scalar * data^2.")


@pytest.mark.parametrize("is_list", [False, True])
def test_Q8_resources_are_given_in_order(separate_registry: None, is_list: bool) -> None:
    space = ResourceRequest(ResourceKind.TEMP_SPACE, 64)
    more = ResourceRequest(ResourceKind.TEMP_SPACE, 128)
    draws = ResourceRequest(ResourceKind.RANDOM)
    sizes: list[int] = []

    @simple_operator("with_resources", resource=[more, draws, space] if is_list else space)
    def with_resources(env, data):  # type: ignore[no-untyped-def]
        "output = data + random words; it looks at its resources."
        sizes.append(env.call.space(0).nbytes)
        if not is_list:
            return data
        sizes.append(env.call.space(2).nbytes)
        return data + env.call.random(1).bits(data.size).reshape(data.shape) / 2.0**32

    x = nd.zeros((3,))
    mxrun.random.seed(5)
    first, second = nd.with_resources(x).asnumpy(), nd.with_resources(x).asnumpy()
    mxrun.random.seed(5)
    again = nd.with_resources(x).asnumpy()
    assert sizes == ([128, 64] * 3 if is_list else [64] * 3)
    np.testing.assert_array_equal(first, again)
    assert (first != second).any() == is_list
