"""`precision: bfloat16`: which tensors are stored in it, and the accuracy of results."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import residual
from commands import mxrun
from executors import cpu, executor_for
from layer_configs import config_text
from networks import chain, set_first_values, softmax, with_precisions

from mxrun.base.errors import UserError
from mxrun.base.tensor import TensorSpec
from mxrun.compiler.compile import compile_plan
from mxrun.compiler.request import CompileRequest
from mxrun.executor.executor import Executor
from mxrun.graph.graph import MemoryClass, StepKind
from mxrun.graph.phases import EVALUATE, TRAIN
from mxrun.graph.symbol import Symbol, fresh_names, variable
from mxrun.graph.update_rule import UpdateRule
from mxrun.planner.plan import PhasePlan

Array = npt.NDArray[Any]
INPUTS = {"data": TensorSpec((8, 3, 32, 32)), "label": TensorSpec((8,), "int32")}
RULE = UpdateRule("sgd_mom_update", {"lr": 0.05, "momentum": 0.9, "rescale_grad": 0.125})
ACTIVATIONS = (MemoryClass.ACTIVATIONS, MemoryClass.ACTIVATION_GRADIENTS)


def trained(
    symbol: Symbol, precision: str, steps: int, **options: Any
) -> tuple[Executor, list[float]]:
    """Train a few steps on one batch, and return the loss of each."""
    rules = {n: RULE for n in symbol.list_arguments() if n not in INPUTS}
    request = CompileRequest(INPUTS, rules=rules, device=cpu(2), precision=precision, **options)
    executor = executor_for(compile_plan(symbol, request))
    set_first_values(executor, 7)
    losses = []
    for _ in range(steps):
        executor.run(TRAIN)
        losses.append(float(executor.result(TRAIN, "softmax_loss").values().item()) / 8)
    return executor, losses


def activation_types(phase: PhasePlan) -> set[str]:
    """The types of large activations and their gradients."""
    values = phase.graph.values
    made = {value for step in phase.steps for value in step.writes}
    return {
        values[value].spec.dtype
        for value in made
        if values[value].memory_class in ACTIVATIONS and values[value].spec.elements > 2000
    }


@pytest.mark.full
def test_a_residual_network_keeps_all_activations_in_bfloat16() -> None:
    executor, losses = trained(residual.resnet20(), "bfloat16", 8)
    plan = executor.plan
    assert (
        activation_types(plan.phases[TRAIN])
        == activation_types(plan.phases[EVALUATE])
        == {"bfloat16"}
    )
    assert {spec.dtype for spec in plan.specs.values()} <= {"float32", "int32", "int64"}
    gradients = [
        v for v in plan.phases[TRAIN].graph.values if v.memory_class is MemoryClass.GRADIENTS
    ]
    assert {value.spec.dtype for value in gradients} == {"float32"}
    full, expected = trained(residual.resnet20(), "float32", 8)
    assert activation_types(full.plan.phases[TRAIN]) == {"float32"}
    np.testing.assert_allclose(losses, expected, 0.05)
    assert losses != expected
    activations = plan.classes()["activations"].total_bytes
    assert activations < 0.6 * full.plan.classes()["activations"].total_bytes


def test_conversions_are_planned_steps() -> None:
    executor, _ = trained(residual.resnet20(), "bfloat16", 0)
    phase = executor.plan.phases[TRAIN]
    for step in phase.steps:
        assert step.kernel is not None
        types = {s.dtype for s in (*step.kernel.inputs, *step.kernel.outputs) if s is not None}
        if step.kind is StepKind.UPDATE or step.prop.type_string == "SoftmaxOutput":
            assert "bfloat16" not in types
        if step.prop.type_string == "Convolution":
            assert "bfloat16" in types


@pytest.mark.full
def test_ways_of_planning_keep_the_bits() -> None:
    one, losses = trained(residual.resnet20(), "bfloat16", 2)
    for options in ({}, {"in_place": False, "reuse": False}, {"fuse": False}):
        other, same = trained(residual.resnet20(), "bfloat16", 2, **options)
        assert losses == same
        for name in residual.resnet20().list_arguments():
            assert np.array_equal(one.tensor(name).values(), other.tensor(name).values()), name


def test_explicit_gradients_equal_reverse_traversal() -> None:
    one, losses = trained(small(), "bfloat16", 3)
    other, same = trained(small(), "bfloat16", 3, backward="reverse")
    assert losses == same
    assert np.array_equal(
        one.tensor("conv1_weight").values(), other.tensor("conv1_weight").values()
    )


def small(**precisions: str) -> Symbol:
    """conv1 → relu1 → conv2 → relu2 → softmax, with the precision of layers by name."""
    layers = [
        ("Convolution", {"num_filter": 16, "kernel": (3, 3)}, "conv1"),
        ("Activation", {"act_type": "relu"}, "relu1"),
        ("Convolution", {"num_filter": 16, "kernel": (3, 3)}, "conv2"),
        ("Activation", {"act_type": "relu"}, "relu2"),
        ("FullyConnected", {"num_hidden": 10}, "fc"),
    ]
    with fresh_names():
        symbol = softmax(chain(variable("data"), *layers))
    return with_precisions(symbol, precisions)


def types(symbol: Symbol, precision: str, fuse: bool = False) -> dict[str, str]:
    """Return the output types of forward steps."""
    request = CompileRequest(
        INPUTS, phases=(EVALUATE,), device=cpu(2), precision=precision, fuse=fuse
    )
    steps = compile_plan(symbol, request).phases[EVALUATE].steps
    return {
        step.name: step.kernel.outputs[0].dtype
        for step in steps
        if step.kernel is not None and step.kind is StepKind.FORWARD and step.kernel.outputs[0]
    }


LAYERS = ("conv1", "relu1", "conv2", "relu2", "fc")


@pytest.mark.parametrize(
    ("precision", "layers", "low"),
    [
        ("bfloat16", {}, LAYERS),
        ("float32", {}, ()),
        ("bfloat16", {"conv1": "float32"}, ("conv2", "relu2", "fc")),
        ("bfloat16", {"relu2": "float32"}, ("conv1", "relu1", "conv2", "fc")),
        ("float32", {"conv2": "bfloat16"}, ("conv2",)),
        ("float32", {"conv2": "bfloat16", "relu2": "bfloat16"}, ("conv2", "relu2")),
    ],
)
def test_a_layer_may_have_a_precision_of_its_own(
    precision: str, layers: dict[str, str], low: tuple[str, ...]
) -> None:
    found = types(small(**layers), precision)
    assert {name for name in LAYERS if found[name] == "bfloat16"} == set(low)
    assert found["softmax"] == "float32"


def test_a_loss_asked_for_in_bfloat16_is_refused_where_it_stands() -> None:
    with pytest.raises(
        UserError, match="SoftmaxOutput 'softmax' does not run in bfloat16"
    ) as caught:
        types(small(softmax="bfloat16"), "float32")
    assert str(caught.value).startswith("net.yaml:7:3")


VIEWS = {
    "Flatten": {},
    "Reshape": {"shape": (0, -1)},
    "BlockGrad": {},
    "expand_dims": {"axis": 1},
    "squeeze": {},
}


@pytest.mark.parametrize("precision", [None, "bfloat16"])
@pytest.mark.parametrize("operator", VIEWS)
def test_a_view_has_the_type_of_what_it_reads(operator: str, precision: str | None) -> None:
    """Between two bfloat16 layers of a float32 network, no step converts to float32 and back."""
    with fresh_names():
        symbol = chain(
            variable("data"),
            ("Convolution", {"num_filter": 16, "kernel": (3, 3)}, "conv"),
            (operator, VIEWS[operator], "view"),
            ("FullyConnected", {"num_hidden": 10}, "fc"),
        )
        symbol = softmax(symbol)
    layers = {"conv": "bfloat16", "fc": "bfloat16"}
    layers |= {"view": precision} if precision else {}
    symbol = with_precisions(symbol, layers)
    wanted = ("fc_weight",) if operator == "BlockGrad" else ("conv_weight", "fc_weight")
    request = CompileRequest(INPUTS, gradients=wanted, phases=(TRAIN,), device=cpu(2))
    graph = compile_plan(symbol, request).phases[TRAIN].graph
    names = ("conv_output", "view_output", "fc_output")
    found = {value.name: value.spec.dtype for value in graph.values}
    assert [found[name] for name in names] == ["bfloat16"] * 3
    passed = ("conv_output", "view_output")
    copies = [
        v.spec.dtype for v in graph.values if v.name.startswith(tuple(f"{n}@" for n in passed))
    ]
    assert set(copies) <= {"bfloat16"}
    views = [step for step in graph.steps if step.kernel is not None and step.kernel.is_view]
    assert views
    for step in views:
        assert step.kernel is not None
        kinds = {s.dtype for s in (*step.kernel.inputs, *step.kernel.outputs) if s is not None}
        assert kinds == {"bfloat16"}


def test_a_view_of_float32_stays_so_whatever_it_asks_for() -> None:
    with fresh_names():
        symbol = chain(variable("data"), ("Flatten", {}, "view"), ("BlockGrad", {}, "end"))
    with_view = with_precisions(symbol, {"view": "bfloat16"})
    request = CompileRequest(INPUTS, phases=(EVALUATE,), precision="bfloat16")
    planned = compile_plan(with_view, request).phases[EVALUATE]
    assert {planned.graph.values[value].spec.dtype for value in planned.graph.results.values()} == {
        "float32"
    }


def test_a_chain_of_two_types_is_not_fused() -> None:
    with fresh_names():
        symbol = chain(
            variable("data"),
            ("Convolution", {"num_filter": 16, "kernel": (3, 3)}, "conv"),
            ("BatchNorm", {"fix_gamma": False}, "bn"),
            ("Activation", {"act_type": "relu"}, "relu"),
        )
    mixed = with_precisions(symbol, {"relu": "float32"})
    joint = {"conv": "bfloat16", "bn+relu": "bfloat16"}
    assert types(symbol, "bfloat16", fuse=True) == joint
    assert types(mixed, "bfloat16", fuse=True) == {
        "conv": "bfloat16",
        "bn": "bfloat16",
        "relu": "float32",
    }


def test_inference_folds_normalizations_and_keeps_results_in_float32() -> None:
    symbol = residual.resnet20()
    results = []
    for precision in ("float32", "bfloat16"):
        request = CompileRequest(
            INPUTS, phases=(EVALUATE,), device=cpu(2), precision=precision, constant_parameters=True
        )
        executor = executor_for(compile_plan(symbol, request))
        random = np.random.default_rng(1)
        for block in executor.plan.pinned:
            if block.memory_class is MemoryClass.CONSTANTS:
                continue
            array = executor.tensor(block.name).mirror().array
            if array.dtype != np.float32:
                continue
            array[...] = random.standard_normal(array.shape) * 0.1
            if block.name.endswith(("gamma", "moving_var")):
                array[...] = 1
        executor.prepare()
        executor.run(EVALUATE)
        results.append(executor.result(EVALUATE, "softmax_output").read())
        operators = {step.prop.type_string for step in executor.plan.phases[EVALUATE].steps}
        assert "BatchNorm" not in operators
        assert "_batch_norm_limited" not in operators
    assert results[1].dtype == np.float32
    np.testing.assert_allclose(results[1], results[0], atol=0.02)
    assert not np.array_equal(*results)


NETWORK = config_text(
    """\
    - Convolution: {name: conv, num_filter: 8, kernel: [3, 3]}
    - BatchNorm: {name: bn, fix_gamma: false}
    - Activation: {act_type: relu}
    - FullyConnected: {name: fc, num_hidden: 10}
    - SoftmaxOutput: {name: softmax, label: label}
""",
    name="tiny",
    settings="precision: bfloat16\n",
    train="""\
train:
  epochs: 3
  optimizer: {sgd: {lr: 0.1, momentum: 0.9}}
  metrics: [accuracy]
""",
)


@pytest.mark.full
@pytest.mark.parametrize("onednn", [True, False])
def test_digits_are_learnt_with_oneDNN_and_without(tmp_path: Path, onednn: bool) -> None:
    (tmp_path / "tiny.yaml").write_text(NETWORK)
    missing = {} if onednn else {"MXRUN_ONEDNN_LIBRARY": str(tmp_path / "missing.so")}
    run = partial(mxrun, cwd=tmp_path, environment=missing)
    done = run("train", "tiny.yaml", "--json")
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert summary["eval"]["accuracy"] > 0.9
    assert summary["memory"]["planned_bytes"] == summary["memory"]["touched_bytes"]
    # Another precision is another run; the checkpoint itself is float32 and serves both.
    changed = run("train", "tiny.yaml", "precision=float32", "--resume")
    assert changed.returncode == 2
    assert "precision: bfloat16" in changed.stderr
    answers = [
        run("infer", "runs/tiny", "--split", "eval", "--json", *words)
        for words in ((), ("--precision", "float32"))
    ]
    assert [answer.returncode for answer in answers] == [0, 0], answers[1].stderr
    low, full = (json.loads(answer.stdout) for answer in answers)
    assert low["metrics"]["accuracy"] == pytest.approx(summary["eval"]["accuracy"])
    assert full["metrics"]["accuracy"] == pytest.approx(low["metrics"]["accuracy"], abs=0.02)
    # NumPy bodies have no bfloat16, and the layers after them continue in float32.
    assert (full["metrics"]["loss"] != low["metrics"]["loss"]) == onednn


def test_a_layer_that_names_bfloat16_has_it_behind_float32() -> None:
    with fresh_names():
        symbol = softmax(
            chain(
                variable("data"),
                ("BatchNorm", {"fix_gamma": False}, "bn"),
                ("Activation", {"act_type": "relu"}, "relu"),
                ("FullyConnected", {"num_hidden": 10}, "fc"),
            )
        )
    own = {"bn": "bfloat16", "relu": "bfloat16"}
    for fuse in (False, True):
        executor, _ = trained(with_precisions(symbol, own), "float32", 1, fuse=fuse)
        steps = executor.plan.phases[TRAIN].steps
        made = {step.name: executor.plan.phases[TRAIN].graph.spec(step.writes[0]) for step in steps}
        names = ["bn+relu"] if fuse else ["bn", "relu"]
        assert [made[name].dtype for name in names] == ["bfloat16"] * len(names)


def test_an_unknown_precision_is_refused(tmp_path: Path) -> None:
    (tmp_path / "tiny.yaml").write_text(NETWORK.replace("bfloat16", "bfloat"))
    done = mxrun("check", "tiny.yaml", cwd=tmp_path)
    assert done.returncode == 2
    assert "tiny.yaml:2:12" in done.stderr
    assert "bfloat16" in done.stderr
    (tmp_path / "tiny.yaml").write_text(NETWORK.replace("name: fc,", "name: fc, precision: half,"))
    done = mxrun("check", "tiny.yaml", cwd=tmp_path)
    assert done.returncode == 2
    assert "no such precision" in done.stderr
    assert "tiny.yaml:9:" in done.stderr
