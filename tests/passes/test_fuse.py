"""Fused chains of operators: which are fused, and equality of all bits."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import residual
from commands import refused
from executors import cpu, executor_for
from layer_configs import config_file

from mxrun.base.tensor import TensorSpec
from mxrun.compiler.compile import compile_plan
from mxrun.compiler.request import CompileRequest
from mxrun.executor.executor import Executor
from mxrun.graph.phases import EVALUATE, TRAIN
from mxrun.graph.symbol import Symbol, apply, fresh_names, group, variable
from mxrun.graph.update_rule import UpdateRule
from mxrun.preparation.planning import load, plan_for

Array = npt.NDArray[Any]
INPUTS = {"data": TensorSpec((4, 3, 32, 32)), "label": TensorSpec((4,), "int32")}
RULE = UpdateRule("sgd_mom_update", {"lr": 0.05, "momentum": 0.9, "rescale_grad": 0.25})


def network(
    activation: str = "relu", *, twice: bool = False, residual_of: str | None = None
) -> Symbol:
    """Return data → bn (→ add) → active; with `twice`, another step reads bn too."""
    with fresh_names():
        data = variable("data")
        normal = apply("BatchNorm", {"data": data}, {"fix_gamma": False}, "bn")
        joined = normal
        if residual_of is not None:
            other = data if residual_of == "data" else variable(residual_of)
            joined = apply("elemwise_add", {"lhs": other, "rhs": normal}, {}, "sum")
        limits = {"a_min": 0.0, "a_max": 6.0}
        active = (
            apply("clip", {"data": joined}, limits, "active")
            if activation == "clip"
            else apply("Activation", {"data": joined}, {"act_type": activation}, "active")
        )
        return group(
            [active, apply("negative", {"data": normal}, {}, "minus")] if twice else [active]
        )


def operators(symbol: Symbol, fuse: bool = True) -> list[str]:
    """Return the operators of evaluation."""
    request = CompileRequest({"data": INPUTS["data"]}, phases=(EVALUATE,), fuse=fuse)
    steps = compile_plan(symbol, request).phases[EVALUATE].graph.steps
    return [step.prop.type_string for step in steps if step.prop is not None]


def bound(symbol: Symbol, *, fuse: bool, **options: Any) -> Executor:
    executor = executor_for(compile_plan(symbol, CompileRequest(INPUTS, fuse=fuse, **options)))
    random = np.random.default_rng(3)
    for block in executor.plan.pinned:
        array = executor.tensor(block.name).mirror().array
        if block.name == "label":
            array[...] = random.integers(0, 10, array.shape)
        elif ":" in block.name:
            array[...] = 0
        elif block.name.endswith(("gamma", "moving_var")):
            array[...] = random.uniform(0.5, 2, array.shape)
        else:
            array[...] = random.standard_normal(array.shape) * 0.2
    return executor


def inverted_residual() -> Symbol:
    """Return the block of MobileNetV2, with enough numbers clipped at either end."""
    with fresh_names():
        symbol = variable("data")
        for number, (filters, kernel, groups) in enumerate([(24, 3, 1), (24, 3, 24), (12, 1, 1)]):
            convolution = {
                "num_filter": filters,
                "kernel": (kernel, kernel),
                "stride": (2, 2) if number == 0 else (1, 1),
                "pad": (kernel // 2, kernel // 2),
                "num_group": groups,
                "no_bias": True,
            }
            symbol = apply("Convolution", {"data": symbol}, convolution, f"conv{number}")
            symbol = apply("BatchNorm", {"data": symbol}, {"fix_gamma": False}, f"bn{number}")
            if number == 2:
                shortcut = apply("identity", {"data": symbol}, {}, "copy")
                symbol = apply("elemwise_add", {"lhs": shortcut, "rhs": symbol}, {}, "add")
            symbol = apply("clip", {"data": symbol}, {"a_min": 0.0, "a_max": 0.7}, f"clip{number}")
        symbol = apply("FullyConnected", {"data": symbol}, {"num_hidden": 10}, "fc")
        ends = {"data": symbol, "label": variable("label")}
        return apply("SoftmaxOutput", ends, {}, "softmax")


# In ResNet-20, a rectifier follows 10 batch norms, a sum and a rectifier 9, and neither follows the
# 2 of the shortcuts. A sum has no backward step of its own. A sum and clip are not fused.
STEPS_LESS = {"resnet20": 28 + 19, "inverted_residual": 2 + 2}


@pytest.mark.parametrize(
    ("implementation", "precision"),
    [
        ("auto", "float32"),
        pytest.param("numpy", "float32", marks=pytest.mark.full),
        ("auto", "bfloat16"),
    ],
)
@pytest.mark.parametrize("network", [residual.resnet20, inverted_residual])
def test_O5_training_and_evaluation_keep_every_bit(
    network: Callable[[], Symbol], implementation: str, precision: str
) -> None:
    """After three steps with and without fusion, all variables are the same."""
    symbol = network()
    rules = {n: RULE for n in symbol.list_arguments() if n not in INPUTS}
    options = {"rules": rules, "implementation": implementation, "precision": precision}
    plain, fused = (bound(symbol, fuse=fuse, device=cpu(2), **options) for fuse in (False, True))
    for executor in (plain, fused):
        for _ in range(3):
            executor.run(TRAIN)
        executor.run(EVALUATE)
    counts = [len(e.plan.phases[TRAIN].graph.steps) for e in (plain, fused)]
    assert counts[0] - counts[1] == STEPS_LESS[network.__name__]
    for block in plain.plan.pinned:
        ours, theirs = fused.tensor(block.name).values(), plain.tensor(block.name).values()
        assert ours.tobytes() == theirs.tobytes(), block.name
    for name in plain.plan.phases[EVALUATE].graph.results:
        ours, theirs = (executor.result(EVALUATE, name).values() for executor in (fused, plain))
        assert ours.tobytes() == theirs.tobytes(), name


def test_the_longest_chain_becomes_one_step_under_a_joint_name() -> None:
    assert operators(network()) == ["_batch_norm_limited"]
    assert operators(network(residual_of="data")) == ["_batch_norm_limited"]
    assert operators(network("clip")) == ["_batch_norm_limited"]
    request = CompileRequest({"data": INPUTS["data"]}, phases=(EVALUATE,))
    (step,) = compile_plan(network(residual_of="data"), request).phases[EVALUATE].graph.steps
    assert step.name == "bn+sum+active"


@pytest.mark.parametrize(
    "symbol",
    [
        network("tanh"),
        network(twice=True),
        network("tanh", residual_of="data"),
        network("clip", residual_of="data"),
    ],
    ids=[
        "another activation",
        "a second reader",
        "another activation after a sum",
        "clip after a sum",
    ],
)
def test_other_chains_stay_as_they_are(symbol: Symbol) -> None:
    assert operators(symbol) == operators(symbol, fuse=False)


CONFIG = """\
network:
  inputs: {data: [3, 8, 8], label: []}
  layers:
    - BatchNorm: {name: bn%s}
    - Activation: {name: relu, act_type: relu%s}
    - FullyConnected: {name: fc, num_hidden: 10}
    - SoftmaxOutput: {name: softmax, label: label}
data:
  batch_size: 4
  train: {dataset: synthetic, split: train, records: 8}
train: {epochs: 1, optimizer: {sgd: {lr: 0.1}}}
"""


@pytest.mark.parametrize(
    ("layer", "activation", "overrides", "fused"),
    [
        ("", "", [], True),
        ("", "", ["fuse=false"], False),
        (", fused: false", "", [], False),
        ("", ", fused: false", [], False),
        ("", ", implementation: numpy", [], False),
    ],
)
def test_a_config_says_what_is_not_fused(
    tmp_path: Path, layer: str, activation: str, overrides: list[str], fused: bool
) -> None:
    path = config_file(tmp_path, CONFIG % (layer, activation))
    plan = plan_for(load(path, overrides), training=True)
    names = {step.name for step in plan.phases[TRAIN].graph.steps}
    assert ("bn+relu" in names) is fused
    assert ("relu" in names) is not fused


def test_fused_is_true_or_false(tmp_path: Path) -> None:
    (tmp_path / "net.yaml").write_text(CONFIG % (", fused: maybe", ""))
    shown = refused("check", "net.yaml", cwd=tmp_path)
    assert "net.yaml:4:36" in shown
    assert "true or false" in shown


def test_gradients_are_folded_in_the_order_of_the_network_as_it_is_written() -> None:
    """The shift has three readers; fusion moves the first of them behind the others."""
    with fresh_names():
        x = apply("FullyConnected", {"data": variable("data")}, {"num_hidden": 7}, "x")
        normal = apply("BatchNorm", {"data": x}, {"fix_gamma": False}, "bn")
        bent = [apply(kind, {"data": x}, {}, kind) for kind in ("tanh", "sigmoid")]
        others = apply("elemwise_add", {"lhs": bent[0], "rhs": bent[1]}, {}, "others")
        joined = apply("elemwise_add", {"lhs": normal, "rhs": others}, {}, "sum")
        active = apply("Activation", {"data": joined}, {"act_type": "relu"}, "relu")
        symbol = apply("SoftmaxOutput", {"data": active, "label": variable("label")}, {}, "softmax")
    rules = {name: RULE for name in symbol.list_arguments() if name not in INPUTS}
    plain, fused = (bound(symbol, fuse=fuse, rules=rules) for fuse in (False, True))
    for executor in (plain, fused):
        for _ in range(20):
            executor.run(TRAIN)
    assert "bn+sum+relu" in {step.name for step in fused.plan.phases[TRAIN].graph.steps}
    for name in rules:
        assert fused.tensor(name).values().tobytes() == plain.tensor(name).values().tobytes(), name


def test_a_joint_name_that_is_taken_becomes_another() -> None:
    with fresh_names():
        normal = apply("BatchNorm", {"data": variable("data")}, {}, "a")
        active = apply("Activation", {"data": normal}, {"act_type": "relu"}, "b")
        symbol = apply("tanh", {"data": active}, {}, "a+b")
    request = CompileRequest({"data": INPUTS["data"]}, phases=(EVALUATE,))
    steps = compile_plan(symbol, request).phases[EVALUATE].graph.steps
    assert [step.name for step in steps] == ["a+b+", "a+b"]
