"""Max-pooling before rectifiers: the same bits from less memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from executors import executor_for
from networks import BATCH, chain, fill, plan_of, softmax

from mxrun.base.tensor import TensorSpec
from mxrun.graph.phases import EVALUATE, TRAIN
from mxrun.graph.symbol import Symbol, apply, fresh_names, variable
from mxrun.passes.commute_maxpool import COMMUTE_MAXPOOL
from mxrun.planner.plan import Plan

INPUTS = {"data": TensorSpec((BATCH, 3, 13, 13)), "label": TensorSpec((BATCH,), "int32")}
CONVOLUTION = ("Convolution", {"num_filter": 8, "kernel": (3, 3), "pad": (1, 1)}, "conv")
RELU = ("Activation", {"act_type": "relu"}, "relu")
HALVES = {"kernel": (2, 2), "stride": (2, 2), "pool_type": "max"}


def network(pooling: Mapping[str, object], activation: str = "relu") -> Symbol:
    with fresh_names():
        layers = (
            CONVOLUTION,
            ("Activation", {"act_type": activation}, "relu"),
            ("Pooling", pooling, "pool"),
            ("FullyConnected", {"num_hidden": 4}, "fc"),
        )
        return softmax(chain(variable("data"), *layers))


def plans(symbol: Symbol, **options: Any) -> tuple[Plan, Plan]:
    """Return the plans with and without the pass."""
    options = {"inputs": INPUTS} | options
    return plan_of(symbol, **options), plan_of(symbol, unfused=(COMMUTE_MAXPOOL,), **options)


def changes_places(plan: Plan, phase: str = TRAIN) -> bool:
    names = [step.name for step in plan.phases[phase].steps]
    return names.index("pool") < names.index("relu")


def bits(plan: Plan, strange: bool = False) -> dict[str, bytes]:
    executor = executor_for(plan)
    fill(executor)
    if strange:
        # Ties, zeros of both signs, and entire windows below zero.
        data = executor.tensor("data").mirror().array
        data[0], data[1], data[2] = 0.0, -0.0, -1.0
        data[3, :, ::2] = data[3, :, 1:2]
    for _ in range(3):
        executor.run_poisoned(TRAIN)
    return {block.name: executor.tensor(block.name).values().tobytes() for block in plan.pinned}


@pytest.mark.parametrize(
    "pooling",
    [
        HALVES,
        {"kernel": (3, 3), "stride": (2, 2), "pad": (1, 1), "pool_type": "max"},
        {"kernel": (5, 4), "stride": (3, 2), "pool_type": "max"},
        {"global_pool": True, "pool_type": "max", "kernel": (1, 1)},
    ],
)
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("strange", [False, True])
def test_the_same_bits_from_less_memory(
    pooling: Mapping[str, object], precision: str, strange: bool
) -> None:
    plan, written = plans(network(pooling), precision=precision)
    assert changes_places(plan)
    assert not changes_places(written)
    saved = written.planned_bytes - plan.planned_bytes
    assert saved > 0 if precision == "float32" else saved >= 0
    assert bits(plan, strange) == bits(written, strange)


def test_what_the_product_made_goes_when_the_maxima_are_there() -> None:
    plan, _ = plans(network(HALVES))
    phase = plan.phases[TRAIN]
    block = next(block for block in phase.blocks if block.name == "conv_output")
    assert phase.steps[block.last - 1].name == "pool"


@pytest.mark.parametrize(
    ("pooling", "activation"),
    [
        (HALVES, "tanh"),
        (HALVES | {"pool_type": "avg"}, "relu"),
        # A window may be entirely in the padding.
        (HALVES | {"pooling_convention": "full"}, "relu"),
        # The number of windows equals the number of elements.
        ({"kernel": (3, 3), "pad": (1, 1), "pool_type": "max"}, "relu"),
    ],
)
def test_others_stay_where_they_are(pooling: Mapping[str, object], activation: str) -> None:
    plan, _ = plans(network(pooling, activation))
    assert not changes_places(plan)


def test_a_rectifier_with_another_reader_stays_where_it_is() -> None:
    with fresh_names():
        active = chain(variable("data"), CONVOLUTION, RELU)
        pooled = chain(active, ("Pooling", HALVES, "pool"), ("Flatten", {}, "flat"))
        parts = {"arg0": pooled, "arg1": chain(active, ("Flatten", {}, "all"))}
        joined = apply("Concat", parts, {"num_args": 2}, "joined")
        symbol = softmax(chain(joined, ("FullyConnected", {"num_hidden": 4}, "fc")))
    assert not changes_places(plans(symbol)[0])


def test_inference_rectifies_in_the_convolution() -> None:
    plan, _ = plans(network(HALVES), phases=(EVALUATE,), constant_parameters=True, rules={})
    assert [step.name for step in plan.phases[EVALUATE].steps if "relu" in step.name] == [
        "conv+relu"
    ]


def test_what_is_not_finite_is_seen_all_the_same() -> None:
    plan, written = plans(network(HALVES))
    found = []
    for each in (plan, written):
        executor = executor_for(each)
        fill(executor)
        executor.tensor("data").mirror().array[0, 0, 5, 5] = np.nan
        executor.run(TRAIN)
        found.append(float(executor.result(TRAIN, "softmax_loss").values()[0]))
    assert np.isnan(found).all()
