"""Schedules: the search finds the optimum, and no schedule changes a bit."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator

import pytest
from networks import NETWORKS, chain, plan_of, same_bits, softmax, trained

from mxrun.base.tensor import TensorSpec
from mxrun.graph.graph import Graph, MemoryClass, Step, StepKind, Value, writes
from mxrun.graph.phases import TRAIN
from mxrun.graph.symbol import Symbol, fresh_names, variable
from mxrun.planner.inplace import inplace
from mxrun.planner.liveness import live_bytes
from mxrun.planner.schedule.optimal_subschedule import optimal_subschedule
from mxrun.planner.schedule.ordering import LiveBytes, Ordering, live_bytes_of
from mxrun.planner.schedule.peak_lower_bound import peak_lower_bound
from mxrun.planner.schedule.schedule import BEST, DECLARED, DEPTH_FIRST, LIST, ORDERS, schedule
from mxrun.planner.storage import Sharing

STEPS = 8


def branching(seed: int) -> Graph:
    """Steps that each make a tensor of some multiple of 64 bytes and read up to two before it."""
    generator = random.Random(seed)
    values = [
        Value(f"v{i}", TensorSpec((16 * generator.randint(1, 9),)), MemoryClass.ACTIVATIONS)
        for i in range(STEPS)
    ]
    steps = []
    for i in range(STEPS):
        read = sorted(generator.sample(range(i), min(i, generator.randint(0, 2))))
        steps.append(Step(f"s{i}", StepKind.FORWARD, None, tuple(read), (i,), writes((i,))))
    return Graph(tuple(values), tuple(steps), results={"end": STEPS - 1})


def possible(ordering: Ordering) -> Iterator[tuple[int, ...]]:
    units = ordering.units
    for order in itertools.permutations(range(len(units))):
        place = {number: index for index, number in enumerate(order)}
        if all(place[each] < place[n] for n in order for each in units[n].waits_for):
            yield order


def peak(graph: Graph) -> int:
    return max(live_bytes(graph, inplace(graph)))


@pytest.mark.parametrize("seed", range(12))
def test_the_best_order_of_a_region_is_that_of_all(seed: int) -> None:
    graph = branching(seed)
    ordering = Ordering(graph, in_place=True)
    given = range(STEPS)
    live = live_bytes_of(ordering, given)
    assert live == live_bytes(graph, inplace(graph))
    least = min(max(live_bytes_of(ordering, order)) for order in possible(ordering))
    found, order = optimal_subschedule(ordering, given, live, 0, STEPS)
    assert order in map(list, possible(ordering))
    assert found == max(live_bytes_of(ordering, order)) == least
    assert peak_lower_bound(graph, in_place=True) <= least
    scheduled = schedule(graph, Sharing())
    assert peak(scheduled.graph) == least
    assert scheduled.least_bytes <= least


def test_what_must_be_there_in_every_order_is_a_bound_that_chains_reach() -> None:
    sizes = (4, 9, 2, 7)
    values = [Value(str(s), TensorSpec((16 * s,)), MemoryClass.ACTIVATIONS) for s in sizes]
    steps = [
        Step(f"s{i}", StepKind.FORWARD, None, tuple(range(max(0, i - 1), i)), (i,), writes((i,)))
        for i in range(len(sizes))
    ]
    graph = Graph(tuple(values), tuple(steps))
    assert peak_lower_bound(graph, True) == peak(graph) == 64 * (4 + 9)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name", NETWORKS)
def test_no_order_changes_a_bit(name: str, order: str) -> None:
    """(row F4)"""
    plain, other = plan_of(NETWORKS[name]()), plan_of(NETWORKS[name](), order=order)
    assert other.phases[TRAIN].order == order
    (losses, arrays), (others, changed) = trained(plain), trained(other, poisoned=True)
    assert losses == others
    assert same_bits(arrays, changed)


@pytest.mark.parametrize("name", NETWORKS)
def test_the_best_order_needs_no_more_than_any_other(name: str) -> None:
    plans = {order: plan_of(NETWORKS[name](), order=order) for order in (BEST, *ORDERS)}
    sizes = {order: plan.phases[TRAIN].lower_bound_bytes for order, plan in plans.items()}
    assert sizes[BEST] == min(sizes.values())


@pytest.mark.parametrize("fuse", [True, False])
@pytest.mark.parametrize("name", NETWORKS)
def test_a_planned_networks_bytes_are_counted_and_bounded(name: str, fuse: bool) -> None:
    """Includes reorders, views, updates and in-place outputs."""
    for phase in plan_of(NETWORKS[name](), fuse=fuse, add_to=False, join=False).phases.values():
        graph = phase.graph
        ordering = Ordering(graph, in_place=True, grouped=False)
        given = range(len(graph.steps))
        assert live_bytes_of(ordering, given) == live_bytes(graph, inplace(graph))
        grouped = Ordering(graph, in_place=True)
        end = LiveBytes(grouped)
        for unit in grouped.units:
            end.run(unit)
        assert end.now == sum(grouped.size[root] for root in grouped.lasting)
        bound = peak_lower_bound(graph, in_place=True)
        for order in ORDERS:
            assert bound <= peak(schedule(graph, Sharing(), order).graph)


def wide_end() -> Symbol:
    """Large activations, and then a dense layer whose weight is larger than all of them."""
    convolution = {"num_filter": 16, "kernel": (3, 3), "pad": (1, 1)}
    with fresh_names():
        symbol = variable("data")
        for index in range(3):
            layers = (
                ("Convolution", convolution, f"conv{index}"),
                (
                    "Activation",
                    {"act_type": "tanh"},
                    f"tanh{index}",
                ),
            )
            symbol = chain(symbol, *layers)
        dense = chain(symbol, ("FullyConnected", {"num_hidden": 300}, "wide"))
        return softmax(chain(dense, ("FullyConnected", {"num_hidden": 4}, "fc")))


def test_a_large_weight_gradient_waits_until_there_is_room() -> None:
    declared, best = plan_of(wide_end(), order=DECLARED), plan_of(wide_end())
    weight = 300 * 16 * 9 * 9 * 4
    names = [step.name for step in best.phases[TRAIN].steps]
    at = names.index("wide:backward:weight+bias")
    assert at > names.index("conv2:backward:data")
    # The update follows at once, so that the gradient is freed.
    assert set(names[at + 1 : at + 3]) == {"wide_weight:update", "wide_bias:update"}
    gained = declared.planned_bytes - best.planned_bytes
    assert 0 < gained < weight
    assert same_bits(trained(declared)[1], trained(best)[1])


@pytest.mark.parametrize("order", [LIST, DEPTH_FIRST])
def test_backward_comes_after_all_of_forward(order: str) -> None:
    steps = plan_of(NETWORKS["residual"](), order=order).phases[TRAIN].steps
    kinds = [step.kind for step in steps]
    first = kinds.index(StepKind.BACKWARD)
    assert StepKind.FORWARD not in kinds[first:]
