"""The checks after every pass detect the errors that a pass could make."""

from __future__ import annotations

from dataclasses import replace

import pytest
from networks import convolutional, plan_of

from mxrun.base.errors import InternalError
from mxrun.compiler.passes import PASSES, fusion_names
from mxrun.compiler.verify import verify_graph, verify_plan
from mxrun.graph.graph import Graph
from mxrun.graph.phases import TRAIN


@pytest.fixture(scope="module")
def graph() -> Graph:
    return plan_of(convolutional()).phases[TRAIN].graph


def test_a_compiled_graph_and_plan_are_whole(graph: Graph) -> None:
    assert verify_graph(graph, "select") is graph
    plan = plan_of(convolutional())
    assert verify_plan(plan) is plan


def test_a_name_is_that_of_one_pass() -> None:
    names = [each.name for each in PASSES if not each.is_fusion]
    assert len({*names, *fusion_names()}) == len(names) + len(fusion_names())


def test_X7_two_writers_of_one_value(graph: Graph) -> None:
    again = replace(graph.steps[0], name="again")
    twice = replace(graph, steps=(*graph.steps, again))
    with pytest.raises(InternalError, match=r"after updates: .* has two writers, 'again' last"):
        verify_graph(twice, "updates")


def test_X7_two_steps_of_one_name(graph: Graph) -> None:
    twice = replace(graph, steps=(*graph.steps, graph.steps[0]))
    with pytest.raises(InternalError, match="two steps are named"):
        verify_graph(twice, "updates")


def test_X7_a_value_read_before_it_is_made(graph: Graph) -> None:
    with pytest.raises(InternalError, match="before it is made"):
        verify_graph(replace(graph, steps=graph.steps[::-1]), "updates")


def test_X7_a_result_that_nothing_makes(graph: Graph) -> None:
    with pytest.raises(InternalError, match="nothing makes the result"):
        verify_graph(replace(graph, steps=()), "updates")


def test_blocks_that_overlap_in_time_and_place() -> None:
    plan = plan_of(convolutional())
    phase = plan.phases[TRAIN]
    first = min(phase.blocks, key=lambda block: block.first)
    clash = replace(first, name="clash", values=("clash",))
    broken = replace(plan, phases={TRAIN: replace(phase, blocks=(*phase.blocks, clash))})
    with pytest.raises(InternalError, match="clash"):
        verify_plan(broken)


def test_a_block_outside_the_arena() -> None:
    plan = plan_of(convolutional())
    phase = plan.phases[TRAIN]
    last = max(phase.blocks, key=lambda block: block.end)
    moved = replace(last, offset=last.offset + 64)
    blocks = tuple(moved if block is last else block for block in phase.blocks)
    with pytest.raises(InternalError, match="leaves the arena"):
        verify_plan(replace(plan, phases={TRAIN: replace(phase, blocks=blocks)}))
