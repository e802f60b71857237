"""Executors: passes on the engine, gradient requests, shared memory, shapes and parameters."""

from __future__ import annotations

import gc
import threading
import weakref
from typing import Any

import networks
import numpy as np
import pytest
import symbol_networks

import mxrun
from mxrun import nd, sym
from mxrun.base.errors import UserError
from mxrun.device.storage import storage_pools
from mxrun.operator.simple import EnvArguments, simple_operator
from mxrun.runtime.engine.default import new_engine, using_engine
from mxrun.runtime.engine.failure import JobError


def lenet(grad_req: Any = "write", batch: int = 4) -> Any:
    """Return an executor of LeNet whose arguments have the values of `symbol_networks`."""
    symbol = symbol_networks.lenet(sym)
    executor = symbol.simple_bind(grad_req=grad_req, data=(batch, 1, 8, 8), softmax_label=(batch,))
    fill(executor)
    return executor


def fill(executor: Any) -> None:
    for name, array in [*executor.arg_dict.items(), *executor.aux_dict.items()]:
        array[:] = symbol_networks.value(name, array.shape)


def gradients(executor: Any) -> dict[str, Any]:
    return {name: g.asnumpy() for name, g in executor.grad_dict.items() if g is not None}


def test_N2_an_imperative_update_follows_backward_without_a_wait() -> None:
    executor, apart = lenet(), lenet()
    weights = [name for name in executor.arg_dict if name.endswith(("weight", "bias"))]
    expected = {name: apart.arg_dict[name].asnumpy() for name in weights}
    for _ in range(5):
        executor.forward(is_train=True)
        executor.backward()
        for name in weights:
            nd.sgd_update(
                executor.arg_dict[name],
                executor.grad_dict[name],
                out=executor.arg_dict[name],
                lr=0.1,
                wd=0.0,
            )
        apart.copy_params_from(expected)
        apart.forward(is_train=True)
        apart.backward()
        found = gradients(apart)
        expected = {
            name: np.float32(expected[name] - np.float32(0.1) * found[name]) for name in weights
        }
    for name in weights:
        np.testing.assert_allclose(executor.arg_dict[name].asnumpy(), expected[name], rtol=2e-6)


def test_N2_passes_wait_for_the_arrays_that_they_read() -> None:
    executor = sym.FullyConnected(sym.Variable("x"), num_hidden=2, name="fc").simple_bind(x=(1, 3))
    executor.arg_dict["fc_weight"][:] = 1
    gate = threading.Event()
    array = executor.arg_dict["x"]
    array.chunk.engine.push_sync(
        lambda context: gate.wait(60), [], [], [array.chunk.variable], name="gate"
    )
    array[:] = 2
    (output,) = executor.forward()
    array += 1
    gate.set()
    assert output.asnumpy().tolist() == [[6, 6]]
    assert array.asnumpy().tolist() == [[3, 3, 3]]


def test_X4_added_gradients_of_micro_batches_are_those_of_the_batch() -> None:
    together, parts = lenet(batch=8), lenet("add", batch=2)
    together.forward(is_train=True)
    together.backward()
    parts.copy_params_from(
        {n: a for n, a in together.arg_dict.items() if n.endswith(("weight", "bias"))}
    )
    for gradient in parts.grad_dict.values():
        gradient[:] = 0
    for begin in range(0, 8, 2):
        part = {n: together.arg_dict[n][begin : begin + 2] for n in ("data", "softmax_label")}
        parts.forward(is_train=True, **part)
        parts.backward()
    found, expected = gradients(parts), gradients(together)
    for name in expected:
        if name.endswith(("weight", "bias")):
            np.testing.assert_allclose(found[name], expected[name], rtol=1e-5, atol=1e-6)


def test_X4_a_request_for_each_argument() -> None:
    full = lenet()
    full.forward(is_train=True)
    full.backward()
    expected = gradients(full)
    requests = {"conv1_weight": "write", "fc1_weight": "add"}
    executor = lenet(requests)
    assert {n for n, g in executor.grad_dict.items() if g is not None} == requests.keys()
    executor.grad_dict["fc1_weight"][:] = 1
    for _ in range(2):
        executor.forward(is_train=True)
        executor.backward()
    found = gradients(executor)
    assert found["conv1_weight"].tobytes() == expected["conv1_weight"].tobytes()
    np.testing.assert_allclose(found["fc1_weight"], 1 + 2 * expected["fc1_weight"], rtol=1e-5)


def test_X4_unwanted_gradients_cost_no_memory() -> None:
    null = lenet("null")
    assert null.planned_bytes < lenet(["null", "write", *["null"] * 4]).planned_bytes
    assert null.memory_report().get("gradients", 0) == 0
    null.forward(is_train=True)
    null.backward()
    assert null.grad_arrays == [None] * 6


@pytest.mark.parametrize(
    ("grad_req", "message"),
    [
        ("both", "write, add or null"),
        (["write"], "grad_req does not fit the arguments"),
        ({"conv1_wieght": "write"}, "did you mean 'conv1_weight'"),
    ],
)
def test_X4_bad_requests_are_refused(grad_req: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        lenet(grad_req)


def test_X5_a_node_with_three_readers_gets_the_sum() -> None:
    symbol = symbol_networks.fan_out(sym)
    executor = symbol.simple_bind(data=(3, 5))
    fill(executor)
    out_grads = [nd.array(symbol_networks.value(f"g{i}", (3, 2))) for i in range(3)]
    executor.forward(is_train=True)
    executor.backward(out_grads)
    total = gradients(executor)["h_weight"]
    separate = np.zeros_like(total)
    for index in range(3):
        one = symbol[index].simple_bind(data=(3, 5))
        fill(one)
        one.forward(is_train=True)
        one.backward(out_grads[index])
        separate += gradients(one)["h_weight"]
    np.testing.assert_allclose(total, separate, rtol=1e-5)


def test_bind_computes_in_the_given_arrays() -> None:
    x, weight = nd.array(np.ones((2, 3))), nd.array(np.full((4, 3), 2.0))
    # The gradient is written to a part of a larger array, whose other elements stay.
    both = nd.array(np.full((2, 4, 3), 7.0))
    symbol = sym.FullyConnected(sym.Variable("x"), num_hidden=4, no_bias=True, name="fc")
    executor = symbol.bind(None, {"x": x, "fc_weight": weight}, {"fc_weight": both[1]})
    assert executor.arg_arrays == [x, weight] or executor.arg_dict["x"] is x
    x[:] = 3
    executor.forward(is_train=True)
    executor.backward(nd.array(np.ones((2, 4))))
    assert executor.outputs[0].asnumpy().tolist() == [[18] * 4] * 2
    assert both.asnumpy()[1].tolist() == [[6] * 3] * 4
    assert both.asnumpy()[0].tolist() == [[7] * 3] * 4


def test_bind_takes_arrays_in_order_and_one_array_twice() -> None:
    a = nd.array([[1.0, 2.0]])
    executor = (sym.Variable("a") * sym.Variable("b")).bind(None, [a, a], grad_req="null")
    assert executor.forward()[0].asnumpy().tolist() == [[1, 4]]


def test_bind_refuses_what_does_not_fit() -> None:
    symbol = sym.FullyConnected(sym.Variable("x"), num_hidden=4, name="fc")
    x, weight, bias = nd.zeros((2, 3)), nd.zeros((4, 3)), nd.zeros((4,))
    with pytest.raises(UserError, match="args lacks 'fc_bias'"):
        symbol.bind(None, {"x": x, "fc_weight": weight})
    with pytest.raises(UserError, match="args does not fit the symbol"):
        symbol.bind(None, [x, weight])
    with pytest.raises(UserError, match="contradict"):
        symbol.bind(None, [x, nd.zeros((4, 2)), bias])
    with pytest.raises(UserError, match="gradient array of 'fc_bias' does not fit"):
        symbol.bind(None, [x, weight, bias], [None, None, weight])
    with pytest.raises(UserError, match="'x' is no array"):
        symbol.bind(None, [3, weight, bias])


def test_bind_refuses_gradients_that_share_memory() -> None:
    symbol = sym.Variable("a") * sym.Variable("b")
    a, b, gradient = nd.array([1, 2]), nd.array([3, 4]), nd.zeros((2,))
    with pytest.raises(UserError, match="of 'b' shares memory with the gradient array of 'a'"):
        symbol.bind(None, [a, b], [gradient, gradient], "add")
    with pytest.raises(UserError, match="of 'a' shares memory with the array of 'b'"):
        symbol.bind(None, [a, b], [b, gradient])
    executor = symbol.bind(None, [a, b], [gradient, gradient], {"a": "write"})
    executor.forward(is_train=True)
    executor.backward(nd.ones((2,)))
    assert gradient.asnumpy().tolist() == [3, 4]


def test_simple_bind_plans_one_arena_and_names_unknown_shapes() -> None:
    executor = lenet()
    arena = executor.arg_dict["data"].chunk.lender
    assert arena.nbytes == executor.planned_bytes
    everything = [*executor.arg_arrays, *executor.grad_arrays, *executor.outputs]
    inside = [a for a in everything if getattr(a.chunk, "lender", None) is arena]
    # Only the gradient of the labels, which is zero, lies elsewhere.
    assert len(inside) == len(everything) - 1
    with pytest.raises(UserError, match="shapes are not known: x, fc_weight"):
        sym.FullyConnected(sym.Variable("x"), num_hidden=4, name="fc").simple_bind()
    with pytest.raises(UserError, match="no variable 'dta'"):
        symbol_networks.lenet(sym).simple_bind(dta=(4, 1, 8, 8))


def test_arrays_outlive_their_executor() -> None:
    executor = lenet()
    executor.forward(is_train=True)
    output, weight = executor.outputs[0], executor.arg_dict["fc1_weight"]
    expected, kept = output.asnumpy(), weight.asnumpy()
    del executor
    others = [lenet() for _ in range(3)]
    for each in others:
        each.forward(is_train=True)
    nd.waitall()
    assert output.asnumpy().tobytes() == expected.tobytes()
    assert weight.asnumpy().tobytes() == kept.tobytes()


def test_an_executor_is_freed_with_its_last_reference() -> None:
    executor = lenet()
    executor.forward(is_train=True)
    executor.backward()
    nd.waitall()
    arena = weakref.ref(executor.arg_dict["data"].chunk.lender)
    gc.disable()
    try:
        del executor
        nd.waitall()
        assert arena() is None
    finally:
        gc.enable()


def test_X6_steps_request_no_storage() -> None:
    executor = lenet()
    pool = storage_pools().of(executor.arg_dict["data"].context)
    data = np.ones((4, 1, 8, 8), np.float32)

    def step() -> None:
        executor.forward(is_train=True, data=data)
        executor.backward()
        for name in ("conv1_weight", "fc1_weight"):
            nd.sgd_update(
                executor.arg_dict[name],
                executor.grad_dict[name],
                out=executor.arg_dict[name],
                lr=0.1,
                wd=0.0,
            )

    step()
    nd.waitall()
    before = pool.statistics().requests
    for _ in range(3):
        step()
    nd.waitall()
    assert pool.statistics().requests == before


def test_forward_takes_inputs_by_name() -> None:
    executor = lenet()
    data = np.ones((4, 1, 8, 8), np.float32)
    by_name = executor.forward(data=data)[0].asnumpy()
    executor.arg_dict["data"][:] = nd.array(data)
    assert executor.forward()[0].asnumpy().tobytes() == by_name.tobytes()
    with pytest.raises(UserError, match="no argument 'dat'"):
        executor.forward(dat=data)
    with pytest.raises(UserError, match="argument 'data' has another shape"):
        executor.forward(data=data[:2])


def test_backward_needs_a_pass_in_training_and_gradients_of_outputs() -> None:
    symbol = sym.FullyConnected(sym.Variable("x"), num_hidden=2, name="fc")
    executor = symbol.simple_bind(x=(1, 3))
    with pytest.raises(UserError, match="without a forward pass in training"):
        executor.backward()
    executor.forward(is_train=True)
    with pytest.raises(UserError, match="'fc_output' needs a gradient"):
        executor.backward()
    with pytest.raises(UserError, match="gradient of 'fc_output' does not fit"):
        executor.backward(nd.zeros((1, 3)))
    with pytest.raises(UserError, match="too many out_grads"):
        executor.backward([nd.zeros((1, 2))] * 2)
    executor.backward(np.ones((1, 2)))
    executor.forward()
    with pytest.raises(UserError, match="without a forward pass in training"):
        executor.backward()


def test_two_backward_passes_after_one_forward_pass() -> None:
    net = sym.FullyConnected(sym.Variable("x"), num_hidden=3, name="fc")
    executor = sym.SoftmaxOutput(net, name="softmax").simple_bind(grad_req="add", x=(4, 3))
    fill(executor)
    for gradient in executor.grad_arrays:
        gradient[:] = 0
    executor.forward(is_train=True)
    executor.backward()
    once = gradients(executor)
    executor.backward()
    for name, value in gradients(executor).items():
        np.testing.assert_allclose(value, 2 * once[name], rtol=1e-6)


def test_a_backward_pass_that_overwrites_what_it_reads_is_not_repeated() -> None:
    """MXNet repeats it with wrong gradients."""
    relu = sym.Activation(sym.Variable("x"), act_type="relu", name="relu")
    net = sym.FullyConnected(relu, num_hidden=3, name="fc") + sym.exp(relu, name="exp")
    executor = sym.SoftmaxOutput(net, name="softmax").simple_bind(x=(4, 3))
    fill(executor)
    for _ in range(2):
        executor.forward(is_train=True)
        executor.backward()
        found = gradients(executor)
        with pytest.raises(UserError, match=r"call forward\(is_train=True\) before each"):
            executor.backward()
        assert all(each.tobytes() == found[n].tobytes() for n, each in gradients(executor).items())


def test_states_are_updated_by_forward_in_training_alone() -> None:
    executor = symbol_networks.residual(sym).simple_bind(data=(2, 3, 5, 5), label=(2, 4))
    fill(executor)
    before = executor.aux_dict["bn1_moving_mean"].asnumpy()
    executor.forward()
    assert executor.aux_dict["bn1_moving_mean"].asnumpy().tobytes() == before.tobytes()
    executor.forward(is_train=True)
    after = executor.aux_dict["bn1_moving_mean"].asnumpy()
    assert (after != before).all()
    executor.backward()
    assert executor.aux_dict["bn1_moving_mean"].asnumpy().tobytes() == after.tobytes()


def test_random_operators_draw_anew_and_repeat_after_seed() -> None:
    executor = sym.Dropout(sym.Variable("x"), p=0.5, name="drop").simple_bind(x=(4, 64))
    executor.arg_dict["x"][:] = 1

    def drawn() -> list[bytes]:
        mxrun.random.seed(3)
        found = []
        for _ in range(2):
            executor.forward(is_train=True)
            executor.backward(nd.array(np.ones((4, 64))))
            output = executor.outputs[0].asnumpy()
            assert output.tobytes() == gradients(executor)["x"].tobytes()
            found.append(output.tobytes())
        return found

    first, second = drawn()
    assert first != second
    assert drawn() == [first, second]
    executor.forward()
    assert (executor.outputs[0].asnumpy() == 1).all()


def test_errors_are_raised_by_waits_and_name_the_node(separate_registry: None) -> None:
    @simple_operator("strict_identity")
    def strict_identity(env: EnvArguments, data: Any) -> Any:
        """output = data. Raises ValueError for negative numbers."""
        if (data < 0).any():
            raise ValueError("negative")
        return data

    symbol = sym.strict_identity(sym.Variable("x"), name="strict") + 1
    executor = symbol.simple_bind(grad_req="null", x=(2,))
    executor.arg_dict["x"][:] = -1
    (output,) = executor.forward()
    with pytest.raises(JobError, match=r"(?s)forward of .*strict_identity 'strict'"):
        output.asnumpy()
    # The next pass writes everything anew.
    executor.arg_dict["x"][:] = 1
    assert executor.forward()[0].asnumpy().tolist() == [2, 2]
    # The failure was raised once.
    nd.waitall()


def test_the_naive_engine_gives_the_same_bits() -> None:
    def passes() -> dict[str, bytes]:
        executor = lenet()
        executor.forward(is_train=True)
        executor.backward()
        return {name: value.tobytes() for name, value in gradients(executor).items()}

    expected = passes()
    with using_engine(new_engine("naive")):
        assert passes() == expected


@pytest.mark.parametrize("name", networks.NETWORKS)
def test_gradients_are_the_bits_of_a_training_plan(name: str) -> None:
    composed = networks.NETWORKS[name]()
    expected = networks.gradients_of(composed)
    symbol = sym.Symbol(composed.heads)
    shapes = {key: spec.shape for key, spec in networks.INPUTS.items()}
    executor = symbol.simple_bind(**shapes)
    plain = networks.executor_for(
        networks.plan_of(composed, rules={}, gradients=tuple(expected), phases=(networks.TRAIN,))
    )
    networks.fill(plain)
    for argument, array in executor.arg_dict.items():
        array[:] = plain.tensor(argument).read()
    executor.forward(is_train=True)
    executor.forward()
    executor.forward(is_train=True)
    executor.backward()
    found = gradients(executor)
    for argument, value in expected.items():
        assert found[argument].tobytes() == value.tobytes(), argument
