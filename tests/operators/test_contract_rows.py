"""Promises of the operator contract beyond single calls: in plans, and for operators other than
maps.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from executors import executor_for
from networks import VECTORS, Arrays, dense, fill, pinned, plan_of, softmax
from operator_harness import BackwardData, all_implementations, backward, forward
from operator_row import Row
from operator_rows import DIFFERENTIABLE
from oracles.peer import MXNet
from planted import plant
from refusals import only_problem

from mxrun import library
from mxrun.commands.ops import example
from mxrun.contract.case import Case
from mxrun.contract.check import check_operator
from mxrun.graph.phases import EVALUATE, TRAIN
from mxrun.graph.symbol import Symbol, apply, fresh_names, variable
from mxrun.operator.kernel import OpReqType
from mxrun.operator.numpy_kernel import NUMPY
from mxrun.operator.property import GradientKind
from mxrun.operator.register import OPERATORS, create
from mxrun.operator.simple import simple_operator
from mxrun.ops.forward_only import ForwardOnlyImplementation
from mxrun.planner.plan import PhasePlan, Plan

library.load()
pytestmark = pytest.mark.usefixtures("separate_registry")
ROI_POOLING = Path(__file__).parents[1] / "support" / "roi_pooling.py"
NULL, WRITE, _, ADD = OpReqType


def planned(symbol: Symbol, **options: Any) -> Plan:
    return plan_of(symbol, inputs=VECTORS, **options)


def trained(plan: Plan) -> Arrays:
    """Return all pinned tensors after some steps."""
    executor = executor_for(plan)
    fill(executor)
    for _ in range(4):
        executor.run(TRAIN)
    return pinned(executor)


def names(phase: PhasePlan) -> list[str]:
    return [step.name for step in phase.steps]


def test_O3_what_nobody_asks_for_is_not_called() -> None:
    with fresh_names():
        symbol = softmax(dense(dense(variable("data"), "first"), "last", 4))
    frozen = ("first_weight", "first_bias", "last_bias")
    phase = planned(symbol, frozen=frozen).phases[TRAIN]
    backward = [step for step in phase.steps if step.forward is not None]
    assert [step.name for step in backward] == ["softmax:backward", "last:backward"]
    assert backward[1].requests == (NULL, WRITE, NULL)
    whole = [step for step in planned(symbol).phases[TRAIN].steps if step.forward == "last"]
    assert sorted(step.requests for step in whole) == [(NULL, WRITE, WRITE), (WRITE, NULL, NULL)]
    # Products that were not requested are not computed either.
    flops = [step.kernel.flops for step in (backward[1], *whole) if step.kernel is not None]
    assert flops[0] < sum(flops[1:])


def test_O7_requests_are_of_each_output_by_itself() -> None:
    """Data's gradient null, weight's added, bias's written: each as in a separate call."""
    prop, random = create("FullyConnected", {"num_hidden": 5}), np.random.default_rng(0)
    shapes = ((7, 6), (5, 6), (5,))
    inputs = [random.standard_normal(shape).astype("float32") for shape in shapes]
    grad = random.standard_normal((7, 5)).astype("float32")
    for implementation in all_implementations(prop):
        if isinstance(implementation, ForwardOnlyImplementation):
            continue
        run = forward(implementation, prop, inputs, [np.empty((7, 5), "float32")])
        assert run is not None
        before = [np.full(shape, 3, "float32") for shape in shapes]
        data = BackwardData([grad], inputs, run.outputs)
        got = backward(implementation, prop, data, before, run, (NULL, ADD, WRITE))
        np.testing.assert_array_equal(got[0], before[0])
        np.testing.assert_allclose(got[1], 3 + grad.T @ inputs[0], rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(got[2], grad.sum(axis=0), rtol=1e-5, atol=1e-5)


ZERO = [
    name
    for name in OPERATORS
    if not OPERATORS.get(name).is_internal
    and set(example(name).list_gradients()) == {GradientKind.ZERO}
]


def test_O10_the_operators_with_zeros_are_those_of_mxnet() -> None:
    assert {"round", "rint", "sign", "argmax", "_greater", "_equal_scalar", "BlockGrad"} <= {*ZERO}
    assert len(ZERO) >= 40


@pytest.mark.parametrize("operator", ZERO)
def test_O10_zero_gradients_train_with_zeros(operator: str) -> None:
    """Beside a path with a gradient, the output changes nothing but the value of the loss."""
    prop = example(operator)
    given = {name: getattr(prop.parameters, name) for name in prop.parameters.model_fields_set}
    with fresh_names():
        stem = dense(variable("data"), "stem")
        inputs = dict.fromkeys(prop.list_arguments(), stem)
        zero = apply(operator, inputs, given, "zero")
        # Reduces any shape to one number per row, scaled by 0 so that the loss does not change.
        flat = apply("sum", {"data": apply("Cast", {"data": zero}, {"dtype": "float32"})}, {})
        scaled = apply("_mul_scalar", {"data": flat}, {"scalar": 0.0})
        both = apply("broadcast_add", {"lhs": dense(stem, "last", 4), "rhs": scaled}, {}, "both")
        symbol = softmax(both)
        alone = softmax(dense(dense(variable("data"), "stem"), "last", 4))
    plan = planned(symbol)
    assert "zero" in names(plan.phases[TRAIN])
    assert "zero:backward" not in names(plan.phases[TRAIN])
    after = trained(plan)
    for name, array in trained(planned(alone)).items():
        np.testing.assert_array_equal(after[name], array)


def test_O10_without_a_gradient_it_infers_and_training_names_the_way_to_the_loss() -> None:
    @simple_operator("opaque")
    def opaque(x: Any) -> Any:
        """output = 2 data."""
        return 2 * x

    with fresh_names():
        stem = apply("opaque", {"data": dense(variable("data"), "stem")}, {}, "middle")
        symbol = softmax(dense(stem, "last", 4))
    executor = executor_for(planned(symbol, rules={}, phases=(EVALUATE,)))
    fill(executor)
    executor.run(EVALUATE)
    problem = only_problem(planned, symbol)
    assert problem.problem.startswith("opaque 'middle' has no gradient for 'data'")
    assert "middle -> last -> softmax" in str(problem)


def test_P6_a_plan_keeps_everything_for_who_declares_nothing(tmp_path: Path) -> None:
    text = "    def declare_backward_dependency(\n"
    path = plant(tmp_path, "keeper", (text, text.replace("declare", "declared")))
    library.load_plugin(str(path))
    with fresh_names():
        data = variable("data")
        sides = {name: dense(data, name) for name in ("lhs", "rhs")}
        middle = apply("keeper", sides, {}, "middle")
        symbol = softmax(dense(middle, "last", 4))
    phase = planned(symbol).phases[TRAIN]
    (step,) = (step for step in phase.steps if step.name == "middle:backward")
    read = {phase.graph.values[value].name for value in step.reads}
    assert read == {"middle_output_grad", "lhs_output", "rhs_output", "middle_output"}


def test_L10_a_composite_and_the_operator_made_for_it_train_alike() -> None:
    """FullyConnected and its two parts: the same values, fewer launches, no more memory."""

    def network(fused: bool) -> Symbol:
        with fresh_names():
            data: Symbol = variable("data")
            for name in ("one", "two"):
                if fused:
                    data = dense(data, name)
                else:
                    weight = variable(f"{name}_weight")
                    sides = {"lhs": data, "rhs": weight}
                    product = apply("dot", sides, {"transpose_b": True}, f"{name}/dot")
                    sides = {"lhs": product, "rhs": variable(f"{name}_bias")}
                    data = apply("broadcast_add", sides, {}, f"{name}/add")
                data = apply("Activation", {"data": data}, {"act_type": "tanh"}, f"{name}_tanh")
            return softmax(dense(data, "last", 4))

    shapes = {
        f"{n}_{w}": s for n in ("one", "two") for w, s in (("weight", (8, 8)), ("bias", (8,)))
    }
    plans = [planned(network(fused), shapes=shapes) for fused in (True, False)]
    one, other = (trained(plan) for plan in plans)
    assert one.keys() == other.keys()
    for name, array in one.items():
        np.testing.assert_allclose(array, other[name], rtol=2e-5, atol=1e-6)
    launches = [len(plan.phases[TRAIN].steps) for plan in plans]
    assert launches[0] < launches[1]
    assert plans[0].planned_bytes <= plans[1].planned_bytes


REGIONS = [[0, 0, 0, 8, 8], [1, 3, 2, 14, 9], [1, 9, 9, 9, 9], [0, 4, 1, 21, 16], [1, 18, 0, 20, 2]]
POOLINGS: list[dict[str, Any]] = [
    {"pooled_size": (2, 2)},
    {"pooled_size": (3, 1), "spatial_scale": 0.5},
    {"pooled_size": (4, 5), "spatial_scale": 0.25},
]


def roi_inputs() -> list[Any]:
    data = np.random.default_rng(0).permutation(2 * 3 * 9 * 11).reshape(2, 3, 9, 11)
    return [(data / 100).astype("float32"), np.array(REGIONS, "float32")]


@pytest.mark.parametrize("parameters", POOLINGS, ids=str)
def test_Q12_roi_pooling_by_the_full_path_keeps_the_contract(parameters: dict[str, Any]) -> None:
    library.load_plugin(str(ROI_POOLING))
    values = roi_inputs()
    inputs = {
        "float32": tuple(values),
        "float64": tuple(value.astype("float64") for value in values),
    }
    case = Case(str(parameters), create("roi_pooling", parameters), inputs)
    report = check_operator("roi_pooling", [case])
    assert report.passed, [str(p) for outcome in report.outcomes for p in outcome.problems]


@pytest.mark.parametrize("parameters", POOLINGS, ids=str)
def test_Q12_roi_pooling_is_mxnets(parameters: dict[str, Any]) -> None:
    reason = MXNet.unavailable()
    if reason is not None:
        pytest.skip(reason)
    library.load_plugin(str(ROI_POOLING))
    prop, inputs = create("roi_pooling", parameters), roi_inputs()
    shape = (len(REGIONS), 3, *parameters["pooled_size"])
    blank = [np.empty(shape, "float32"), np.empty(shape, "int32")]
    run = forward(NUMPY, prop, inputs, blank)
    assert run is not None
    grad = np.random.default_rng(1).standard_normal(shape).astype("float32")
    data = BackwardData([grad, blank[1]], inputs, run.outputs)
    before = [np.zeros_like(value) for value in inputs]
    gradient = backward(NUMPY, prop, data, before, run)[0]
    strings = {"spatial_scale": "1.0", **prop.parameters.to_strings()}
    with MXNet() as peer:
        named = dict(zip(("data", "rois"), inputs, strict=True))
        theirs = peer.run_operator("ROIPooling", strings, named, [grad])
    np.testing.assert_array_equal(run.outputs[0], theirs.outputs[0])
    np.testing.assert_allclose(gradient, theirs.gradients["data"], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("row", DIFFERENTIABLE, ids=str)
def test_P5_a_gradient_that_is_said_to_pass_is_the_outputs(row: Row) -> None:
    """Plans omit its computation; if requested nevertheless, every implementation copies it."""
    prop = row.create()
    passed, inputs = prop.list_passed_gradients(), row.inputs("float32")
    kinds = prop.list_gradients()
    assert all(kinds[index] is GradientKind.COMPUTES for index in passed)
    random = np.random.default_rng(3)
    for implementation in all_implementations(prop) if passed else ():
        outputs = row.blank_outputs("float32")
        done = forward(implementation, prop, inputs, outputs, is_train=True)
        if done is None:
            continue
        out_grad = [random.standard_normal(each.shape).astype("float32") for each in outputs]
        arguments = inputs[: len(prop.list_arguments())]
        data = BackwardData(out_grad, arguments, done.outputs)
        before = [np.zeros_like(array) for array in arguments]
        gradients = backward(implementation, prop, data, before, done)
        for index, output in passed.items():
            if gradients[index].shape == out_grad[output].shape:
                np.testing.assert_array_equal(gradients[index], out_grad[output])
