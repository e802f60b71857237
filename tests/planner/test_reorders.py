"""Reordered copies of inputs that backward computes again."""

from __future__ import annotations

import pytest
from networks import BATCH, chain, plan_of, same_bits, softmax, trained

from mxrun.base.tensor import TensorSpec
from mxrun.graph.graph import Step
from mxrun.graph.phases import EVALUATE, TRAIN
from mxrun.graph.symbol import Symbol, fresh_names, variable
from mxrun.planner.plan import Plan
from mxrun.planner.remat.budget import Budget

INPUTS = {"data": TensorSpec((BATCH, 3, 24, 24)), "label": TensorSpec((BATCH,), "int32")}
WINDOW = {"num_filter": 6, "kernel": (3, 3)}


def network(strides: tuple[int, ...]) -> Symbol:
    """Return a chain of convolutions with tanh, one per stride."""
    with fresh_names():
        symbol = variable("data")
        for index, stride in enumerate(strides):
            window = WINDOW | {"stride": (stride, stride)}
            layers = ("Convolution", window, f"conv{index}"), ("tanh", {}, f"tanh{index}")
            symbol = chain(symbol, *layers)
        return softmax(chain(symbol, ("FullyConnected", {"num_hidden": 4}, "fc")))


def copies(plan: Plan, phase: str = TRAIN) -> list[Step]:
    steps = plan.phases[phase].steps
    return [step for step in steps if step.name.startswith("data:reorder")]


def test_data_in_another_layout_go_and_come_again() -> None:
    plan = plan_of(network((1, 1, 1)), inputs=INPUTS)
    first, again = copies(plan)
    assert again.reads == first.reads
    assert again.kernel == first.kernel
    steps = plan.phases[TRAIN].steps
    assert steps[steps.index(again) + 1].name == "conv0:backward"
    block = next(b for b in plan.phases[TRAIN].blocks if first.writes[0] in b.values)
    assert steps[block.last - 1].name == "conv0"
    assert len(copies(plan, EVALUATE)) == 1


@pytest.mark.parametrize("least", [False, True])
def test_no_bit_changes(least: bool) -> None:
    """Compared with a plan without reuse, whose schedule of backward has its peak elsewhere."""
    options = {"budget": Budget(least=True)} if least else {}
    plan = plan_of(network((1, 1, 1)), inputs=INPUTS, **options)
    plain = plan_of(network((1, 1, 1)), inputs=INPUTS, reuse=False, in_place=False, fuse=False)
    assert same_bits(trained(plan, poisoned=True)[1], trained(plain)[1])


def test_what_saves_nothing_is_not_done_twice() -> None:
    # The peak is at a step that needs the copy in any case.
    assert len(copies(plan_of(network((12,)), inputs=INPUTS))) == 1
