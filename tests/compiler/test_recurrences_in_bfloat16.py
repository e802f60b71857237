"""Recurrences in bfloat16: products round, memories do not, and loops have the unrolled bits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from recurrent_cells import WEIGHTS, network, specs
from recurrent_networks import (
    TARGETS,
    assert_same_bits,
    config,
    outcome,
    plan_of,
    results_of,
    symbol_of,
)

from mxrun.base.dtype import BFLOAT16, FLOAT32
from mxrun.compiler import loop
from mxrun.graph.graph import Graph, Step
from mxrun.graph.phases import EVALUATE, TRAIN
from mxrun.planner.plan import LoopKernel, PhasePlan, Plan

LOW: dict[str, Any] = {"precision": BFLOAT16}
CASES: dict[str, dict[str, Any]] = {
    "plain": {},
    "offset 3": {"offset": 3},
    "reversed, offset 2": {"reverse": True, "offset": 2},
    "no final values": {"final": False},
    "dropout": {"drops": True},
}


def planned(steps: int, options: dict[str, Any] | None = None, **case: Any) -> Plan:
    inputs = specs(steps, case.get("offset", 1), case.get("final", True))
    gradients = (*WEIGHTS, "data", "first_h")
    return plan_of(network(**case), inputs, gradients, **LOW, **(options or {}))


@pytest.mark.parametrize("case", CASES)
def test_L7_a_recurrence_in_bfloat16_equals_its_unrolled_form_bit_for_bit(case: str) -> None:
    found = results_of(planned(5, **CASES[case]))
    assert_same_bits(found, results_of(planned(5, unroll=True, **CASES[case])))
    assert all(value.dtype == np.float32 for value in found.values())


@pytest.mark.parametrize("options", [{"segment": 2}, {"segment": 3}, {"drop_cheap": True}])
@pytest.mark.parametrize("case", ["plain", "reversed, offset 2", "dropout"])
def test_L9_what_runs_again_in_bfloat16_gives_the_same_bits(
    case: str, options: dict[str, Any]
) -> None:
    whole = results_of(planned(7, **CASES[case]))
    plan = planned(7, options, **CASES[case])
    assert_same_bits(whole, results_of(plan))
    assert_same_bits(whole, results_of(plan, poisoned=True))


@pytest.mark.parametrize("changes", ["in_place", "add_to", "reuse", "join", "fuse"])
def test_sharing_and_fusion_in_bfloat16_change_no_bit(changes: str) -> None:
    assert_same_bits(results_of(planned(4)), results_of(planned(4, {changes: False})))


# The layers before give sequences, first values and constants in bfloat16.
AROUND = """\
    - FullyConnected: {name: context, data: first, num_hidden: 16}
    - FullyConnected: {name: start, data: first, num_hidden: 16}
    - FullyConnected: {name: embedded, data: data, num_hidden: 8, flatten: false}
    - recurrent:
        name: outer
        sequences: {s: embedded}
        memories: {c: {layer: after, shape: [16], initial: start}}
        lengths: sentences
        layers:
          - FullyConnected: {name: of_s, data: s, num_hidden: 8, flatten: false}
          - recurrent:
              name: inner
              sequences: {w: of_s}
              memories: {h: {layer: next, shape: [16], initial: c}, d: {layer: next, offset: 2}}
              layers:
                - FullyConnected: {name: of_w, data: w, num_hidden: 16}
                - FullyConnected: {name: of_h, data: h, num_hidden: 16}
                - elemwise_add: {name: both, lhs: of_w, rhs: of_h}
                - elemwise_add: {name: late, lhs: both, rhs: d}
                - elemwise_add: {name: sum, lhs: late, rhs: context}
                - Activation: {name: next, act_type: tanh}
              outputs: [sum]
              final: [h]
          - Reshape: {name: flat, data: inner, shape: [0, -1]}
          - Concat: {name: all, inputs: [flat, "inner[h]"]}
          - FullyConnected: {name: after, num_hidden: 16}
        outputs: [after, of_s]
    - Reshape: {name: words, data: "outer[1]", shape: [0, 0, -1]}
    - Concat: {name: joined, inputs: ["outer[0]", words], dim: 2}
    - FullyConnected: {name: last, num_hidden: 4, flatten: false}
"""
OUTER = "network.layers[3].recurrent"
INNER = f"{OUTER}.layers[1].recurrent"
TEXT = config("{data: [3, 5, 4], first: [6], sentences: [], target: [3, 4]}", AROUND + TARGETS)
LENGTHS = {"sentences": np.array([3, 1, 2, 0])}


def test_L8_nested_recurrences_in_bfloat16_equal_their_unrolled_forms(tmp_path: Path) -> None:
    found = outcome(tmp_path, TEXT, given=LENGTHS, **LOW)
    for forms in ([OUTER], [OUTER, INNER]):
        unrolled = [f"{form}.unroll=true" for form in forms]
        assert_same_bits(found, outcome(tmp_path, TEXT, *unrolled, given=LENGTHS, **LOW))
    assert_same_bits(found, outcome(tmp_path, TEXT, given=LENGTHS, segment=2, **LOW))
    in_float32 = outcome(tmp_path, TEXT, given=LENGTHS)
    for name, value in in_float32.items():
        scale = np.abs(value).max()
        assert scale > 0
        np.testing.assert_allclose(found[name], value, atol=0.05 * scale, err_msg=name)


def test_the_reverse_backward_mode_gives_the_same_bits_in_bfloat16() -> None:
    found = results_of(planned(4, {"backward": "reverse"}))
    assert_same_bits(found, results_of(planned(4)))


def steps_of(phase: PhasePlan) -> list[tuple[Graph, Step]]:
    """Return the steps within loops, of all depths, with their graphs."""
    found = []
    for step in phase.steps:
        if isinstance(step.kernel, LoopKernel) and step.loop is not None:
            body = step.kernel.body
            if step.loop.count > 1:
                found += [(body.graph, each) for each in body.steps if each.loop is None]
            found += steps_of(body)
    return found


def test_products_of_steps_are_in_bfloat16_and_memories_in_float32(tmp_path: Path) -> None:
    plan = plan_of(*symbol_of(tmp_path, TEXT), **LOW)
    outside = [step for step in plan.phases[TRAIN].steps if step.name == "embedded"]
    dtypes = {outside[0].kernel.outputs[0].dtype if outside[0].kernel else ""}
    products = [
        (graph, step)
        for phase in (EVALUATE, TRAIN)
        for graph, step in steps_of(plan.phases[phase])
        if step.prop is not None and step.prop.type_string == "FullyConnected"
    ]
    # As outside: float32 on machines without products in bfloat16.
    assert len(products) > len([*filter(None, (step.forward for _, step in products))]) > 0
    for graph, step in products:
        if step.forward is None:
            assert {graph.spec(step.writes[0]).dtype} == dtypes
        elif step.name.endswith("weight+bias"):
            assert graph.spec(step.writes[0]).dtype == FLOAT32
    memories = [
        graph.spec(step.writes[0]).dtype
        for graph, step in steps_of(plan.phases[TRAIN])
        if step.name.endswith((":next", ":update"))
    ]
    assert {*memories} == {FLOAT32}


def test_weights_are_converted_once_before_a_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = plan_of(*symbol_of(tmp_path, TEXT), **LOW)
    converted = [step for _, step in steps_of(plan.phases[TRAIN]) if "weight:reorder" in step.name]
    assert not converted

    def hoist_invariants(graph: Graph) -> Graph:
        return graph

    monkeypatch.setattr(loop, "hoist_invariants", hoist_invariants)
    before = plan_of(*symbol_of(tmp_path, TEXT), **LOW)
    assert_same_bits(results_of(plan, LENGTHS), results_of(before, LENGTHS))


# Rows of an odd size are no pairs of bfloat16 elements, so that RNN computes in float32.
@pytest.mark.full
@pytest.mark.parametrize("size", [5, 6])
def test_RNN_hands_the_gradient_of_bfloat16_data_to_a_layer_before_it(
    size: int, tmp_path: Path
) -> None:
    layers = f"""\
    - FullyConnected: {{name: before, num_hidden: 5, flatten: false}}
    - RNN: {{name: rnn, mode: gru, state_size: {size}, num_layers: 2, layout: NTC,
            initial_state: zeros}}
"""
    text = config(f"{{data: [6, 3], target: [6, {size}]}}", layers + TARGETS)
    found, exact = (outcome(tmp_path, text, **options) for options in (LOW, {}))
    assert found.keys() == exact.keys()
    for name, value in exact.items():
        assert np.abs(found[name] - value).max() <= 0.05 * np.abs(value).max()
