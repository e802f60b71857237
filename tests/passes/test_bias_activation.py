"""Gradients of dense layers' biases from the activations that follow."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from executors import cpu, executor_for

from mxrun import library
from mxrun.base.tensor import TensorSpec
from mxrun.compiler.compile import compile_plan
from mxrun.compiler.request import CompileRequest
from mxrun.executor.executor import Executor
from mxrun.graph.phases import EVALUATE, TRAIN
from mxrun.graph.symbol import Symbol, apply, fresh_names, group, variable
from mxrun.passes.bias_activation import BIAS_ACTIVATION, FUSED

library.load()

ROWS, FEATURES, HIDDEN = 70, 20, 83
GRADIENTS = ("data", "fc_weight", "fc_bias")
ACTIVATIONS: tuple[tuple[str, dict[str, object]], ...] = (
    ("gelu", {}),
    ("gelu", {"approximate": "tanh"}),
    ("silu", {}),
    ("LeakyReLU", {"act_type": "gelu"}),
)


def network(
    kind: str, parameters: dict[str, object], has_bias: bool = True, further: bool = False
) -> Symbol:
    """Return the loss of a dense layer and its activation; `further`: the layer is read twice."""
    with fresh_names():
        given = {"num_hidden": HIDDEN, "no_bias": not has_bias}
        dense = apply("FullyConnected", {"data": variable("data")}, given, "fc")
        output = apply(kind, {"data": dense}, parameters, "act")
        if further:
            output = apply("elemwise_add", {"lhs": output, "rhs": dense}, {}, "sum")
        weighed = apply("elemwise_mul", {"lhs": output, "rhs": variable("factors")}, {}, "weighed")
        return group([apply("MakeLoss", {"data": weighed}, {}, "loss")])


def executor(symbol: Symbol, gradients: tuple[str, ...] = GRADIENTS, **options: Any) -> Executor:
    request = CompileRequest(
        {"data": TensorSpec((ROWS, FEATURES)), "factors": TensorSpec((ROWS, HIDDEN))},
        gradients=gradients,
        phases=(TRAIN, EVALUATE),
        device=cpu(2),
        **options,
    )
    return executor_for(compile_plan(symbol, request))


def is_fused(executor: Executor, phase: str = TRAIN) -> bool:
    steps = executor.plan.phases[phase].graph.steps
    return FUSED in [step.prop.type_string for step in steps if step.prop]


def gradients(executor: Executor, names: tuple[str, ...] = GRADIENTS) -> list[bytes]:
    random = np.random.default_rng(3)
    for name in ("data", "factors", "fc_weight", "fc_bias"):
        tensor = executor.tensor(name)
        tensor.write(random.standard_normal(tensor.spec.shape, np.float32))
    executor.run(TRAIN)
    return [executor.result(TRAIN, f"{name}_grad").values().tobytes() for name in names]


@pytest.mark.parametrize("names", [GRADIENTS, ("data",), ("fc_bias",)], ids=str)
@pytest.mark.parametrize(("kind", "parameters"), ACTIVATIONS, ids=str)
def test_every_gradient_keeps_its_bits(
    kind: str, parameters: dict[str, object], names: tuple[str, ...]
) -> None:
    symbol = network(kind, parameters)
    fused, plain = (
        executor(symbol, names, unfused=unfused) for unfused in ((), (BIAS_ACTIVATION,))
    )
    assert is_fused(fused)
    assert not is_fused(plain)
    assert gradients(fused, names) == gradients(plain, names)


@pytest.mark.parametrize(
    ("symbol", "options"),
    [
        (network("gelu", {}, has_bias=False), {}),
        (network("gelu", {}, further=True), {}),
        (network("LeakyReLU", {"act_type": "elu"}), {}),
        (network("gelu", {}), {"fuse": False}),
        (network("gelu", {}), {"precision": "bfloat16"}),
    ],
    ids=["no bias", "two readers", "another activation", "no fusion", "two dtypes"],
)
def test_other_layers_stay_as_they_are(symbol: Symbol, options: dict[str, Any]) -> None:
    names = tuple(name for name in GRADIENTS if name in symbol.list_inputs())
    assert not is_fused(executor(symbol, names, **options))


def test_inference_adds_no_gradients() -> None:
    assert not is_fused(executor(network("gelu", {})), EVALUATE)
