"""Gradients of networks run operator by operator equal those of their plans."""

from __future__ import annotations

import numpy as np
import pytest
from executors import executor_for
from imperative import array, run_symbol, variable
from networks import (
    INPUTS,
    VECTORS,
    chain,
    convolutional,
    dense,
    fill,
    parameters,
    residual,
    shared,
    softmax,
)

from mxrun.base.context import cpu
from mxrun.compiler.compile import compile_plan
from mxrun.compiler.request import CompileRequest
from mxrun.device.storage import device_of
from mxrun.executor.executor import Executor
from mxrun.graph.phases import TRAIN
from mxrun.graph.symbol import Symbol, apply, fresh_names
from mxrun.graph.symbol import variable as symbol_variable
from mxrun.imperative.differentiation import autograd


def mlp() -> Symbol:
    with fresh_names():
        first = dense(symbol_variable("data"), "fc1", 16)
        hidden = chain(first, ("Activation", {"act_type": "sigmoid"}, "act1"))
        return softmax(dense(hidden, "fc2", 4))


def normalised() -> Symbol:
    """A residual network with batch normalisation."""
    with fresh_names():
        stem = chain(
            symbol_variable("data"),
            ("Convolution", {"num_filter": 8, "kernel": (3, 3), "pad": (1, 1)}, "stem"),
            ("BatchNorm", {"fix_gamma": False}, "stem_bn"),
            ("Activation", {"act_type": "relu"}, "stem_relu"),
        )
        body = chain(
            stem,
            ("Convolution", {"num_filter": 8, "kernel": (3, 3), "pad": (1, 1)}, "conv1"),
            ("BatchNorm", {"fix_gamma": False}, "bn1"),
            ("Activation", {"act_type": "relu"}, "relu1"),
            ("Convolution", {"num_filter": 8, "kernel": (3, 3), "pad": (1, 1)}, "conv2"),
            ("BatchNorm", {"fix_gamma": False}, "bn2"),
        )
        joined = apply("elemwise_add", {"lhs": body, "rhs": stem}, {}, "join")
        return softmax(
            chain(
                joined,
                ("Activation", {"act_type": "relu"}, "relu2"),
                ("Pooling", {"kernel": (3, 3), "stride": (3, 3), "pool_type": "avg"}, "pool"),
                ("FullyConnected", {"num_hidden": 4}, "fc"),
            )
        )


NETWORKS = {
    "mlp": (mlp, VECTORS),
    "lenet": (convolutional, INPUTS),
    "residual": (residual, INPUTS),
    "shared": (shared, INPUTS),
    "normalised": (normalised, INPUTS),
}


def symbolic(name: str, fuse: bool) -> Executor:
    """Return an executor of a network's training step, filled with values."""
    make, inputs = NETWORKS[name]
    symbol = make()
    names = tuple(parameters(symbol))
    description = device_of(cpu()).description
    request = CompileRequest(
        inputs, gradients=names, phases=(TRAIN,), device=description, fuse=fuse
    )
    executor = executor_for(compile_plan(symbol, request))
    fill(executor)
    return executor


def compared(name: str, fuse: bool) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Return every gradient and state of the plan's step with that of the operators' calls."""
    symbol = NETWORKS[name][0]()
    executor = symbolic(name, fuse)
    arrays = {}
    for block in executor.plan.pinned:
        values = executor.tensor(block.name).read()
        is_trained = block.name in parameters(symbol)
        arrays[block.name] = variable(values) if is_trained else array(values, str(values.dtype))
    executor.run(TRAIN)
    with autograd.record():
        heads = run_symbol(symbol, arrays)
    autograd.backward(heads)
    found = {
        key: (executor.result(TRAIN, f"{key}_grad").read(), arrays[key].grad.asnumpy())
        for key in parameters(symbol)
    }
    states = {
        key: (executor.tensor(key).read(), arrays[key].asnumpy())
        for key in symbol.list_auxiliary_states()
    }
    return found | states


@pytest.mark.parametrize("name", NETWORKS)
def test_gradients_are_those_of_the_plan_bit_for_bit(name: str) -> None:
    for key, (planned, called) in compared(name, fuse=False).items():
        assert np.abs(planned).max() > 0, key
        np.testing.assert_array_equal(called, planned, key)


@pytest.mark.parametrize("name", NETWORKS)
def test_gradients_are_close_to_those_of_the_fused_plan(name: str) -> None:
    for key, (planned, called) in compared(name, fuse=True).items():
        scale = np.abs(planned).max()
        np.testing.assert_allclose(called, planned, rtol=0, atol=1e-5 * scale, err_msg=key)
