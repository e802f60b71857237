"""Gradients added to the first contribution in place: fewer steps, the same bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from executors import executor_for
from networks import (
    BATCH,
    INPUTS,
    Arrays,
    chain,
    fill,
    pinned,
    plan_of,
    same_bits,
    softmax,
    trained,
)
from networks import residual as three_readers
from networks import shared as shared_products

from mxrun.base.tensor import TensorSpec
from mxrun.graph.cost import traffic_of
from mxrun.graph.phases import ACCUMULATE, EVALUATE, TRAIN
from mxrun.graph.symbol import Symbol, apply, fresh_names, variable
from mxrun.graph.update_rule import Clipping
from mxrun.operator.kernel import OpReqType
from mxrun.planner.hint import ADD_TO, Hint
from mxrun.planner.plan import PhasePlan, Plan
from mxrun.planner.remat.budget import Budget

CONVOLUTION = {"num_filter": 4, "kernel": (3, 3), "pad": (1, 1), "no_bias": True}


def stem() -> Symbol:
    return chain(variable("data"), ("Convolution", CONVOLUTION, "stem"))


def normalized(symbol: Symbol, name: str) -> Symbol:
    return chain(
        symbol,
        ("BatchNorm", {"fix_gamma": False}, f"{name}_bn"),
        ("Activation", {"act_type": "relu"}, f"{name}_relu"),
        ("Convolution", CONVOLUTION, f"{name}_conv"),
    )


def act(symbol: Symbol, kind: str, name: str) -> Symbol:
    return apply("Activation", {"data": symbol}, {"act_type": kind}, name)


def both(operator: str, left: Symbol, right: Symbol, name: str) -> Symbol:
    return apply(operator, {"lhs": left, "rhs": right}, {}, name)


def classified(symbol: Symbol) -> Symbol:
    return softmax(chain(symbol, ("FullyConnected", {"num_hidden": 4}, "fc")))


def residual() -> Symbol:
    """Return units that begin with a normalisation, beside a shortcut."""
    with fresh_names():
        symbol = stem()
        for unit in range(3):
            symbol = both("elemwise_add", normalized(symbol, f"unit{unit}"), symbol, f"sum{unit}")
        return classified(symbol)


def dense() -> Symbol:
    """Return units whose output is concatenated with their input, as in DenseNet."""
    with fresh_names():
        symbol = stem()
        for unit in range(3):
            sides = {"arg0": symbol, "arg1": normalized(symbol, f"unit{unit}")}
            symbol = apply("Concat", sides, {"num_args": 2}, f"joined{unit}")
        return classified(normalized(symbol, "last"))


def branches() -> Symbol:
    """Return a network with four readers of one value, each with its own gradient."""
    with fresh_names():
        symbol = stem()
        kinds = ("tanh", "sigmoid", "softrelu", "relu")
        made = [act(symbol, kind, kind) for kind in kinds]
        joined = made[0]
        for index, each in enumerate(made[1:]):
            joined = both("elemwise_mul", joined, each, f"product{index}")
        return classified(joined)


def shared() -> Symbol:
    """Return steps of a recurrence that share one weight."""
    with fresh_names():
        weight, symbol = variable("shared_weight"), variable("data")
        for step in range(3):
            product = both("elemwise_mul", symbol, weight, f"product{step}")
            symbol = act(product, "tanh", f"state{step}")
        return classified(symbol)


def pooled() -> Symbol:
    """Return the product of a tensor with its 3x3 max-pooling."""
    window = {"kernel": (3, 3), "pad": (1, 1), "pool_type": "max"}
    with fresh_names():
        symbol = stem()
        maxima = chain(symbol, ("Pooling", window, "maxima"))
        return classified(normalized(both("elemwise_mul", maxima, symbol, "product"), "last"))


# Sums of gradients in each network, and those left without a step of their own.
NETWORKS = {
    "residual": (residual, 3, 3),
    "dense": (dense, 3, 3),
    "branches": (branches, 3, 2),
    "shared": (shared, 2, 1),
    "pooled": (pooled, 1, 1),
    "three_readers": (three_readers, 2, 1),
    "shared_products": (shared_products, 2, 0),
}


def sums(phase: PhasePlan) -> list[str]:
    return [step.name for step in phase.steps if ":grad_sum" in step.name]


def added(phase: PhasePlan) -> list[Hint]:
    return [hint for hint in phase.hints if hint.kind == ADD_TO]


def moved(phase: PhasePlan) -> int:
    traffic = [traffic_of(step, phase.offsets) for step in phase.steps]
    return sum(each.read + each.written for each in traffic)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", NETWORKS)
def test_F4_the_same_bits_from_fewer_steps(name: str, precision: str) -> None:
    make, every, taken = NETWORKS[name]
    on, off = (plan_of(make(), precision=precision, add_to=flag) for flag in (True, False))
    with_it, without = on.phases[TRAIN], off.phases[TRAIN]
    assert len(sums(without)) == len(added(without)) == every
    assert {hint.reason for hint in added(without)} == {"add-to is off"}
    assert len(sums(with_it)) == every - taken
    assert sum(hint.taken for hint in added(with_it)) == taken
    assert with_it.lower_bound_bytes <= without.lower_bound_bytes
    assert with_it.reusable_bytes <= without.reusable_bytes
    assert len(with_it.steps) == len(without.steps) - taken
    assert moved(with_it) < moved(without) or not taken
    expected = trained(off)
    for plan, poisoned in ((on, False), (on, True)):
        losses, arrays = trained(plan, poisoned=poisoned)
        assert losses == expected[0]
        assert same_bits(arrays, expected[1])
    assert all(np.isfinite(array).all() for array in expected[1].values())


@pytest.mark.parametrize("options", [{"in_place": False}, {"reuse": False}, {"fuse": False}])
def test_F4_the_same_bits_whatever_else_is_shared(options: dict[str, Any]) -> None:
    expected = trained(plan_of(dense(), add_to=False))[1]
    plan = plan_of(dense(), **options)
    assert any(hint.taken for hint in added(plan.phases[TRAIN]))
    assert same_bits(trained(plan)[1], expected)


def test_F4_sums_are_added_in_place_beside_steps_that_run_again() -> None:
    plain = plan_of(dense(), add_to=False)
    least = plan_of(dense(), budget=Budget(least=True))
    phase = least.phases[TRAIN]
    assert phase.recomputed is not None
    assert any(hint.taken for hint in added(phase))
    assert least.planned_bytes < plain.planned_bytes
    assert same_bits(trained(least)[1], trained(plain)[1])


def test_P9_the_sum_lies_where_the_first_contribution_lay() -> None:
    phase = plan_of(residual()).phases[TRAIN]
    producers, joined = phase.graph.producer(), phase.graph.mutations
    totals = [value for value in joined if phase.graph.values[value].name.endswith("_sum")]
    assert len(totals) == 3
    for total in totals:
        step = producers[total]
        assert step.requests[step.outputs.index(total)] is OpReqType.ADD
        assert step.added_to == (joined[total],)
        assert phase.offsets[total] == phase.offsets[joined[total]]
        assert joined[total] in step.reads


def test_P9_contributions_keep_the_order_of_the_readers() -> None:
    """((a + b) + c) + d, where d is computed first: a is added to b, and the sum with c to d."""
    phase = plan_of(branches()).phases[TRAIN]
    ends = [(hint.step.split(":")[0], hint.source, hint.taken) for hint in added(phase)]
    assert ends == [
        ("tanh", "stem_output_grad_2", True),
        ("tanh", "stem_output_grad_1", False),
        ("stem_output", "stem_output_grad", True),
    ]
    (left,) = [step for step in phase.steps if step.name in sums(phase)]
    assert left.requests == (OpReqType.ADD,)
    assert len(set(left.reads)) == 3


def steps_of(plan: Plan, phases: tuple[str, ...]) -> Arrays:
    executor = executor_for(plan)
    fill(executor)
    for phase in phases * 2:
        executor.run(phase)
    return pinned(executor)


@pytest.mark.parametrize("make", [shared, residual])
def test_F4_gradients_of_several_batches_are_added_as_they_are_made(make: Any) -> None:
    options = {"phases": (ACCUMULATE, TRAIN, EVALUATE), "clipping": Clipping(0.5)}
    on, off = (plan_of(make(), add_to=flag, **options) for flag in (True, False))
    for phase in (ACCUMULATE, TRAIN):
        taken = [hint for hint in added(on.phases[phase]) if hint.taken and ":" in hint.source]
        steps = {step.name for step in on.phases[phase].steps}
        assert not steps & {f"{hint.source.removesuffix(':grad')}:accumulate" for hint in taken}
        if make is shared:
            assert [hint.source for hint in taken] == ["shared_weight:grad"]
        assert on.phases[phase].reusable_bytes <= off.phases[phase].reusable_bytes
    order = (ACCUMULATE, ACCUMULATE, TRAIN)
    assert same_bits(steps_of(on, order), steps_of(off, order))


def reasons(symbol: Symbol, **options: Any) -> list[str]:
    """Return the reason of each add-to hint; empty if it is taken."""
    return [hint.reason for hint in added(plan_of(symbol, **options).phases[TRAIN])]


def test_P8_what_one_step_makes_is_added_by_another() -> None:
    with fresh_names():
        symbol = stem()
        squared = classified(both("elemwise_mul", symbol, symbol, "squared"))
    assert reasons(squared) == ["both are made by one step"]


def test_P8_a_kernel_that_computes_in_scratch_leaves_the_sum() -> None:
    assert reasons(shared_products()) == ["its kernel does not add in place"] * 2
    assert reasons(three_readers()) == ["its kernel does not add in place", ""]
    numpy = reasons(residual(), implementation="numpy", order="declared")
    assert numpy == ["its kernel does not add in place"] * 3


def test_P8_a_sum_made_in_place_is_added_to_nothing_else() -> None:
    assert reasons(shared())[1] == (
        "shared_weight_grad_sum is added to shared_weight_grad_1 already"
    )


@pytest.mark.parametrize("operator", ["elemwise_add", "elemwise_mul"])
def test_P8_what_is_read_later_is_not_added_to(operator: str) -> None:
    """The gradient of `beside` is shared by both its inputs; that of a sum also by its reader."""
    with fresh_names():
        data = variable("data")
        symbol, other = (
            chain(data, ("Convolution", CONVOLUTION, name)) for name in ("stem", "other")
        )
        beside = both("elemwise_add", symbol, act(other, "tanh", "early"), "beside")
        late = act(symbol, "sigmoid", "late")
        network = classified(both(operator, beside, late, "joined"))
    name, reader = ("joined", "late") if operator == "elemwise_add" else ("beside", "early")
    source = f"{name}_output_grad"
    (reason,) = reasons(network)
    assert reason.startswith(source)
    assert reason.endswith(f"is still read by {reader}:backward")


def test_P8_a_gradient_that_is_wanted_is_not_added_to() -> None:
    with fresh_names():
        symbol = stem()
        beside = both("elemwise_add", symbol, variable("offset"), "beside")
        network = classified(both("elemwise_mul", beside, act(symbol, "tanh", "late"), "joined"))
    inputs = {**INPUTS, "offset": TensorSpec((BATCH, 4, 9, 9))}
    (free,) = reasons(network, inputs=inputs, frozen=("offset",))
    (wanted,) = reasons(network, inputs=inputs, frozen=("offset",), gradients=("offset",))
    assert free == ""
    assert wanted == "beside_output_grad is a result, or given from outside"


def test_P9_a_map_adds_what_it_would_have_written() -> None:
    """The bfloat16 sum of these numbers shows if the product was rounded before."""
    with fresh_names():
        symbol = stem()
        product = both("elemwise_mul", symbol, act(symbol, "tanh", "gate"), "product")
        network = classified(product)
    on, off = (plan_of(network, precision="bfloat16", add_to=flag) for flag in (True, False))
    assert [hint.reason for hint in added(on.phases[TRAIN])] == [""]
    assert same_bits(trained(on)[1], trained(off)[1])
