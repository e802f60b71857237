"""Gradients in pinned tensors, with the updates in a phase of their own, change no bit."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import numpy as np
import pytest
from executors import cpu, executor_for
from networks import INPUTS, NETWORKS, VECTORS, Arrays, parameters, set_first_values, softmax

from mxrun.base.tensor import TensorSpec
from mxrun.compiler.compile import compile_plan
from mxrun.compiler.request import CompileRequest
from mxrun.executor.executor import Executor
from mxrun.executor.gradient_buckets import cuts, gradient_buckets, pieces_between
from mxrun.graph.graph import MemoryClass
from mxrun.graph.phases import ACCUMULATE, TRAIN, UPDATE
from mxrun.graph.symbol import Symbol, apply, fresh_names, variable
from mxrun.graph.update_rule import Clipping, UpdateRule, accumulated


def viewed() -> Symbol:
    """Return a dense layer whose weight is a view of a parameter, and whose bias is the sum of two
    parameters: one gradient is a view, and two are the same.
    """
    with fresh_names():
        weight = apply("Reshape", {"data": variable("flat")}, {"shape": (8, 8)}, "view")
        bias = apply("elemwise_add", {"lhs": variable("p"), "rhs": variable("q")}, {}, "sum")
        return softmax(
            apply(
                "FullyConnected",
                {"data": variable("data"), "weight": weight, "bias": bias},
                {"num_hidden": 8},
                "fc",
            )
        )


CASES = {**NETWORKS, "viewed": viewed}
SHAPES = {"viewed": {"flat": (64,), "p": (8,), "q": (8,)}}


def executor_of(name: str, *phases: str, clipping: Clipping | None = None) -> Executor:
    symbol = CASES[name]()
    inputs: Mapping[str, TensorSpec] = VECTORS if name in ("shared", "viewed") else INPUTS
    rule = UpdateRule(
        "sgd_mom_update",
        {"lr": 0.1, "momentum": 0.9, "scheduled": True, "scaled": True},
    )
    plan = compile_plan(
        symbol,
        CompileRequest(
            inputs,
            shapes=SHAPES.get(name, {}),
            rules=dict.fromkeys(parameters(symbol), rule),
            clipping=clipping,
            phases=phases,
            device=cpu(),
        ),
    )
    executor = executor_for(plan)
    set_first_values(executor, seed=3)
    executor.tensor("optimizer:schedule").write((0.1, 1, 1))
    executor.tensor("optimizer:gradient_scale").write((0.5,))
    return executor


def learned(executor: Executor) -> Arrays:
    kinds = (MemoryClass.PARAMETERS, MemoryClass.OPTIMIZER)
    blocks = [block for block in executor.plan.pinned if block.memory_class in kinds]
    return {block.name: executor.tensor(block.name).read() for block in blocks}


@pytest.mark.parametrize("clipping", [None, Clipping(0.01)], ids=["plain", "clipped"])
@pytest.mark.parametrize("name", CASES)
def test_updates_apart_give_the_same_bits(name: str, clipping: Clipping | None) -> None:
    together = executor_of(name, TRAIN, clipping=clipping)
    apart = executor_of(name, TRAIN, UPDATE, clipping=clipping)
    for _ in range(2):
        together.run(TRAIN)
        apart.run_poisoned(TRAIN)
        apart.run_poisoned(UPDATE)
    for key, expected in learned(together).items():
        np.testing.assert_array_equal(learned(apart)[key], expected, err_msg=key)


@pytest.mark.parametrize("name", CASES)
def test_running_sums_are_the_gradients(name: str) -> None:
    together = executor_of(name, TRAIN, ACCUMULATE)
    apart = executor_of(name, TRAIN, ACCUMULATE, UPDATE)
    for executor in (together, apart):
        executor.run(ACCUMULATE)
        executor.run(TRAIN)
    apart.run(UPDATE)
    for key, expected in learned(together).items():
        np.testing.assert_array_equal(learned(apart)[key], expected, err_msg=key)


@pytest.mark.parametrize("name", CASES)
def test_buckets_are_adjacent_and_complete_when_they_are_ready(name: str) -> None:
    executor = executor_of(name, TRAIN, UPDATE)
    plan = executor.plan
    steps = len(plan.phases[TRAIN].steps)
    buckets = gradient_buckets(plan, TRAIN, nbytes=1)
    names = [each for bucket in buckets for each in bucket.names]
    assert sorted(names) == sorted(map(accumulated, parameters(CASES[name]())))
    assert [bucket.ready for bucket in buckets] == sorted(bucket.ready for bucket in buckets)
    for before, after in itertools.pairwise(buckets):
        assert before.end == after.begin
    # What a bucket holds when it is ready is what it holds at the end.
    pieces = Executor(plan, executor.device, {TRAIN: pieces_between(buckets, plan.phases[TRAIN])})
    set_first_values(pieces, seed=3)
    program = pieces.programs[TRAIN]
    found = {}
    for piece, end in zip(program.pieces, (*cuts(buckets, steps), steps), strict=True):
        piece.run()
        for bucket in buckets:
            if bucket.ready == end:
                found |= {each: pieces.tensor(each).read() for each in bucket.names}
    executor.run(TRAIN)
    assert sorted(found) == sorted(names)
    for each, array in found.items():
        np.testing.assert_array_equal(array, executor.tensor(each).read(), err_msg=each)
