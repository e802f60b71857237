"""Concat in place: slices of a parent buffer, fewer live bytes, the same bits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from executors import executor_for
from networks import BATCH, NETWORKS, chain, fill, plan_of, same_bits, softmax, trained

from mxrun.base.errors import InternalError
from mxrun.base.tensor import TensorSpec
from mxrun.compiler.verify import verify_graph, verify_plan
from mxrun.executor.checked import first_non_finite
from mxrun.graph.cost import Traffic, traffic_of
from mxrun.graph.phases import EVALUATE, TRAIN
from mxrun.graph.symbol import Symbol, apply, fresh_names, group, variable
from mxrun.planner.plan import PhasePlan, Plan
from mxrun.planner.remat.budget import Budget

# Large enough that activations exceed the kernels' workspaces.
INPUTS = {"data": TensorSpec((BATCH, 3, 24, 24)), "label": TensorSpec((BATCH,), "int32")}


def conv(symbol: Symbol, name: str, filters: int = 8) -> Symbol:
    window = {"kernel": (3, 3), "pad": (1, 1), "num_filter": filters, "no_bias": True}
    return chain(symbol, ("Convolution", window, name))


def norm(symbol: Symbol, name: str) -> Symbol:
    """Return batch norm and ReLU, which are fused into one step."""
    return chain(
        symbol,
        ("BatchNorm", {"fix_gamma": False}, name),
        ("Activation", {"act_type": "relu"}, f"{name}/relu"),
    )


def concat(name: str, *symbols: Symbol, dim: int = 1) -> Symbol:
    inputs = {f"arg{index}": symbol for index, symbol in enumerate(symbols)}
    return apply("Concat", inputs, {"num_args": len(symbols), "dim": dim}, name)


def ended(symbol: Symbol) -> Symbol:
    return softmax(chain(norm(symbol, "last"), ("FullyConnected", {"num_hidden": 4}, "fc")))


def dense(units: int = 4, filters: int = 8, first: int = 16) -> Symbol:
    """Return units that each concatenate further channels with all earlier ones."""
    symbol = conv(variable("data"), "stem", first)
    for unit in range(units):
        new = conv(norm(symbol, f"norm{unit}"), f"conv{unit}", filters)
        symbol = concat(f"cat{unit}", symbol, new)
    return ended(symbol)


def odd() -> Symbol:
    """Return a network with incomplete vectors of channels, more than one task row holds."""
    return dense(units=3, filters=7, first=19)


def cell() -> Symbol:
    """Return branches that end in batch norm, and one that does not."""
    stem = norm(conv(variable("data"), "stem"), "start")
    branches = [norm(conv(stem, f"conv{i}", 5 + i), f"norm{i}") for i in range(3)]
    pooling = {"kernel": (3, 3), "stride": (1, 1), "pad": (1, 1), "pool_type": "avg"}
    return ended(concat("cat", *branches, chain(stem, ("Pooling", pooling, "pool"))))


def nested() -> Symbol:
    """Return nested concats; not every inner one starts at offset 0 of the outer one."""
    stem = conv(variable("data"), "stem")
    parts = [norm(conv(stem, f"conv{i}", 4 + i), f"norm{i}") for i in range(4)]
    return ended(concat("outer", concat("left", *parts[:2]), concat("right", *parts[2:])))


def read_twice() -> Symbol:
    """Return a network with one tensor in two concats, which a third one concatenates."""
    stem = conv(variable("data"), "stem")
    first, second, third = (norm(conv(stem, f"conv{i}"), f"norm{i}") for i in range(3))
    return ended(concat("outer", concat("left", first, second), concat("right", third, first)))


def same_twice() -> Symbol:
    """Return a concat of one tensor with itself."""
    branch = norm(conv(variable("data"), "stem"), "norm")
    return ended(concat("cat", branch, branch))


def other_reader() -> Symbol:
    """Return a concat that is read by pooling as well as by the next concat."""
    stem = conv(variable("data"), "stem")
    first = concat("cat0", stem, conv(norm(stem, "norm0"), "conv0"))
    second = concat("cat1", first, conv(norm(first, "norm1"), "conv1"))
    window = {"kernel": (24, 24), "pool_type": "max"}
    pooled = chain(first, ("Pooling", window, "pool"), ("Flatten", {}, "flat"))
    flat = chain(norm(second, "last"), ("Flatten", {}, "flat_second"))
    return softmax(chain(concat("both", pooled, flat), ("FullyConnected", {"num_hidden": 4}, "fc")))


def axis(dim: int) -> Callable[[], Symbol]:
    def network() -> Symbol:
        stem = conv(variable("data"), "stem")
        parts = [norm(conv(stem, f"conv{i}"), f"norm{i}") for i in range(2)]
        joined = concat("cat", *parts, dim=dim)
        return ended(joined if dim else chain(joined, ("Reshape", {"shape": (BATCH, -1)}, "flat")))

    return network


# Tensors of each network that are slices of another tensor in training.
CASES: dict[str, tuple[Callable[[], Symbol], set[str]]] = {
    "dense": (dense, {"cat0", "cat1", "cat2"}),
    "odd": (odd, {"cat0", "cat1"}),
    "cell": (cell, {"norm0/relu", "norm1/relu", "norm2/relu"}),
    "nested": (nested, {"left", "right", *(f"norm{i}/relu" for i in range(4))}),
    "read_twice": (read_twice, {"left", "right", *(f"norm{i}/relu" for i in range(3))}),
    "same_twice": (same_twice, {"norm/relu"}),
    "other_reader": (other_reader, set()),
    "axis 0": (axis(0), {"norm0/relu", "norm1/relu"}),
    "axis 2": (axis(2), set()),
    "axis 3": (axis(3), set()),
}


def made(name: str, **options: Any) -> Plan:
    with fresh_names():
        symbol = CASES[name][0]()
    plan = plan_of(symbol, **{"inputs": INPUTS, "phases": (TRAIN,)} | options)
    verify_plan(plan)
    for phase in plan.phases.values():
        verify_graph(phase.graph, "storage")
    return plan


def lying(phase: PhasePlan) -> set[str]:
    return {phase.graph.values[value].name.removesuffix("_output") for value in phase.parts}


def reasons(phase: PhasePlan) -> dict[tuple[str, str], str]:
    return {(hint.step, hint.source.removesuffix("_output")): hint.reason for hint in phase.hints}


def peak(plan: Plan, phase: str = TRAIN) -> int:
    return max(plan.phases[phase].live_bytes())


@pytest.mark.parametrize("name", CASES)
def test_S5_parts_lie_in_the_whole_and_no_bit_changes(name: str) -> None:
    joined, copied = made(name), made(name, join=False)
    assert lying(joined.phases[TRAIN]) == CASES[name][1]
    assert not copied.phases[TRAIN].parts
    assert peak(joined) <= peak(copied)
    losses, arrays = trained(copied)
    assert trained(joined)[0] == losses
    assert same_bits(trained(joined, poisoned=True)[1], arrays)


@pytest.mark.parametrize("name", ["dense", "odd"])
def test_S5_a_chain_of_concats_needs_one_buffer(name: str) -> None:
    joined, copied = made(name), made(name, join=False)
    phase = joined.phases[TRAIN]
    chained = {
        value
        for value, each in enumerate(phase.graph.values)
        if each.name.startswith("cat") and each.name.endswith("_output")
    }
    (block,) = (block for block in phase.blocks if chained & {*block.values})
    assert chained <= {*block.values}
    sizes = sorted(phase.graph.spec(value).nbytes for value in chained)
    assert peak(copied) - peak(joined) > sum(sizes[:-1]) / 2


def test_S5_what_cannot_lie_in_the_whole_says_why() -> None:
    pool = made("other_reader").phases[TRAIN]
    assert reasons(pool)["cat1", "cat0"] == "pool cannot read it with a row pitch"
    assert (
        reasons(made("dense").phases[TRAIN])["cat0", "stem"]
        == "stem cannot write it with a row pitch"
    )
    twice = reasons(made("read_twice").phases[TRAIN])
    assert twice["left", "norm0/relu"] == "it is already in outer_output"
    off = reasons(made("dense", join=False).phases[TRAIN])
    assert off["cat1", "cat0"] == "concat in place is off"
    data = variable("data")
    phase = inferred(concat("cat", data, norm(data, "norm"), dim=0)).phases[EVALUATE]
    assert reasons(phase)["cat", "data"] == "data is given from outside"


def inferred(symbol: Symbol, **options: Any) -> Plan:
    """A plan of inference alone."""
    return plan_of(symbol, **{"inputs": INPUTS, "rules": {}, "phases": (EVALUATE,)} | options)


def outputs(plan: Plan) -> list[bytes]:
    executor = executor_for(plan)
    fill(executor)
    executor.run_poisoned(EVALUATE)
    results = plan.phases[EVALUATE].graph.results
    return [executor.result(EVALUATE, name).read().tobytes() for name in results]


def test_S5_a_result_keeps_memory_of_its_own() -> None:
    """The tensor has a plain layout, so that only its being a result prevents concat in place."""
    with fresh_names():
        data = variable("data")
        parts = [
            chain(data, ("Activation", {"act_type": act}, act)) for act in ("tanh", "softsign")
        ]
        symbol = group([concat("cat", *parts, dim=0), parts[0]])
    plan = inferred(symbol)
    assert lying(plan.phases[EVALUATE]) == {"softsign"}
    assert reasons(plan.phases[EVALUATE])["cat", "tanh"] == "tanh_output is a result"
    assert outputs(plan) == outputs(inferred(symbol, join=False))


def test_S5_parts_of_one_row_begin_at_cache_lines() -> None:
    """With a single row all operators can write slices, but vectors must start at cache lines."""
    inputs = INPUTS | {"data": TensorSpec((1, 3, 5, 5))}
    with fresh_names():
        acts, data = ("tanh", "softsign", "sigmoid"), variable("data")
        parts = [chain(data, ("Activation", {"act_type": act}, act)) for act in acts]
        symbol = concat("cat", *parts)
    phase = inferred(symbol, inputs=inputs).phases[EVALUATE]
    assert lying(phase) == {"tanh"}
    assert reasons(phase)["cat", "softsign"] == "its offset would not be a multiple of 64 bytes"
    inputs["data"] = TensorSpec((1, 4, 4, 4))
    plan = inferred(symbol, inputs=inputs)
    assert lying(plan.phases[EVALUATE]) == {*acts}
    assert outputs(plan) == outputs(inferred(symbol, inputs=inputs, join=False))
    offsets = plan.phases[EVALUATE].offsets
    (cat,) = plan.phases[EVALUATE].graph.results.values()
    assert {offsets[part] - offsets[cat] for part in plan.phases[EVALUATE].parts} == {0, 256, 512}


def test_S5_what_needs_more_bytes_is_copied() -> None:
    """The second part is computed from large tensors, live beside the parent buffer."""
    with fresh_names():
        stem = conv(variable("data"), "stem")
        early = norm(conv(stem, "conv0"), "early")
        late = norm(conv(norm(conv(stem, "wide", 64), "much"), "narrow"), "late")
        symbol = ended(concat("cat", early, late))
    plan, copied = inferred(symbol), inferred(symbol, join=False)
    assert not plan.phases[EVALUATE].parts
    assert peak(plan, EVALUATE) == peak(copied, EVALUATE)
    reason = reasons(plan.phases[EVALUATE])["cat", "early/relu"]
    assert reason == "peak memory would rise"
    training = plan_of(symbol, inputs=INPUTS, phases=(TRAIN,)).phases[TRAIN]
    assert lying(training) == {"early/relu", "late/relu"}


def test_S5_nothing_lies_within_nothing() -> None:
    inputs = INPUTS | {"data": TensorSpec((BATCH, 0, 5, 5))}
    with fresh_names():
        data = variable("data")
        acts = [chain(data, ("Activation", {"act_type": act}, act)) for act in ("tanh", "relu")]
        plan = inferred(concat("cat", *acts), inputs=inputs)
    assert not plan.phases[EVALUATE].parts
    assert reasons(plan.phases[EVALUATE])["cat", "tanh"] == "it is empty"
    executor_for(plan).run(EVALUATE)


@pytest.mark.parametrize(("join", "moved"), [(True, ["pool"]), (False, ["pool", "norms"])])
def test_S5_what_lies_there_is_not_moved(join: bool, moved: list[str]) -> None:
    phase = made("cell", join=join).phases[TRAIN]
    (step,) = (step for step in phase.steps if step.name == "cat")
    positions = BATCH * 24 * 24
    nbytes = sum({"pool": 8, "norms": 5 + 6 + 7}[name] * positions * 4 for name in moved)
    assert traffic_of(step, phase.offsets) == Traffic(nbytes, nbytes, 0)


@pytest.mark.parametrize("share", [0.8, 0.6])
def test_F2_budgets_are_met_with_parts(share: float) -> None:
    plain = made("dense")
    plan = made("dense", budget=Budget(share=share))
    phase = plan.phases[TRAIN]
    assert phase.reusable_bytes <= share * plain.phases[TRAIN].reusable_bytes
    assert phase.recomputed is not None
    assert phase.parts
    assert same_bits(trained(plan, poisoned=True)[1], trained(plain)[1])


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_S5_any_threads_and_precision_gives_the_same_bits(precision: str, threads: int) -> None:
    options = {"precision": precision, "threads": threads}
    joined, copied = made("odd", **options), made("odd", join=False, **options)
    assert joined.phases[TRAIN].parts
    assert peak(joined) < peak(copied)
    assert same_bits(trained(joined, poisoned=True)[1], trained(copied)[1])


def test_S5_the_checked_mode_finds_what_is_no_number_in_a_part() -> None:
    """Other columns of a parent buffer may hold anything when a slice of it is written."""
    plan = made("cell")
    executor = executor_for(plan)
    fill(executor)
    executor.device.fill(executor.memory, plan.pinned_bytes, executor.memory.nbytes, 0xFF)
    assert first_non_finite(executor, TRAIN) is None
    beta = executor.tensor("norm1_beta")
    beta.write(np.where(np.arange(len(beta.values())) == 3, np.inf, beta.values()))
    found = first_non_finite(executor, TRAIN)
    assert found is not None
    assert (found.step, found.index) == ("norm1+norm1/relu", (0, 3, 0, 0))


def test_S5_overlapping_parts_are_found() -> None:
    plan = made("dense")
    phase = plan.phases[TRAIN]
    value, part = max(phase.parts.items(), key=lambda item: item[1].width)
    for begin, problem in ((4 * part.pitch, "exceeds its parent"), (4, "overlap")):
        parts = {**phase.parts, value: replace(part, begin=begin)}
        wrong = replace(plan, phases={TRAIN: replace(phase, parts=parts)})
        with pytest.raises(InternalError, match=problem):
            verify_plan(wrong)


def test_S5_planting_a_shorter_pitch_changes_bits() -> None:
    """Shows that the tests above read from the planned addresses."""
    plan = made("dense")
    phase = plan.phases[TRAIN]
    parts = {
        value: replace(part, pitch=part.pitch - 1) if part.width > 16 else part
        for value, part in phase.parts.items()
    }
    wrong = replace(plan, phases={TRAIN: replace(phase, parts=parts)})
    assert not same_bits(trained(wrong)[1], trained(plan)[1])


@pytest.mark.parametrize("name", NETWORKS)
def test_networks_without_concat_are_planned_as_before(name: str) -> None:
    joined = plan_of(NETWORKS[name]()).phases[TRAIN]
    assert not joined.parts
    assert joined.hints == plan_of(NETWORKS[name](), join=False).phases[TRAIN].hints
