"""Calls of operators: outputs, out=, states, random numbers, resources, errors, concurrency."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from imperative import array, call, variable

from mxrun import nd
from mxrun.base.context import Context, cpu
from mxrun.base.errors import UserError
from mxrun.device.storage import storage_pools
from mxrun.imperative.arrays.ndarray import NDArray
from mxrun.imperative.calls import random
from mxrun.imperative.calls.invoke import invoke
from mxrun.imperative.differentiation import autograd
from mxrun.operator.property import ResourceKind, ResourceRequest
from mxrun.operator.register import create
from mxrun.operator.simple import EnvArguments, simple_operator
from mxrun.runtime.engine.default import engine, using_engine
from mxrun.runtime.engine.failure import JobError
from mxrun.runtime.engine.naive import NaiveEngine
from mxrun.runtime.engine.threaded import ThreadedEngine

GENERATOR = np.random.default_rng(0)


def images(*shape: int) -> np.ndarray:
    return GENERATOR.normal(size=shape).astype(np.float32)


# -- outputs ---------------------------------------------------------------------------------------


def test_an_output_is_a_new_array() -> None:
    x, y = array([1, 2]), array([10, 20])
    z = call("elemwise_add", x, y)
    assert (z.shape, z.dtype, z.context) == ((2,), "float32", cpu())
    assert z.asnumpy().tolist() == [11, 22]
    assert x.asnumpy().tolist() == [1, 2]


def test_hidden_outputs_are_not_returned() -> None:
    data, label = array(images(4, 3)), array([0, 1, 2, 0])
    assert len(invoke(create("SoftmaxOutput", {}), [data, label])) == 1
    parts = invoke(create("SliceChannel", {"num_outputs": 3}), [data])
    assert [part.shape for part in parts] == [(4, 1)] * 3


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "int32"])
def test_arrays_of_any_dtype_that_an_operator_takes(dtype: str) -> None:
    x = array([1, 2, 3], dtype)
    z = call("elemwise_add", x, x)
    assert z.dtype == dtype
    assert z.asnumpy().astype(np.float64).tolist() == [2, 4, 6]


def test_bfloat16_products_and_their_gradients() -> None:
    values = [images(8, 16), images(4, 16)]
    given = [variable(each, dtype="bfloat16") for each in values]
    with autograd.record():
        y = call("FullyConnected", *given, num_hidden=4, no_bias=True)
    autograd.backward(y)
    assert (y.dtype, given[1].grad.dtype) == ("bfloat16", "bfloat16")
    found = y.asnumpy().astype(np.float32)
    np.testing.assert_allclose(found, values[0] @ values[1].T, rtol=0.05, atol=0.1)
    weight = given[1].grad.asnumpy().astype(np.float32)
    expected = np.repeat(values[0].sum(0)[None], 4, 0)
    np.testing.assert_allclose(weight, expected, rtol=0.05, atol=0.1)


def test_labels_and_ids_may_be_floats() -> None:
    data, label = array(images(4, 3)), [2, 0, 1, 1]
    losses = []
    for dtype in ("float32", "int32"):
        x = variable(data.asnumpy())
        with autograd.record():
            y = call("SoftmaxOutput", x, array(label, dtype))
        autograd.backward(y)
        losses.append(x.grad.asnumpy().tobytes())
        table = array(images(5, 2))
        rows = call("Embedding", array(label, dtype), table, input_dim=5, output_dim=2)
        assert rows.asnumpy().tolist() == table.asnumpy()[label].tolist()
    assert losses[0] == losses[1]


def test_probabilities_as_labels_stay_floats() -> None:
    data, target = images(4, 3), np.full((4, 3), 1 / 3)
    x = variable(data)
    with autograd.record():
        y = call("SoftmaxOutput", x, array(target))
    autograd.backward(y)
    np.testing.assert_allclose(x.grad.asnumpy(), y.asnumpy() - 1 / 3, atol=1e-6)


def test_an_operator_that_is_a_view_returns_a_copy() -> None:
    x = array([[1, 2], [3, 4]])
    for name, parameters in (("Flatten", {}), ("Reshape", {"shape": (4,)}), ("BlockGrad", {})):
        y = call(name, x, **parameters)
        call("_mul_scalar", y, scalar=0.0, out=y)
        assert x.asnumpy().tolist() == [[1, 2], [3, 4]], name


def test_layouts_pass_from_operator_to_operator_and_reading_makes_them_plain() -> None:
    data, weight, bias = images(2, 3, 8, 8), images(16, 3, 3, 3), images(16)
    given = [array(each) for each in (data, weight, bias)]
    y = call("Convolution", *given, kernel=(3, 3), num_filter=16)
    expected = np.zeros((2, 16, 6, 6))
    for i in range(3):
        for j in range(3):
            part = data[:, :, i : i + 6, j : j + 6]
            expected += np.einsum("ncij,fc->nfij", part, weight[:, :, i, j])
    expected += bias[:, None, None]
    view = NDArray(y.chunk, (16, 6, 6), y.dtype, 16 * 36 * 4)
    assert y._chunk.layout is None
    np.testing.assert_allclose(view.asnumpy(), expected[1], rtol=1e-4, atol=1e-4)
    again = call("Convolution", *given, kernel=(3, 3), num_filter=16)
    flat = call("Flatten", call("tanh", again))
    np.testing.assert_allclose(
        flat.asnumpy(), np.tanh(expected).reshape(2, -1), rtol=1e-4, atol=1e-4
    )


# -- out= and in-place -----------------------------------------------------------------------------


def test_N4_an_operator_overwrites_its_input_only_as_out() -> None:
    x = array([1, 4, 9])
    call("sqrt", x)
    assert x.asnumpy().tolist() == [1, 4, 9]
    assert call("sqrt", x, out=x) is x
    assert x.asnumpy().tolist() == [1, 2, 3]


def test_E16_one_array_as_every_input_and_output() -> None:
    x = array([1, 2])
    call("elemwise_add", x, x, out=x)
    assert x.asnumpy().tolist() == [2, 4]


def test_E18_an_update_in_place_allocates_nothing() -> None:
    w, g = array(np.ones(1000)), array(np.full(1000, 2))
    call("elemwise_add", w, g, out=w)
    # Functions of other tests may still be pending.
    nd.waitall()
    requests = storage_pools().of(cpu()).statistics().requests
    call("elemwise_add", w, g, out=w)
    w.wait_to_write()
    assert storage_pools().of(cpu()).statistics().requests == requests
    assert w.asnumpy().tolist() == [5] * 1000


def test_out_that_overlaps_an_input_elsewhere_is_computed_beside_it() -> None:
    x = array([1, 2, 3, 4, 5])
    head, tail = (NDArray(x.chunk, (4,), x.dtype, offset) for offset in (0, 4))
    call("_plus_scalar", head, scalar=1.0, out=tail)
    assert x.asnumpy().tolist() == [1, 2, 3, 4, 5]
    call("_mul_scalar", head, scalar=2.0, out=tail)
    assert x.asnumpy().tolist() == [1, 2, 4, 6, 8]


def test_an_operator_that_is_not_elementwise_can_write_its_input() -> None:
    values = images(3, 3)
    x = array(values)
    call("dot", x, x, out=x)
    np.testing.assert_allclose(x.asnumpy(), values @ values, rtol=1e-5, atol=1e-5)
    y = array(values)
    call("transpose", y, out=y)
    np.testing.assert_array_equal(y.asnumpy(), values.T)


def test_out_that_does_not_fit_is_refused() -> None:
    x = array([1, 2])
    with pytest.raises(UserError, match=r"float32\[2\]"):
        call("sqrt", x, out=array([1, 2, 3]))
    with pytest.raises(UserError, match="float64"):
        call("sqrt", x, out=array([1, 2], "float64"))


# -- states ----------------------------------------------------------------------------------------


def test_batch_normalisation_updates_its_states_in_training() -> None:
    x, states = array([[1], [3]]), [array([0]), array([1])]
    given = [x, array([1]), array([0]), *states]
    norm = create("BatchNorm", {"momentum": 0.5, "fix_gamma": False})
    invoke(norm, given)
    assert [state.asnumpy().tolist() for state in states] == [[0], [1]]
    with autograd.train_mode():
        invoke(norm, given)
    assert [state.asnumpy().tolist() for state in states] == [[1], [1]]


def test_updates_of_optimizers_overwrite_their_states_and_the_weight_as_out() -> None:
    weight, grad, mom = array([1, 2]), array([10, 10]), array([0, 0])
    update = create("sgd_mom_update", {"lr": 0.1, "momentum": 0.5})
    (new,) = invoke(update, [weight, grad, mom])
    assert (new.asnumpy().tolist(), weight.asnumpy().tolist()) == ([0, 1], [1, 2])
    assert mom.asnumpy().tolist() == [-1, -1]
    invoke(update, [weight, grad, mom], [weight])
    assert weight.asnumpy().tolist() == [-0.5, 0.5]
    assert mom.asnumpy().tolist() == [-1.5, -1.5]


# -- random numbers and resources ------------------------------------------------------------------


def dropped(count: int = 3) -> list[list[float]]:
    x = array(np.ones(64))
    with autograd.train_mode():
        outputs = [call("Dropout", x, p=0.5) for _ in range(count)]
    return [output.asnumpy().tolist() for output in outputs]


@pytest.mark.parametrize("workers", [1, 3])
def test_R1_a_seed_gives_the_same_numbers_with_any_workers(workers: int) -> None:
    random.seed(7)
    first = dropped()
    assert first[0] != first[1]
    other = ThreadedEngine(workers)
    with using_engine(other):
        random.seed(7)
        assert dropped() == first
        random.seed(8)
        assert dropped() != first
    other.close()


def test_random_numbers_in_training_alone() -> None:
    x = array(np.ones(64))
    assert call("Dropout", x, p=0.5).asnumpy().tolist() == [1] * 64


def test_Q1_an_operator_of_one_function_can_be_called(separate_registry: None) -> None:
    @simple_operator("tripled")
    def tripled(x: float) -> float:
        """output = 3 x."""
        return 3 * x

    assert call("tripled", array([1, 2])).asnumpy().tolist() == [3, 6]


def test_Q8_resources_come_in_the_order_of_the_requests(separate_registry: None) -> None:
    seen = []
    requests = [ResourceRequest(ResourceKind.RANDOM), ResourceRequest(ResourceKind.TEMP_SPACE, 256)]

    def through_space(env: EnvArguments, data: np.ndarray) -> np.ndarray:
        """output = data + noise, computed in temporary space."""
        space = env.call.space(1)
        seen.append((env.call.random(0).bits(4).tolist(), space.nbytes))
        room = space.view(np.float32)[: data.size]
        room[:] = data.ravel() * 2
        return room.reshape(data.shape)

    simple_operator("through_space", resource=requests)(through_space)
    x = array([1, 2])
    for _ in range(2):
        assert call("through_space", x).asnumpy().tolist() == [2, 4]
    assert [nbytes for _, nbytes in seen] == [256, 256]
    assert seen[0][0] != seen[1][0]


# -- errors ----------------------------------------------------------------------------------------


def test_shapes_that_do_not_fit_are_refused_at_the_call() -> None:
    with pytest.raises(UserError, match="elemwise_add"):
        call("elemwise_add", array([1, 2]), array([1, 2, 3]))


def test_another_number_of_arrays_is_refused() -> None:
    with pytest.raises(UserError, match=r"1 arrays\n.*2: lhs, rhs"):
        call("elemwise_add", array([1, 2]))


def test_arrays_on_two_devices_are_refused() -> None:
    with pytest.raises(UserError, match=r"got: cpu:0, cpu:1"):
        call("elemwise_add", array([1, 2]), array([1, 2], context=Context("cpu", 1)))


def test_arrays_of_two_dtypes_are_refused() -> None:
    with pytest.raises(UserError, match="float64"):
        call("elemwise_add", array([1, 2]), array([1, 2], "float64"))


def test_N1_an_operator_s_exception_appears_at_the_wait(separate_registry: None) -> None:
    let_go = threading.Event()

    def failing(env: EnvArguments, data: np.ndarray) -> np.ndarray:
        """output = data, but it fails."""
        let_go.wait(60)
        raise ValueError("the data is odd")

    simple_operator("failing")(failing)
    y = call("failing", array([1, 2]))
    z = call("_mul_scalar", y, scalar=2.0)
    let_go.set()
    for each in (y, z, y):
        with pytest.raises(JobError, match="failing") as raised:
            each.asnumpy()
        causes = []
        cause: BaseException | None = raised.value
        while cause is not None:
            causes.append(str(cause))
            cause = cause.__cause__
        assert causes[-1] == "the data is odd"
    call("sqrt", array([4, 9]), out=y)
    assert y.asnumpy().tolist() == [2, 3]


# -- engines and threads ---------------------------------------------------------------------------


def test_arrays_of_the_naive_engine() -> None:
    with using_engine(NaiveEngine()):
        x = variable([1, 2])
        with autograd.record():
            y = call("elemwise_mul", x, x)
        autograd.backward(y)
        assert x.grad.asnumpy().tolist() == [2, 4]


def test_several_workers_run_one_operator_at_once() -> None:
    """Chains of products on several workers: each call has the places of its own tensors."""
    several = ThreadedEngine(3)
    with using_engine(several):
        values = [images(64, 64) * 0.1 for _ in range(6)]
        chains = [array(value) for value in values]
        weight = images(64, 64) * 0.1
        shared = array(weight)
        for _ in range(20):
            chains = [
                call("FullyConnected", each, shared, num_hidden=64, no_bias=True) for each in chains
            ]
        found = [each.asnumpy() for each in chains]
    several.close()
    for value, result in zip(values, found, strict=True):
        expected = value
        for _ in range(20):
            expected = expected @ weight.T
        np.testing.assert_allclose(
            result, expected, rtol=1e-3, atol=1e-6 + np.abs(expected).max() * 1e-4
        )


def test_threads_call_operators_side_by_side() -> None:
    results: dict[int, list[float]] = {}

    def work(number: int) -> None:
        x = array(np.full(10, number))
        for _ in range(200):
            x = call("_plus_scalar", x, scalar=1.0)
        results[number] = x.asnumpy().tolist()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {number: [number + 200] * 10 for number in range(4)}


def test_reading_is_the_only_wait() -> None:
    """A call returns while its input is still being computed."""
    let_go, was_let_go = threading.Event(), list[bool]()
    x = array([1, 2])
    variables = [x.chunk.variable]
    engine().push_sync(lambda _: was_let_go.append(let_go.wait(60)), updates=variables, name="slow")
    y = call("elemwise_add", x, x)
    let_go.set()
    assert y.asnumpy().tolist() == [2, 4]
    assert was_let_go == [True]
