"""Gradients of a product in separate steps."""

from __future__ import annotations

import pytest
from networks import NETWORKS, chain, parameters, plan_of, softmax

from mxrun.graph.graph import Step
from mxrun.graph.phases import TRAIN
from mxrun.graph.symbol import Symbol, fresh_names, variable
from mxrun.planner.plan import Plan


def backward_steps(plan: Plan, forward: str) -> dict[str, Step]:
    steps = plan.phases[TRAIN].steps
    return {step.name: step for step in steps if step.forward == forward}


def names_read(plan: Plan, step: Step) -> set[str]:
    return {plan.phases[TRAIN].graph.values[value].name for value in step.reads}


@pytest.mark.parametrize("operator", ["Convolution", "Deconvolution", "FullyConnected"])
def test_a_product_lets_go_of_data_before_its_own_gradient(operator: str) -> None:
    window = {"num_filter": 3, "kernel": (3, 3), "no_bias": False}
    parameters = {"num_hidden": 9} if operator == "FullyConnected" else window
    with fresh_names():
        first = chain(variable("data"), ("BatchNorm", {"fix_gamma": False}, "bn"))
        product = chain(first, (operator, parameters, "product"))
        symbol = softmax(chain(product, ("FullyConnected", {"num_hidden": 4}, "fc")))
    plan = plan_of(symbol)
    steps = backward_steps(plan, "product")
    assert list(steps) == ["product:backward:weight+bias", "product:backward:data"]
    weight, data = steps.values()
    assert any(name.startswith("bn_output") for name in names_read(plan, weight))
    assert not any(name.startswith("bn_output") for name in names_read(plan, data))
    assert any(name.startswith("product_weight") for name in names_read(plan, data))
    assert not any(name.startswith("product_weight") for name in names_read(plan, weight))


def test_one_step_does_where_one_gradient_is_wanted() -> None:
    symbol = NETWORKS["convolutional"]()
    assert list(backward_steps(plan_of(symbol), "conv1")) == ["conv1:backward"]
    frozen = tuple(name for name in parameters(symbol) if name.startswith(("conv2", "fc")))
    assert list(backward_steps(plan_of(symbol, frozen=frozen), "conv2")) == ["conv2:backward"]


def dense(name: str) -> Symbol:
    with fresh_names():
        return softmax(chain(variable("data"), ("FullyConnected", {"num_hidden": 4}, name)))


def test_both_backwards_are_cut() -> None:
    for backward in ("explicit_graph", "reverse"):
        plan = plan_of(NETWORKS["residual"](), backward=backward)
        names = set(backward_steps(plan, "left")) | set(backward_steps(plan, "fc"))
        assert names == {
            f"{layer}:backward:{part}"
            for layer in ("left", "fc")
            for part in ("weight+bias", "data")
        }
    assert list(backward_steps(plan_of(dense("only")), "only")) == ["only:backward"]
