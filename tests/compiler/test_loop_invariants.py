"""Steps that every iteration would repeat run once, before the loop, with the same bits."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from recurrent_networks import (
    TARGETS,
    assert_same_bits,
    config,
    outcome,
    plan_of,
    results_of,
    symbol_of,
)

from mxrun.compiler import loop
from mxrun.device.cpu.onednn import library
from mxrun.graph.graph import Graph, StepKind
from mxrun.graph.phases import EVALUATE, PREPARE, TRAIN
from mxrun.planner.plan import LoopKernel, PhasePlan, Plan

needs_onednn = pytest.mark.skipif(library.load() is None, reason=library.reason())
STEPS = 6

# The weights of the state are transposed, and a layer outside is read through a product.
LAYERS = """\
    - FullyConnected: {name: context, data: first, num_hidden: 8}
    - recurrent:
        name: rnn
        sequences: {x: data}
        memories: {h: {layer: next, shape: [16], initial: first}}
        layers:
          - transpose: {name: turned, data: w}
          - dot: {name: of_h, lhs: h, rhs: turned}
          - FullyConnected: {name: of_x, data: x, num_hidden: 16}
          - FullyConnected: {name: of_context, data: context, num_hidden: 16}
          - elemwise_add: {name: both, lhs: of_x, rhs: of_context}
          - elemwise_add: {name: sum, lhs: both, rhs: of_h}
          - Activation: {name: next, act_type: tanh}
        outputs: [next]
"""
KEYS = "network.layers[1].recurrent"
INVARIANT = ("turned", "of_context")


def network() -> str:
    inputs = f"{{data: [{STEPS}, 8], first: [16], target: [{STEPS}, 16]}}"
    text = config(inputs, LAYERS + TARGETS)
    # Products of few rows pack no weights.
    text = text.replace("batch_size: 4", "batch_size: 8")
    return text.replace("  layers:\n", "  variables: {w: {shape: [16, 16]}}\n  layers:\n", 1)


def runs(phase: PhasePlan, times: int = 1) -> Counter[str]:
    """Return how often each step with a kernel of its own runs, by the layer it belongs to."""
    found: Counter[str] = Counter()
    for step in phase.steps:
        if isinstance(step.kernel, LoopKernel) and step.loop is not None:
            found += runs(step.kernel.body, times * step.loop.count)
        elif not step.is_view and step.kind in (StepKind.FORWARD, StepKind.REORDER):
            found[step.name.split(":")[0].rpartition("/")[2]] += times
    return found


SHAPES = {"w": (16, 16)}


def planned(folder: Path, **options: Any) -> Plan:
    return plan_of(*symbol_of(folder, network()), shapes=SHAPES, **options)


def unmoved(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave all steps in their loops."""

    def hoist_invariants(graph: Graph) -> Graph:
        return graph

    monkeypatch.setattr(loop, "hoist_invariants", hoist_invariants)


@pytest.mark.parametrize("segment", [None, 2])
def test_invariant_steps_run_once_in_each_direction(
    segment: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = planned(tmp_path, segment=segment)
    after = {phase: runs(plan.phases[phase]) for phase in (EVALUATE, TRAIN)}
    with monkeypatch.context() as patch:
        unmoved(patch)
        before = planned(tmp_path, segment=segment)
    counts = {phase: runs(before.phases[phase]) for phase in (EVALUATE, TRAIN)}
    for name in INVARIANT:
        assert (counts[EVALUATE][name], after[EVALUATE][name]) == (STEPS, 1)
        assert counts[TRAIN][name] >= STEPS
    # Backward reads the transposed weights, and not the product.
    assert after[TRAIN]["turned"] == (2 if segment is None else 3)
    assert after[TRAIN]["of_context"] == (1 if segment is None else 2)
    assert after[TRAIN]["of_x"] == counts[TRAIN]["of_x"] >= STEPS
    assert_same_bits(results_of(plan), results_of(before))
    assert_same_bits(results_of(plan), results_of(plan, poisoned=True))


def test_what_is_invariant_is_not_kept_for_every_step(tmp_path: Path) -> None:
    plan = planned(tmp_path)
    values = plan.phases[TRAIN].graph.values
    of_weights = [value for value in values if value.spec.shape == (STEPS, 16, 16)]
    assert not of_weights


@pytest.mark.full
@pytest.mark.parametrize("kind", ["cpu", "reference"])
def test_a_loop_without_its_invariant_steps_equals_the_unrolled_form(
    kind: str, tmp_path: Path
) -> None:
    options: dict[str, Any] = {"kind": kind, "shapes": SHAPES}
    found = outcome(tmp_path, network(), **options)
    assert_same_bits(found, outcome(tmp_path, network(), f"{KEYS}.unroll=true", **options))
    assert all(np.abs(value).max() > 0 for name, value in found.items() if "_grad" in name)


def packed(plan: Plan) -> list[tuple[str, str]]:
    """Return the phases and names of the reorders outside of loops."""
    return [
        (name, step.name.split(":")[0])
        for name, phase in plan.phases.items()
        for step in phase.steps
        if step.kind is StepKind.REORDER
    ]


@needs_onednn
def test_weights_are_packed_once_a_run(tmp_path: Path) -> None:
    plan = planned(tmp_path)
    names = packed(plan)
    assert (TRAIN, "rnn/of_x_weight") in names
    assert (EVALUATE, "rnn/of_x_weight") in names
    assert runs(plan.phases[TRAIN])["of_x_weight"] == 1


@needs_onednn
def test_weights_that_do_not_change_are_packed_once_at_all(tmp_path: Path) -> None:
    options: dict[str, Any] = {"phases": (EVALUATE,), "gradients": (), "constant_parameters": True}
    plan = planned(tmp_path, **options)
    assert {name for phase, name in packed(plan) if phase == PREPARE} >= {"rnn/of_x_weight"}
    assert not [name for phase, name in packed(plan) if phase == EVALUATE]
    assert runs(plan.phases[EVALUATE])["turned"] == 0
    assert runs(plan.phases[PREPARE])["turned"] == 1


NESTED = """\
    - recurrent:
        name: outer
        sequences: {s: data}
        memories: {c: {layer: after, shape: [8]}}
        layers:
          - recurrent:
              name: inner
              sequences: {w: s}
              memories: {h: {layer: next, shape: [8], initial: c}}
              layers:
                - transpose: {name: turned, data: w_turned}
                - dot: {name: of_h, lhs: h, rhs: turned}
                - FullyConnected: {name: of_w, data: w, num_hidden: 8}
                - elemwise_add: {name: sum, lhs: of_w, rhs: of_h}
                - Activation: {name: next, act_type: tanh}
              outputs: [next]
              final: [h]
          - FullyConnected: {name: after, data: "inner[h]", num_hidden: 8}
        outputs: [after]
"""


def test_invariant_steps_leave_all_loops_around_them(tmp_path: Path) -> None:
    text = config(f"{{data: [3, {STEPS}, 4], target: [3, 8]}}", NESTED + TARGETS)
    variables = "  variables: {w_turned: {shape: [8, 8]}}\n  layers:\n"
    text = text.replace("  layers:\n", variables, 1)
    shapes = {"w_turned": (8, 8)}
    plan = plan_of(*symbol_of(tmp_path, text), shapes=shapes)
    assert runs(plan.phases[EVALUATE])["turned"] == 1
    assert runs(plan.phases[TRAIN])["turned"] == 2
    unrolled = outcome(tmp_path, text, "network.layers[0].recurrent.unroll=true", shapes=shapes)
    assert_same_bits(results_of(plan), unrolled)
    # Two loops over segments repeat the loop within.
    assert_same_bits(outcome(tmp_path, text, shapes=shapes, segment=2), unrolled)
