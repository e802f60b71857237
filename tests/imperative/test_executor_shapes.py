"""Executors for other shapes, parameters copied by name, and monitors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import symbol_networks
from oracles.peer import MXNet
from peer_scripts import run_in

from mxrun import nd, sym
from mxrun.base.errors import UserError

MXNET = """
import os, warnings
warnings.filterwarnings("ignore")
os.environ["MXNET_SUBGRAPH_BACKEND"] = "NONE"
import mxnet as mx

def answer(request):
    fc = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=3, name="fc")
    bn = mx.sym.BatchNorm(fc, name="bn")
    net = mx.sym.SoftmaxOutput(mx.sym.broadcast_add(bn, fc, name="add"), name="softmax")
    executor = net.simple_bind(mx.cpu(), data=(2, 5))
    names = []
    executor.set_monitor_callback(lambda name, _: names.append(name.decode()), *request)
    executor.forward(is_train=True)
    forward = len(names)
    executor.backward()
    return names[:forward], names[forward:]
"""
# Gradients that MXNet's nodes also write: of a label, of a gamma that is fixed, and those of a sum,
# which are the gradient of its output.
ONLY_MXNETS = {
    "softmax_backward_output1",
    "bn_backward_output1",
    "add_backward_output0",
    "add_backward_output1",
    "sum_grad_output",
}


def monitored() -> Any:
    fc = sym.FullyConnected(sym.Variable("data"), num_hidden=3, name="fc")
    bn = sym.BatchNorm(fc, name="bn")
    net = sym.SoftmaxOutput(sym.broadcast_add(bn, fc, name="add"), name="softmax")
    return net.simple_bind(data=(2, 5))


@pytest.mark.parametrize("monitor_all", [False, True])
def test_monitored_names_are_mxnets(monitor_all: bool) -> None:
    names: list[str] = []
    executor = monitored()
    executor.set_monitor_callback(lambda name, _: names.append(name), monitor_all)
    executor.forward(is_train=True)
    forward = len(names)
    executor.backward()
    ((expected, backward),) = run_in(MXNet, MXNET, [[monitor_all]])
    assert names[:forward] == expected
    outputs = {name for name in backward if "_output" in name}
    assert set(names[forward:]) == outputs - ONLY_MXNETS
    assert len(names) == forward + len(outputs - ONLY_MXNETS)


@pytest.mark.parametrize("request_kind", ["write", "add"])
def test_a_monitor_sees_the_gradients_of_a_backward_pass(request_kind: str) -> None:
    """Each once its node has computed it, as it is before it is added to others."""
    data = sym.Variable("data")
    fc1 = sym.FullyConnected(data, num_hidden=3, name="fc1")
    relu = sym.Activation(fc1, act_type="relu", name="relu")
    shared = sym.FullyConnected(relu, num_hidden=3, name="fc2") + sym.exp(relu, name="exp")
    net = sym.SoftmaxOutput(shared, name="softmax")
    executor = net.simple_bind(data=(4, 5), grad_req=request_kind)
    for name, array in executor.arg_dict.items():
        array[:] = symbol_networks.value(name, array.shape)
    seen: dict[str, Any] = {}
    executor.set_monitor_callback(lambda name, array: seen.update({name: array.asnumpy()}))
    executor.forward(is_train=True)
    assert not any("backward" in name for name in seen)
    for passed in (1, 2):
        executor.forward(is_train=True)
        executor.backward()
        for node in ("fc1", "fc2"):
            for number, argument in ((1, f"{node}_weight"), (2, f"{node}_bias")):
                gradient = executor.grad_dict[argument].asnumpy()
                times = passed if request_kind == "add" else 1
                found = seen[f"{node}_backward_output{number}"]
                np.testing.assert_allclose(gradient, times * found, rtol=1e-5)
        gradient = seen["softmax_backward_output0"]
        by_exp = gradient * seen["exp_output"]
        np.testing.assert_allclose(seen["exp_backward_output"], by_exp, rtol=1e-5)
        by_fc2 = gradient @ executor.arg_dict["fc2_weight"].asnumpy()
        np.testing.assert_allclose(seen["fc2_backward_output0"], by_fc2, rtol=1e-4, atol=1e-6)
        by_relu = (by_exp + by_fc2) * (seen["fc1_output"] > 0)
        np.testing.assert_allclose(seen["relu_backward_output"], by_relu, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("is_train", [False, True])
def test_a_monitor_sees_every_tensor_and_changes_no_result(is_train: bool) -> None:
    def run(monitor: bool) -> tuple[dict[str, Any], list[Any]]:
        executor = symbol_networks.residual(sym).simple_bind(data=(2, 3, 5, 5), label=(2, 4))
        for name, array in [*executor.arg_dict.items(), *executor.aux_dict.items()]:
            array[:] = symbol_networks.value(name, array.shape)
        seen: dict[str, Any] = {}
        if monitor:
            executor.set_monitor_callback(lambda name, array: seen.update({name: array.asnumpy()}))
        executor.forward(is_train=is_train)
        if is_train:
            executor.backward()
        arrays = [*executor.outputs, *executor.aux_arrays, *executor.grad_arrays]
        return seen, [array.asnumpy() for array in arrays]

    seen, monitored_results = run(monitor=True)
    _, plain = run(monitor=False)
    for one, other in zip(monitored_results, plain, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
    # The view, which no call computes, is seen like any other.
    assert seen["flat_output"].shape == (2, 75)
    assert np.array_equal(np.maximum(seen["bn1_output"], 0), seen["relu1_output"])
    assert np.array_equal(seen["lro_output"], monitored_results[0])


def test_a_monitor_can_be_removed() -> None:
    names: list[str] = []
    executor = monitored()
    executor.set_monitor_callback(lambda name, _: names.append(name))
    executor.set_monitor_callback(None)
    executor.forward()
    assert not names


def bound(batch: int = 4) -> Any:
    executor = symbol_networks.lenet(sym).simple_bind(data=(batch, 1, 8, 8), softmax_label=(batch,))
    for name, array in executor.arg_dict.items():
        array[:] = symbol_networks.value(name, array.shape)
    return executor


def test_reshape_shares_parameters_and_memory() -> None:
    large = bound()
    small = large.reshape(data=(2, 1, 8, 8), softmax_label=(2,))
    assert small.arg_dict["fc1_weight"] is large.arg_dict["fc1_weight"]
    assert small.arg_dict["data"].chunk is large.arg_dict["data"].chunk
    data = symbol_networks.value("other", (4, 1, 8, 8))
    expected = large.forward(is_train=True, data=data)[0].asnumpy()[:2]
    found = small.forward(is_train=True, data=data[:2])[0].asnumpy()
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    # The smaller executor has written over what the larger one's backward pass would read.
    with pytest.raises(UserError, match="no other pass in the same memory"):
        large.backward()
    again = large.forward(is_train=True, data=data)[0].asnumpy()[:2]
    assert again.tobytes() == expected.tobytes()
    large.backward()
    small.forward(is_train=True, data=data[:2])
    small.backward()
    assert np.isfinite(small.grad_dict["fc1_weight"].asnumpy()).all()


def test_reshape_asks_for_permission() -> None:
    executor = bound()
    with pytest.raises(UserError, match="'data' would become larger"):
        executor.reshape(data=(8, 1, 8, 8), softmax_label=(8,))
    up = executor.reshape(data=(8, 1, 8, 8), softmax_label=(8,), allow_up_sizing=True)
    assert up.outputs[0].shape == (8, 6)
    with pytest.raises(UserError, match="shape of 'fc1_weight' changes, which is not named"):
        executor.reshape(data=(4, 1, 6, 6))
    other = executor.reshape(data=(4, 1, 6, 6), partial_shaping=True)
    assert other.arg_dict["fc1_weight"].shape == (6, 16)
    with pytest.raises(UserError, match="no variable 'daat'"):
        executor.reshape(daat=(4, 1, 8, 8))


def test_copy_params_from_checks_names_and_shapes() -> None:
    executor = bound()
    bias = np.arange(6.0)
    executor.copy_params_from({"fc1_bias": bias, "conv1_bias": nd.array(np.ones(4))})
    assert executor.arg_dict["fc1_bias"].asnumpy().tolist() == bias.tolist()
    assert executor.arg_dict["conv1_bias"].asnumpy().tolist() == [1] * 4
    with pytest.raises(UserError, match="no argument 'fc1_bais'"):
        executor.copy_params_from({"fc1_bais": bias})
    with pytest.raises(UserError, match="no auxiliary state 'mean'"):
        executor.copy_params_from({}, {"mean": bias})
    executor.copy_params_from({"else": bias}, {"mean": bias}, allow_extra_params=True)
    with pytest.raises(UserError, match="argument 'fc1_bias' has another shape"):
        executor.copy_params_from({"fc1_bias": bias[:3]})


def test_debug_str_and_memory_report() -> None:
    executor = bound()
    report = executor.memory_report()
    assert report["parameters"] > 0
    assert report["gradients"] > 0
    assert f"Total {executor.planned_bytes} bytes planned" in executor.debug_str()
    assert "Op:Convolution, Name=conv1" in executor.debug_str()
