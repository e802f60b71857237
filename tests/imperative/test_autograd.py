"""Semantics of autograd: heads, head gradients, requests, freed graphs, errors."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from imperative import array, call, variable
from memory_in_use import bytes_in_use

from mxrun import nd
from mxrun.base.context import cpu
from mxrun.base.errors import UserError
from mxrun.device.storage import storage_pools
from mxrun.imperative.arrays.ndarray import NDArray
from mxrun.imperative.differentiation import autograd, differentiate


def squared(x: NDArray) -> NDArray:
    with autograd.record():
        return call("elemwise_mul", x, x)


def detached(x: NDArray) -> NDArray:
    return NDArray(x.chunk, x.shape, x.dtype, x.offset)


# -- modes -----------------------------------------------------------------------------------------


def modes() -> tuple[bool, bool]:
    return autograd.is_recording(), autograd.is_training()


def test_modes_nest_and_end() -> None:
    assert modes() == (False, False)
    with autograd.record():
        assert modes() == (True, True)
        with autograd.pause():
            assert modes() == (False, False)
        with autograd.pause(train_mode=True):
            assert modes() == (False, True)
        with autograd.predict_mode():
            assert modes() == (True, False)
    with autograd.record(train_mode=False):
        assert modes() == (True, False)
        with autograd.train_mode():
            assert modes() == (True, True)
    with autograd.train_mode():
        assert modes() == (False, True)
    assert modes() == (False, False)


def test_a_mode_ends_with_an_exception() -> None:
    with pytest.raises(ZeroDivisionError), autograd.record():
        raise ZeroDivisionError
    assert modes() == (False, False)


def test_a_mode_is_a_thread_s_own() -> None:
    seen = []
    with autograd.record():
        thread = threading.Thread(target=lambda: seen.append(modes()))
        thread.start()
        thread.join()
    assert seen == [(False, False)]


# -- gradients -------------------------------------------------------------------------------------


def test_a_head_starts_with_ones() -> None:
    x = variable([1, 2, 3])
    autograd.backward(squared(x))
    assert x.grad.asnumpy().tolist() == [2, 4, 6]


def test_several_heads_with_and_without_gradients() -> None:
    x = variable([1, 2])
    with autograd.record():
        y, z = call("_mul_scalar", x, scalar=2.0), call("_mul_scalar", x, scalar=3.0)
    autograd.backward([y, z], [None, array([10, 20])])
    assert x.grad.asnumpy().tolist() == [32, 62]


def test_a_head_given_twice_counts_twice() -> None:
    x = variable([1, 2])
    y = squared(x)
    autograd.backward([y, y], [None, array([10, 20])])
    assert x.grad.asnumpy().tolist() == [2 * 11, 4 * 21]


def test_fan_out_is_summed() -> None:
    x = variable([1, 2])
    with autograd.record():
        y = call("elemwise_mul", x, x)
        z = call("elemwise_add", call("elemwise_mul", y, x), y)
    autograd.backward(z)
    assert x.grad.asnumpy().tolist() == [3 + 2, 12 + 4]


def test_gradients_that_only_pass_are_arrays_of_their_own() -> None:
    x, y = variable([1, 2]), variable([3, 4])
    with autograd.record():
        z = call("elemwise_add", x, y)
    given = array([5, 6])
    autograd.backward(z, given)
    call("_mul_scalar", x.grad, scalar=0.0, out=x.grad)
    assert x.grad.asnumpy().tolist() == [0, 0]
    assert y.grad.asnumpy().tolist() == [5, 6]
    assert given.asnumpy().tolist() == [5, 6]


def test_a_view_of_two_variables_gives_both_their_gradient() -> None:
    x = variable([[1, 2], [3, 4]])
    with autograd.record():
        y = call("Reshape", x, shape=(4,))
    autograd.backward(y, array([1, 2, 3, 4]))
    assert x.grad.asnumpy().tolist() == [[1, 2], [3, 4]]


def test_a_variable_can_be_a_head() -> None:
    x = variable([1, 2])
    autograd.backward(x)
    assert x.grad.asnumpy().tolist() == [1, 1]
    with autograd.record():
        y = call("_mul_scalar", x, scalar=2.0)
    autograd.backward([x, y])
    assert x.grad.asnumpy().tolist() == [3, 3]


def test_the_add_request_accumulates() -> None:
    x = variable([1, 2], "add")
    for _ in range(3):
        autograd.backward(squared(x))
    assert x.grad.asnumpy().tolist() == [6, 12]


def test_the_null_request_has_no_gradient() -> None:
    x, w = variable([1, 2], "null"), variable([3, 4])
    with autograd.record():
        y = call("elemwise_mul", x, w)
    autograd.backward(y)
    assert x.grad is None
    assert w.grad.asnumpy().tolist() == [1, 2]


def test_detached_arrays_are_constants() -> None:
    x = variable([1, 2])
    with autograd.record():
        z = call("elemwise_mul", detached(call("elemwise_mul", x, x)), x)
    autograd.backward(z)
    assert x.grad.asnumpy().tolist() == [1, 4]


def test_what_is_computed_in_pause_is_a_constant() -> None:
    x = variable([1, 2])
    with autograd.record():
        with autograd.pause():
            y = call("elemwise_mul", x, x)
        z = call("elemwise_mul", y, x)
    assert y.entry is None
    autograd.backward(z)
    assert x.grad.asnumpy().tolist() == [1, 4]


def test_an_array_marked_while_recording_is_cut_off() -> None:
    x = variable([1, 2])
    with autograd.record():
        y = call("elemwise_mul", x, x)
        autograd.attach_grad(y)
        z = call("_mul_scalar", y, scalar=3.0)
    autograd.backward(z)
    assert y.grad.asnumpy().tolist() == [3, 3]
    assert x.grad.asnumpy().tolist() == [0, 0]


def test_zero_gradient_operators_give_zeros() -> None:
    x = variable([1.2, 2])
    x.grad.chunk.device.write(x.grad.handle, np.full(2, 7, np.float32))
    with autograd.record():
        y = call("_mul_scalar", call("round", x), scalar=2.0)
    autograd.backward(y)
    assert x.grad.asnumpy().tolist() == [0, 0]


def test_variables_that_no_head_depends_on_keep_their_gradient() -> None:
    x, other = variable([1, 2]), variable([3, 4])
    autograd.backward(squared(other))
    autograd.backward(squared(x))
    assert other.grad.asnumpy().tolist() == [6, 8]


def test_losses_ignore_head_gradients() -> None:
    expected = [[0.26894143, -0.26894143]]
    for scale in (None, 100.0):
        x = variable([[1, 2]])
        with autograd.record():
            y = call("SoftmaxOutput", x, array([1]))
        autograd.backward(y, None if scale is None else array([[scale, 3]]))
        np.testing.assert_allclose(x.grad.asnumpy(), expected, rtol=1e-6)
    for after, parameters in (("_mul_scalar", {"scalar": 10.0}), ("argmax", {"axis": 1})):
        x = variable([[1, 2]])
        with autograd.record():
            y = call(after, call("SoftmaxOutput", x, array([1])), **parameters)
        autograd.backward(y)
        np.testing.assert_allclose(x.grad.asnumpy(), expected, rtol=1e-6)


def test_an_array_written_by_out_is_recorded() -> None:
    x, target = variable([1, 2]), array([0, 0])
    with autograd.record():
        call("elemwise_mul", x, x, out=target)
    autograd.backward(target)
    assert x.grad.asnumpy().tolist() == [2, 4]


# -- graphs that are freed -------------------------------------------------------------------------


def test_a_second_backward_needs_retain_graph() -> None:
    x = variable([1, 2])
    y = squared(x)
    autograd.backward(y, retain_graph=True)
    autograd.backward(y)
    assert x.grad.asnumpy().tolist() == [2, 4]
    with pytest.raises(UserError, match="retain_graph"):
        autograd.backward(y)


def test_after_backward_what_was_recorded_is_a_constant() -> None:
    x = variable([1, 2])
    y = squared(x)
    autograd.backward(y)
    with autograd.record():
        z = call("elemwise_mul", y, x)
    autograd.backward(z)
    assert x.grad.asnumpy().tolist() == [1, 4]


def test_heads_that_share_a_freed_graph_are_refused() -> None:
    x = variable([1, 2])
    with autograd.record():
        y = call("elemwise_mul", x, x)
        z, u = call("_mul_scalar", y, scalar=2.0), call("_mul_scalar", y, scalar=3.0)
    autograd.backward(z)
    with pytest.raises(UserError, match="depend on no variable"):
        autograd.backward(u)


@pytest.mark.full
def test_backward_frees_what_was_recorded() -> None:
    x = variable(np.ones(65_536))

    def in_use() -> int:
        x.grad.wait_to_read()
        return bytes_in_use()

    autograd.backward(squared(x))
    before = in_use()
    with autograd.record():
        y = call("tanh", x)
        z = call("tanh", y)
        y = call("elemwise_mul", z, z)
        del z
    assert in_use() >= before + 3 * 262_144
    autograd.backward(y)
    # The head itself is still an array.
    assert in_use() == before + 262_144
    del y
    assert in_use() == before


@pytest.mark.full
def test_a_graph_nobody_needs_is_freed_without_backward() -> None:
    x = variable(np.ones(65_536))
    x.wait_to_read()
    before = bytes_in_use()
    y = squared(x)
    y.wait_to_read()
    del y
    # No cycle holds it: nothing is collected here.
    nd.waitall()
    assert storage_pools().of(cpu()).statistics().bytes_in_use == before


# -- grad ------------------------------------------------------------------------------------------


def test_grad_returns_new_arrays() -> None:
    x, w = variable([1, 2]), variable([3, 4])
    with autograd.record():
        y = call("elemwise_mul", x, w)
    of_w, of_x = autograd.grad(y, [w, x], retain_graph=True)
    assert (of_w.asnumpy().tolist(), of_x.asnumpy().tolist()) == ([1, 2], [3, 4])
    assert x.grad.asnumpy().tolist() == [0, 0]
    (of_x,) = autograd.grad(y, x, array([2, 2]))
    assert of_x.asnumpy().tolist() == [6, 8]
    with pytest.raises(UserError, match="retain_graph"):
        autograd.grad(y, x)


def test_grad_refuses_other_arrays() -> None:
    x, other, unmarked = variable([1, 2]), variable([3, 4]), array([3, 4])
    with autograd.record():
        y = call("elemwise_mul", x, unmarked)
    with pytest.raises(UserError, match="variable 1 is no marked variable"):
        autograd.grad(y, [unmarked])
    with pytest.raises(UserError, match="no head depends on variable 2"):
        autograd.grad(y, [x, other])
    with pytest.raises(UserError, match="create_graph"):
        autograd.grad(y, [x], create_graph=True)


# -- errors ----------------------------------------------------------------------------------------


def test_a_head_must_be_recorded() -> None:
    x = variable([1, 2])
    with pytest.raises(UserError, match=r"autograd\.record"):
        autograd.backward(call("elemwise_mul", x, x))


def test_recorded_arrays_are_not_overwritten() -> None:
    x = variable([1, 2])
    with autograd.record():
        with pytest.raises(UserError, match="recorded graph"):
            call("elemwise_mul", x, x, out=x)
        y = call("elemwise_mul", x, x)
        with pytest.raises(UserError, match="recorded graph"):
            call("_mul_scalar", array([1, 1]), scalar=2.0, out=y)
        constant = array([1, 1])
        call("_mul_scalar", constant, scalar=3.0, out=constant)
    call("elemwise_mul", x, x, out=x)
    assert x.asnumpy().tolist() == [1, 4]


def test_a_head_gradient_of_another_shape_is_refused() -> None:
    with pytest.raises(UserError, match=r"float32\[3\]"):
        autograd.backward(squared(variable([1, 2])), array([1, 2, 3]))


def test_operators_without_gradient_are_refused() -> None:
    x = variable([1, 2])
    with autograd.record():
        y = call("sgd_update", x, array([1, 1]), lr=0.1)
    with pytest.raises(UserError, match="sgd_update"):
        autograd.backward(y)


def test_an_unknown_request_is_refused() -> None:
    with pytest.raises(UserError, match="grad_req"):
        variable([1, 2], "both")


# -- programs --------------------------------------------------------------------------------------


def test_a_structure_is_planned_once(monkeypatch: pytest.MonkeyPatch) -> None:
    planned = []
    plan = differentiate.BackwardProgram

    class Counted(plan):
        def __init__(self, *arguments: object) -> None:
            planned.append(1)
            super().__init__(*arguments)

    monkeypatch.setattr(differentiate, "BackwardProgram", Counted)
    for step in range(4):
        x, w = variable(np.full(37, step)), variable(np.full(37, 2.5))
        with autograd.record():
            y = call("elemwise_mul", call("sigmoid", x), w)
        autograd.backward(y)
        np.testing.assert_allclose(w.grad.asnumpy(), 1 / (1 + np.exp(-step)), rtol=1e-6)
    assert len(planned) == 1


def test_a_recorded_array_read_in_plain_layout_is_still_the_same_tensor() -> None:
    """The convolution's output is moved to plain layout between two readers of it."""
    generator = np.random.default_rng(0)
    x = variable(generator.normal(size=(2, 3, 8, 8)))
    weight, bias = array(generator.normal(size=(8, 3, 3, 3))), array(np.zeros(8))

    def gradient(read_between: bool) -> np.ndarray:
        with autograd.record():
            y = call("Convolution", x, weight, bias, kernel=(3, 3), num_filter=8)
            first = call("tanh", y)
            if read_between:
                y.asnumpy()
            z = call("elemwise_mul", first, y)
        autograd.backward(z)
        return x.grad.asnumpy()

    np.testing.assert_allclose(gradient(True), gradient(False), rtol=1e-5, atol=1e-5)


# -- inference mode --------------------------------------------------------------------------------

# Operators that compute the same in both modes; their kernels leave something for backward.
SAME_IN_BOTH_MODES = {
    "Pooling": {"kernel": (2, 2), "stride": (2, 2), "pool_type": "max"},
    "LRN": {"nsize": 3},
    "tanh": {},
    "max": {"axis": 1},
}


@pytest.mark.parametrize("operator", SAME_IN_BOTH_MODES)
def test_gradients_in_inference_mode(operator: str) -> None:
    values = np.random.default_rng(0).normal(size=(2, 16, 8, 8))
    found = []
    for train_mode in (True, False):
        x = variable(values)
        with autograd.record(train_mode=train_mode):
            y = call(operator, x, **SAME_IN_BOTH_MODES[operator])
        autograd.backward(y)
        found.append(x.grad.asnumpy())
    np.testing.assert_allclose(found[1], found[0], rtol=1e-5, atol=1e-6)


def test_batch_normalisation_in_inference_mode_treats_its_states_as_constants() -> None:
    x, gamma = variable([[1, 2], [3, 5]]), variable([3, 4])
    states = [array([1, 2]), array([4, 9])]
    with autograd.record(train_mode=False):
        y = call("BatchNorm", x, gamma, array([0, 0]), *states, eps=1e-3, fix_gamma=False)
    autograd.backward(y)
    scale = np.array([3, 4]) / np.sqrt(np.array([4, 9]) + 1e-3)
    np.testing.assert_allclose(x.grad.asnumpy(), [scale, scale], rtol=1e-5)
    normal = np.array([[0, 0], [2, 3]]) / np.sqrt(np.array([4, 9]) + 1e-3)
    np.testing.assert_allclose(gamma.grad.asnumpy(), normal.sum(0), rtol=1e-5, atol=1e-6)
    assert [state.asnumpy().tolist() for state in states] == [[1, 2], [4, 9]]


def test_dropout_in_inference_mode_passes_gradients() -> None:
    x = variable(np.ones(64))
    with autograd.record(train_mode=False):
        y = call("Dropout", x, p=0.5)
    autograd.backward(y)
    assert x.grad.asnumpy().tolist() == [1] * 64
