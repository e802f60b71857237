"""Budgets: recomputation of forward steps in backward changes the memory, but no bit."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from executors import executor_for
from networks import BATCH, NETWORKS, Arrays, chain, fill, pinned, softmax
from networks import plan_of as small_plan_of
from refusals import only_problem

from mxrun.base.errors import UserError
from mxrun.base.tensor import TensorSpec
from mxrun.compiler.verify import verify_graph, verify_plan
from mxrun.graph.lower import RANDOM_STATE
from mxrun.graph.phases import ACCUMULATE, EVALUATE, TRAIN
from mxrun.graph.symbol import Symbol, apply, fresh_names, variable
from mxrun.graph.update_rule import Clipping
from mxrun.planner.plan import Plan
from mxrun.planner.remat.budget import Budget

STEPS = 3
# Large enough that activations exceed the kernels' workspaces.
INPUTS = {"data": TensorSpec((BATCH, 3, 24, 24)), "label": TensorSpec((BATCH,), "int32")}


def plan_of(symbol: Symbol, **options: Any) -> Plan:
    return small_plan_of(symbol, **{"inputs": INPUTS} | options)


def deep(units: int = 6) -> Symbol:
    """Residual units of convolution, batch norm, ReLU and dropout, and a dense layer."""
    convolution = {"num_filter": 4, "kernel": (3, 3), "pad": (1, 1)}
    with fresh_names():
        symbol = chain(variable("data"), ("Convolution", convolution, "stem"))
        for unit in range(units):
            branch = chain(
                symbol,
                ("BatchNorm", {"fix_gamma": False}, f"bn{unit}"),
                ("Activation", {"act_type": "relu"}, f"relu{unit}"),
                ("Dropout", {"p": 0.25}, f"drop{unit}"),
                ("Convolution", convolution, f"conv{unit}"),
            )
            symbol = apply("elemwise_add", {"lhs": branch, "rhs": symbol}, {}, f"add{unit}")
        pooling = ("Pooling", {"kernel": (3, 3), "stride": (3, 3), "pool_type": "max"}, "pool")
        return softmax(chain(symbol, pooling, ("FullyConnected", {"num_hidden": 4}, "fc")))


def trained(plan: Plan, phases: tuple[str, ...] = (TRAIN,)) -> Arrays:
    """Return all pinned tensors after some steps, with freed memory poisoned."""
    executor = executor_for(plan)
    fill(executor)
    for step in range(STEPS):
        for phase in phases:
            if RANDOM_STATE in plan.specs:
                executor.tensor(RANDOM_STATE).write((77, step, 0))
            executor.run_poisoned(phase)
    return pinned(executor)


def reusable(plan: Plan) -> int:
    return plan.planned_bytes - plan.pinned_bytes


@pytest.mark.parametrize("implementation", ["preferred", "numpy"])
@pytest.mark.parametrize("share", [0.9, 0.75, 0.6, 0.5])
def test_F2_a_budget_is_met_and_changes_no_bit(share: float, implementation: str) -> None:
    plain = plan_of(deep(), phases=(TRAIN,), implementation=implementation)
    budget = Budget(share=share)
    plan = plan_of(deep(), phases=(TRAIN,), implementation=implementation, budget=budget)
    assert reusable(plan) <= share * reusable(plain)
    assert plan.budget_bytes == plan.pinned_bytes + int(share * reusable(plain))
    verify_plan(plan)
    verify_graph(plan.phases[TRAIN].graph, "recompute")
    made = plan.phases[TRAIN].recomputed
    assert made is not None
    assert made.steps
    assert made.plain_bytes == reusable(plain)
    assert 0 < made.extra < 1
    expected, got = trained(plain), trained(plan)
    assert expected.keys() == got.keys()
    assert not [name for name in expected if expected[name].tobytes() != got[name].tobytes()]


def test_F2_what_is_touched_stays_within_the_budget() -> None:
    needed = plan_of(deep(), phases=(TRAIN,)).planned_bytes
    plan = plan_of(deep(), phases=(TRAIN,), budget=Budget(nbytes=needed * 2 // 3))
    executor = executor_for(plan)

    def exercise() -> None:
        fill(executor)
        executor.tensor(RANDOM_STATE).write((77, 0, 0))
        executor.run(TRAIN)

    assert executor.touched_bytes(exercise) <= needed * 2 // 3


def test_F2_states_change_once_and_masks_repeat() -> None:
    plan = plan_of(deep(), phases=(TRAIN,), budget=Budget(share=0.5))
    steps = {step.name: step for step in plan.phases[TRAIN].steps}
    repeated = [step for step in steps.values() if step.repeats is not None]
    assert {step.prop.type_string for step in repeated if step.prop} >= {"Dropout"}
    for step in repeated:
        assert step.kernel is steps[step.repeats or ""].kernel
        assert not set(step.writes) & set(plan.phases[TRAIN].graph.mutations)
    updates = [name for name in steps if name.endswith("moving_mean:update")]
    assert len(updates) == 6


@pytest.mark.parametrize("network", NETWORKS)
def test_F2_small_networks_fit_into_the_least_that_is_found(network: str) -> None:
    symbol = NETWORKS[network]()
    plain = small_plan_of(symbol, phases=(TRAIN,))
    least = small_plan_of(symbol, phases=(TRAIN,), budget=Budget(least=True))
    assert least.planned_bytes <= plain.planned_bytes
    again = small_plan_of(symbol, phases=(TRAIN,), budget=Budget(nbytes=least.planned_bytes))
    assert again.planned_bytes <= least.planned_bytes
    expected, got = trained(plain), trained(least)
    assert all(np.array_equal(expected[name], got[name]) for name in expected)


def test_F2_clipping_and_accumulated_gradients_keep_their_bits() -> None:
    options = {
        "phases": (TRAIN, ACCUMULATE, EVALUATE),
        "clipping": Clipping(0.5),
    }
    plain = plan_of(deep(), **options)
    plan = plan_of(deep(), **options, budget=Budget(share=0.7))
    assert reusable(plan) <= 0.7 * reusable(plain)
    assert all(plan.phases[name].recomputed for name in (TRAIN, ACCUMULATE))
    order = (ACCUMULATE, TRAIN)
    expected, got = trained(plain, order), trained(plan, order)
    assert all(expected[name].tobytes() == got[name].tobytes() for name in expected)


def test_F2_the_plain_plan_is_taken_where_it_fits() -> None:
    plain = plan_of(deep(), phases=(TRAIN, EVALUATE))
    budget = Budget(nbytes=plain.planned_bytes)
    plan = plan_of(deep(), phases=(TRAIN, EVALUATE), budget=budget)
    assert plan.planned_bytes == plain.planned_bytes
    assert [phase.recomputed for phase in plan.phases.values()] == [None, None]
    names = [step.name for step in plain.phases[TRAIN].steps]
    assert [step.name for step in plan.phases[TRAIN].steps] == names


def test_F2_a_smaller_budget_costs_more() -> None:
    shares = (0.9, 0.8, 0.7, 0.6, 0.5)
    plans = [plan_of(deep(), phases=(TRAIN,), budget=Budget(share=share)) for share in shares]
    made = [plan.phases[TRAIN].recomputed for plan in plans]
    extra = [0.0 if each is None else each.extra for each in made]
    assert extra == sorted(extra)


def test_S3_an_infeasible_budget_names_the_least_and_who_sets_it() -> None:
    plan = plan_of(deep(), phases=(TRAIN,), budget=Budget(least=True))
    problem = only_problem(
        plan_of, deep(), phases=(TRAIN,), budget=Budget(nbytes=plan.planned_bytes - 1)
    )
    peak = plan.phases[TRAIN].steps[plan.phases[TRAIN].peak_step()]
    assert f"{plan.planned_bytes:,} bytes" in problem.expected
    assert peak.title in problem.expected
    assert f"{plan.planned_bytes - 1:,} bytes" in problem.got
    assert f"{plan.pinned_bytes:,}" in problem.expected
    met = plan_of(deep(), phases=(TRAIN,), budget=Budget(nbytes=plan.planned_bytes))
    assert met.planned_bytes <= plan.planned_bytes


def test_S3_inference_that_does_not_fit_is_refused() -> None:
    plan = plan_of(deep(), rules={}, phases=(EVALUATE,), constant_parameters=True)
    budget = Budget(nbytes=plan.planned_bytes - 64)
    with pytest.raises(UserError, match=re.escape(f"at least {plan.planned_bytes:,} bytes")):
        plan_of(deep(), rules={}, phases=(EVALUATE,), constant_parameters=True, budget=budget)


def test_F2_a_shared_weight_changes_after_its_last_reader() -> None:
    with fresh_names():
        weight = variable("weight")
        symbol = chain(variable("data"), ("Flatten", {}, "flatten"))
        symbol = chain(symbol, ("FullyConnected", {"num_hidden": 32}, "first"))
        for index in range(6):
            inputs = {"data": symbol, "weight": weight}
            dense = {"num_hidden": 32, "no_bias": True}
            symbol = apply("FullyConnected", inputs, dense, f"fc{index}")
            symbol = chain(symbol, ("Activation", {"act_type": "tanh"}, f"tanh{index}"))
        symbol = softmax(symbol)
    inputs = {"data": TensorSpec((512, 3, 3, 3)), "label": TensorSpec((512,), "int32")}
    plain = plan_of(symbol, phases=(TRAIN,), inputs=inputs)
    plan = plan_of(symbol, phases=(TRAIN,), inputs=inputs, budget=Budget(least=True))
    assert reusable(plan) < reusable(plain)
    verify_graph(plan.phases[TRAIN].graph, "recompute")
    expected, got = trained(plain), trained(plan)
    assert all(expected[name].tobytes() == got[name].tobytes() for name in expected)
