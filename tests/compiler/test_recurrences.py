"""Recurrences against their unrolled form: memories, offsets, both orders, random numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from recurrent_cells import BATCH, HIDDEN, WEIGHTS, network, specs
from recurrent_networks import Arrays, assert_same_bits, drawn, plan_of, results_of

from mxrun.device.registry import device_kind
from mxrun.executor.executor import Executor
from mxrun.graph.phases import EVALUATE, TRAIN
from mxrun.graph.symbol import load_json
from mxrun.planner.plan import LoopKernel, PhasePlan, Plan
from mxrun.planner.remat.budget import Budget


def planned(
    steps: int, kind: str = "cpu", options: dict[str, Any] | None = None, **case: Any
) -> Plan:
    inputs = specs(steps, case.get("offset", 1), case.get("final", True))
    gradients = (*WEIGHTS, "data", *(("first_h",) if case.get("initial", True) else ()))
    return plan_of(network(**case), inputs, gradients, kind, **(options or {}))


CASES: dict[str, dict[str, Any]] = {
    "plain": {},
    "offset 2": {"offset": 2},
    "offset 3": {"offset": 3},
    "reversed": {"reverse": True},
    "reversed, offset 2": {"reverse": True, "offset": 2},
    "no final values": {"final": False},
    "zeros at first": {"initial": False},
    "dropout": {"drops": True},
    "dropout, reversed": {"drops": True, "reverse": True},
}


ON_REFERENCE = [("plain", "reference"), ("dropout, reversed", "reference")]


@pytest.mark.parametrize(("case", "kind"), [*((case, "cpu") for case in CASES), *ON_REFERENCE])
def test_L7_a_recurrence_equals_its_unrolled_form_bit_for_bit(case: str, kind: str) -> None:
    for steps in (1, 5):
        loop = results_of(planned(steps, kind, **CASES[case]))
        assert_same_bits(loop, results_of(planned(steps, kind, unroll=True, **CASES[case])))
        assert any(np.abs(value).max() > 0 for name, value in loop.items() if "data_grad" in name)


def test_both_backward_modes_give_the_same_bits() -> None:
    for case in ("plain", "offset 2", "dropout"):
        explicit = results_of(planned(4, **CASES[case]))
        options = {"backward": "reverse"}
        assert_same_bits(explicit, results_of(planned(4, options=options, **CASES[case])))


def test_the_masks_of_the_steps_differ() -> None:
    gradient = results_of(planned(4, drops=True))["train data_grad"]
    dropped = {tuple(map(tuple, np.argwhere(rows == 0))) for rows in gradient}
    assert len(dropped) == 4
    assert all(dropped)


def reference(steps: int) -> Arrays:
    """Return outputs and gradients in float64 by the formulas of the cell and by differences."""
    values = {
        name: drawn(name, spec).astype(np.float64)
        for name, spec in planned(steps).specs.items()
        if name not in ("random:state",)
    }

    def sigmoid(data: Any) -> Any:
        return 1 / (1 + np.exp(-data))

    def run(changed: Arrays) -> tuple[float, Arrays]:
        v = {**values, **changed}
        h, c, stacked = v["first_h"], np.zeros((BATCH, HIDDEN)), []
        for x in v["data"]:
            i = sigmoid(x @ v["of_x_weight"].T + h @ v["of_h_weight"].T)
            f = sigmoid(h @ v["of_h_weight"].T)
            c = f * c + i * np.tanh(x @ v["gate_weight"].T)
            h = np.tanh(c) * i
            stacked.append((h, h + c))
        first, second = (np.array(each) for each in zip(*stacked, strict=True))
        outputs = {"output0": first, "output1": second, "h": h, "c": c}
        masks = (v[f"mask{index}"] for index in range(4))
        pairs = zip(outputs.values(), masks, strict=True)
        return sum(float((output * mask).sum()) for output, mask in pairs), outputs

    _, found = run({})
    random, names = np.random.default_rng(0), ("data", "first_h", *WEIGHTS)
    for name in names:
        way = random.normal(size=values[name].shape)
        up, down = (run({name: values[name] + sign * 1e-5 * way})[0] for sign in (1, -1))
        found[f"{name} along"] = np.array((up - down) / 2e-5)
        found[f"{name} way"] = way
    return found


def test_a_recurrence_has_the_values_and_gradients_of_its_formulas() -> None:
    found, expected = results_of(planned(6)), reference(6)
    for name in ("output0", "output1", "h", "c"):
        np.testing.assert_allclose(found[f"train rnn_{name}"], expected[name], atol=1e-5)
        np.testing.assert_allclose(found[f"evaluate rnn_{name}"], expected[name], atol=1e-5)
    for name in ("data", "first_h", *WEIGHTS):
        along = float((found[f"train {name}_grad"] * expected[f"{name} way"]).sum())
        assert along == pytest.approx(float(expected[f"{name} along"]), rel=1e-4)


def size(plan: Plan) -> list[tuple[int, int]]:
    """Return the number of steps and blocks of each phase, and of the bodies of its loops."""
    found = []
    waiting = [*plan.phases.values()]
    while waiting:
        phase = waiting.pop()
        found.append((len(phase.steps), len(phase.blocks)))
        kernels = [step.kernel for step in phase.steps]
        waiting += [kernel.body for kernel in kernels if isinstance(kernel, LoopKernel)]
    return found


def test_L7_operators_blocks_and_tape_do_not_grow_with_the_steps() -> None:
    sizes, tapes = [], []
    for steps in (10, 1000):
        plan = planned(steps)
        sizes.append(size(plan))
        executor = Executor(plan, device_kind("cpu")(plan.device))
        tapes.append([len(executor.programs[phase].names) for phase in (EVALUATE, TRAIN)])
    assert sizes[0] == sizes[1]
    assert tapes[0] == tapes[1]
    assert sum(tapes[0]) < 100


def test_poisoned_memory_changes_nothing() -> None:
    for case in ("plain", "offset 2", "dropout"):
        plan = planned(4, **CASES[case])
        assert_same_bits(results_of(plan), results_of(plan, poisoned=True))


@pytest.mark.parametrize("changes", ["in_place", "add_to", "reuse", "join", "fuse"])
def test_sharing_and_fusion_change_no_bit(changes: str) -> None:
    assert_same_bits(results_of(planned(4)), results_of(planned(4, options={changes: False})))


SEGMENTS = {"plain": (2, 3, 4), "offset 3": (1, 4), "reversed, offset 2": (3,), "dropout": (3,)}


@pytest.mark.parametrize(
    ("case", "kind"), [*((case, "cpu") for case in SEGMENTS), ("offset 3", "reference")]
)
def test_L9_segments_that_run_again_give_the_same_bits(case: str, kind: str) -> None:
    whole = results_of(planned(7, kind, **CASES[case]))
    for length in SEGMENTS[case]:
        plan = planned(7, kind, {"segment": length}, **CASES[case])
        assert_same_bits(whole, results_of(plan))


def test_a_symbol_is_read_back_from_json() -> None:
    symbol = network(offset=2, drops=True)
    again = load_json(symbol.tojson())
    assert again.tojson() == symbol.tojson()
    assert again.list_arguments() == symbol.list_arguments()
    inputs = specs(3, 2)
    first, second = (plan_of(each, inputs, WEIGHTS) for each in (symbol, again))
    assert_same_bits(results_of(first), results_of(second))


def kept(plan: Plan) -> int:
    """Return the bytes that the forward loop hands to the backward loop for all steps."""
    phase = plan.phases[TRAIN]
    (step,) = (step for step in phase.steps if step.name == "rnn")
    names = [(phase.graph.values[value].name, value) for value in step.writes]
    return sum(phase.graph.spec(value).nbytes for name, value in names if "/" in name)


def bodies(plan: Plan) -> list[PhasePlan]:
    """Return the plans of the bodies of all loops, of all depths."""
    found, waiting = [], [plan.phases[TRAIN]]
    while waiting:
        for step in waiting.pop().steps:
            if isinstance(step.kernel, LoopKernel):
                found.append(step.kernel.body)
                waiting.append(step.kernel.body)
    return found


def test_L14_cheap_activations_of_steps_are_dropped_and_others_released_early() -> None:
    plain = planned(7)
    whole = results_of(plain)
    dropping = planned(7, options={"drop_cheap": True})
    assert kept(dropping) < kept(plain)
    repeated = {step.repeats for body in bodies(dropping) for step in body.steps if step.repeats}
    assert "t" in repeated
    assert not any("of_x" in (name or "") for name in repeated)
    assert_same_bits(whole, results_of(dropping))
    assert_same_bits(whole, results_of(dropping, poisoned=True))
    # Within an iteration a tensor's memory is reused as soon as it is dead.
    released = [
        max(body.live_bytes()) < sum(b.nbytes for b in body.blocks)
        for body in bodies(plain)
        if len(body.blocks) > 3
    ]
    assert any(released)


def test_L14_budgets_drop_cheap_activations_before_steps_run_again() -> None:
    plain = planned(100)
    budget = Budget(nbytes=plain.planned_bytes - 64)
    plan = planned(100, options={"budget": budget})
    recomputed = plan.phases[TRAIN].recomputed
    assert recomputed is not None
    assert "t" in recomputed.steps
    assert "rnn" not in recomputed.steps
    assert plan.planned_bytes < plain.planned_bytes
    assert_same_bits(results_of(plain), results_of(plan))
