"""SimpleOp in networks: saved tensors, memory sharing and refusals in plans."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from executors import executor_for
from networks import VECTORS, dense, fill, pinned, plan_of, softmax
from simple_registration import Array, keeps_the_contract

from mxrun.base.errors import UserError
from mxrun.commands.check_op import check_operator
from mxrun.graph.phases import EVALUATE, TRAIN
from mxrun.graph.symbol import Symbol, apply, fresh_names, variable
from mxrun.operator import scalar
from mxrun.operator.property import GradientKind
from mxrun.operator.register import OPERATORS, create
from mxrun.operator.simple import (
    EnvArguments,
    Inplace,
    reads_inputs,
    reads_out_grad,
    reads_output,
    simple_operator,
)
from mxrun.planner.plan import PhasePlan, Plan

pytestmark = pytest.mark.usefixtures("separate_registry")


def between(operator: str, inputs: tuple[str, ...] = ("data",)) -> Symbol:
    """Return a network: a dense layer per input of the operator, and one after it with a loss."""
    with fresh_names():
        data = variable("data")
        middle = apply(operator, {name: dense(data, f"to_{name}") for name in inputs}, {}, "middle")
        return softmax(dense(middle, "last", 4))


def planned(symbol: Symbol, **options: Any) -> Plan:
    return plan_of(symbol, inputs=VECTORS, **options)


def trained_weights(symbol: Symbol, **options: Any) -> dict[str, Array]:
    """Return all pinned tensors after some steps."""
    plan = planned(symbol, **options)
    executor = executor_for(plan)
    fill(executor)
    for _ in range(4):
        executor.run(TRAIN)
    return pinned(executor)


def same_place(phase: PhasePlan, left: str, right: str) -> bool:
    """Return whether two tensors have the same address."""
    names = {value.name: index for index, value in enumerate(phase.graph.values)}
    return phase.offsets[names[left]] == phase.offsets[names[right]]


def read_by(phase: PhasePlan, step: str) -> set[str]:
    """Names of the tensors that a step reads."""
    (found,) = (each for each in phase.steps if each.name == step)
    return {phase.graph.values[value].name for value in found.reads}


# An operator in the form a user writes: a function, its gradient and a decorator.
SWISH = '''
from mxrun.operator.scalar import sigmoid
from mxrun.operator.simple import reads_inputs, simple_operator

def swish_gradient(out_grad, x):
    gate = sigmoid(x)
    return out_grad * (gate + x * gate * (1 - gate))

@simple_operator("users_swish", gradient=reads_inputs(swish_gradient))
def swish(x):
    """output = x * sigmoid(x). Backward reads the output's gradient and x."""
    return x * sigmoid(x)
'''


def test_Q1_a_users_file_is_an_operator_of_networks(tmp_path: Path) -> None:
    path = tmp_path / "swish.py"
    path.write_text(SWISH)
    found = check_operator(f"{path}:users_swish")
    assert found["passed"], found["checks"]
    symbol = between("users_swish")
    phase = planned(symbol).phases[TRAIN]
    assert phase.implementations()["middle"] == "jit"
    assert read_by(phase, "middle:backward") == {"to_data_output", "middle_output_grad"}
    with fresh_names():
        data = dense(variable("data"), "to_data")
        gate = apply("sigmoid", {"data": data}, {}, "gate")
        middle = apply("elemwise_mul", {"lhs": data, "rhs": gate}, {}, "middle")
        composed = softmax(dense(middle, "last", 4))
    one, other = trained_weights(symbol), trained_weights(composed)
    assert one.keys() == other.keys()
    for name, array in one.items():
        np.testing.assert_allclose(array, other[name], rtol=1e-4, atol=1e-6)


def test_the_function_stays_a_function() -> None:
    def thrice(x: Any) -> Any:
        """output = 3 data."""
        return 3 * x

    assert simple_operator("thrice", gradient=reads_out_grad(lambda g: 3 * g))(thrice) is thrice
    assert thrice(2) == 6
    assert OPERATORS.get("thrice").__doc__ == "output = 3 data."
    keeps_the_contract("thrice")


@pytest.mark.parametrize(
    ("operator", "kept"),
    [("negative", set()), ("sigmoid", {"middle_output"}), ("smooth_l1", {"to_data_output"})],
)
def test_Q4_a_plan_keeps_what_the_kind_names(operator: str, kept: set[str]) -> None:
    phase = planned(between(operator)).phases[TRAIN]
    assert read_by(phase, "middle:backward") == {"middle_output_grad"} | kept


def test_Q4_binary_kinds_read_nothing_the_output_or_both_inputs() -> None:
    def register(name: str, gradient: Any) -> set[str]:
        simple_operator(name, gradient=gradient, description=name)(lambda x, y: x + y)
        phase = planned(between(name, ("lhs", "rhs"))).phases[TRAIN]
        return read_by(phase, "middle:backward") - {"middle_output_grad"}

    assert register("nothing", reads_out_grad(lambda g: -g, lambda g: 2 * g)) == set()
    output = reads_output(lambda g, y: g * y, lambda g, y: g * y)
    assert register("the_output", output) == {"middle_output"}
    inputs = reads_inputs(lambda g, x, y: g * y, lambda g, x, y: g * x)
    assert register("both", inputs) == {"to_lhs_output", "to_rhs_output"}
    # A compiled gradient does not extend the lifetime of arguments that its function does not use.
    unused = reads_inputs(lambda g, x, y: g * y, lambda g, x, y: g * y)
    assert register("one_of_both", unused) == {"to_rhs_output"}


def test_O10_a_zero_gradient_adds_nothing() -> None:
    def summed_with(operator: str) -> Symbol:
        with fresh_names():
            data = dense(variable("data"), "to_data", 4)
            other = apply(operator, {"data": data}, {}, "other")
            return softmax(apply("elemwise_add", {"lhs": data, "rhs": other}, {}, "both"))

    with fresh_names():
        alone = trained_weights(softmax(dense(variable("data"), "to_data", 4)))
    for name, array in trained_weights(summed_with("zeros_like")).items():
        np.testing.assert_array_equal(array, alone[name])
    phase = planned(summed_with("floor")).phases[TRAIN]
    names = {step.name for step in phase.steps}
    assert "other" in names
    assert "other:backward" not in names
    assert create("floor", {}).list_gradients() == (GradientKind.ZERO,)


def test_L13_operators_without_a_gradient_live_beside_those_with_one() -> None:
    @simple_operator("run_only")
    def run_only(x: Any) -> Any:
        """output = data rounded to tenths."""
        return scalar.round(x * 10) / 10

    keeps_the_contract("run_only")
    with fresh_names():
        data = apply("run_only", {"data": variable("data")}, {}, "prepared")
        symbol = softmax(dense(data, "last", 4))
    names = [step.name for step in planned(symbol).phases[TRAIN].steps]
    assert "prepared" in names
    assert "prepared:backward" not in names
    assert planned(between("run_only"), rules={}, phases=(EVALUATE,)).planned_bytes
    with pytest.raises(UserError, match="run_only 'middle' has no gradient"):
        planned(between("run_only"))


@pytest.mark.parametrize(
    ("kind", "inputs", "forwards", "backwards"),
    [
        (Inplace.NONE, ("data",), False, False),
        (Inplace.IN_OUT, ("data",), True, False),
        (Inplace.OUT_IN, ("data",), False, True),
        (Inplace.LHS_OUT, ("lhs", "rhs"), True, False),
        (Inplace.OUT_LHS, ("lhs", "rhs"), False, True),
    ],
)
def test_Q5_T13_each_kind_shares_what_it_names(
    kind: Inplace, inputs: tuple[str, ...], forwards: bool, backwards: bool
) -> None:
    gradient = reads_out_grad(*(lambda env, g: 2 * g for _ in inputs))
    register = simple_operator("twice", gradient=gradient, inplace=kind, description="twice")
    if len(inputs) == 1:
        register(lambda env, data: 2 * data)
    else:
        register(lambda env, lhs, rhs: 2 * lhs + 2 * rhs)
    symbol = between("twice", inputs)
    phase = planned(symbol).phases[TRAIN]
    first, further = inputs[0], inputs[1:]
    assert same_place(phase, f"to_{first}_output", "middle_output") is forwards
    assert same_place(phase, "middle_output_grad", f"to_{first}_output_grad") is backwards
    for other in further:
        assert not same_place(phase, f"to_{other}_output", "middle_output")
        assert not same_place(phase, "middle_output_grad", f"to_{other}_output_grad")
    apart = trained_weights(symbol, in_place=False)
    for name, array in trained_weights(symbol).items():
        np.testing.assert_array_equal(array, apart[name])


def test_T5_in_out_is_refused_where_the_gradient_reads_the_input() -> None:
    simple_operator(
        "squares",
        gradient=reads_inputs(lambda g, x: 2 * g * x),
        inplace=[Inplace.IN_OUT, Inplace.OUT_IN],
        description="output = data^2.",
    )(lambda x: x * x)
    phase = planned(between("squares")).phases[TRAIN]
    hints = {(hint.step, hint.source): hint.reason for hint in phase.hints}
    assert hints["middle", "to_data_output"] == "backward of middle still reads it"
    assert hints["middle:backward", "middle_output_grad"] == ""
    plan = planned(between("squares"), rules={}, phases=(EVALUATE,))
    assert same_place(plan.phases[EVALUATE], "to_data_output", "middle_output")


def bytes_of(*layers: tuple[str, dict[str, object]], **options: Any) -> int:
    """Return the planned bytes of a network with these layers between two dense ones."""
    with fresh_names():
        symbol = dense(variable("data"), "to_data")
        for operator, parameters in layers:
            symbol = apply(operator, {"data": symbol}, parameters)
        return planned(softmax(dense(symbol, "last", 4)), **options).planned_bytes


def test_L11_operators_of_one_operation_cost_no_memory() -> None:
    pieces: list[tuple[str, dict[str, object]]] = [
        ("_mul_scalar", {"scalar": 180.0}),
        ("_div_scalar", {"scalar": math.pi}),
        ("negative", {}),
        ("negative", {}),
    ]
    assert bytes_of(*pieces) <= bytes_of(("degrees", {}))
    pieces = [("negative", {}), ("exp", {}), ("_plus_scalar", {"scalar": 1.0}), ("reciprocal", {})]
    evaluate: dict[str, Any] = {"rules": {}, "phases": (EVALUATE,)}
    assert bytes_of(*pieces, **evaluate) <= bytes_of(("sigmoid", {}), **evaluate)


def test_Q14_several_arrays_need_a_property() -> None:
    @simple_operator("two_arrays")
    def two_arrays(env: EnvArguments, data: Array) -> Any:
        """data and data."""
        return data, data

    executor = executor_for(planned(between("two_arrays"), rules={}, phases=(EVALUATE,)))
    with pytest.raises(UserError, match="two_arrays returns 2 values") as caught:
        executor.run(EVALUATE)
    assert "OperatorProperty" in str(caught.value)
