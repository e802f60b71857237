"""Budgets of networks with recurrences: the length of the segments that run forward again.

Segments all cost one more forward run, whatever their length, so the first length that fits is
used: half of the steps, a quarter, and so on, down to about the square root of the number of steps,
beyond which the memories between segments grow faster than a segment shrinks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from mxrun.graph.cost import StepSeconds
from mxrun.graph.graph import Step
from mxrun.graph.infer import InferredSpecs
from mxrun.graph.recurrence.operator import RecurrenceProperty
from mxrun.graph.symbol import Symbol
from mxrun.planner.plan import PhasePlan, Plan, Recomputed
from mxrun.planner.remat.budget import Budget, OverBudget

# Plans a network with segments of a length, or without, and with a budget, or without.
Planner = Callable[[int | None, Budget | None], Plan]


def segment_lengths(symbol: Symbol, inference: InferredSpecs) -> list[int]:
    """Return the lengths of segments to try, the longest first; none without recurrences."""
    steps = max(
        (
            inference.spec(node.inputs[0]).shape[0]
            for node in symbol.nodes
            if isinstance(node.prop, RecurrenceProperty) and not node.prop.parameters.unroll
        ),
        default=1,
    )
    lengths, length = [], -(-steps // 2)
    while length > 1 and 4 * length * length >= steps:
        lengths.append(length)
        length = -(-length // 2)
    return lengths


def fit_in_segments(
    planner: Planner, lengths: list[int], budget: Budget, machine_seconds: StepSeconds
) -> Plan:
    """Return a plan within a budget: without segments if that fits, else with.

    With `budget.least`, the plan with the least memory. Raises OverBudget if none fits.
    """
    try:
        whole = planner(None, budget)
        if not (budget.least and lengths):
            return whole
    except OverBudget as error:
        if not lengths:
            raise
        smallest = error
    plain = planner(None, None)
    if budget.least:
        plans = [whole, *(_marked(planner(n, budget), plain, machine_seconds) for n in lengths)]
        return min(plans, key=lambda plan: plan.planned_bytes)
    limit = plain.pinned_bytes + budget.reusable_bytes(plain.phases, plain.pinned_bytes)
    for length in lengths:
        try:
            found = planner(length, replace(budget, nbytes=limit))
            return _marked(found, plain, machine_seconds)
        except OverBudget as error:
            if error.least_bytes < smallest.least_bytes:
                smallest = error
    raise smallest


def _marked(plan: Plan, plain: Plan, seconds: StepSeconds) -> Plan:
    """Return the plan with the recurrences among the recomputed steps of training."""
    phases = {
        name: _with_segments(phase, plain.phases[name], seconds) if phase.graph.is_train else phase
        for name, phase in plan.phases.items()
    }
    return replace(plan, phases=phases)


def _with_segments(phase: PhasePlan, plain: PhasePlan, seconds: StepSeconds) -> PhasePlan:
    repeated = [step for step in plain.steps if _is_repeated(step, plain)]
    known = phase.recomputed or Recomputed((), 0, sum(map(seconds, plain.steps)), 0.0)
    recomputed = replace(
        known,
        steps=(*known.steps, *(step.name for step in repeated)),
        plain_bytes=plain.reusable_bytes,
        extra_s=known.extra_s + sum(map(seconds, repeated)),
    )
    return replace(phase, recomputed=recomputed)


def _is_repeated(step: Step, phase: PhasePlan) -> bool:
    """Return whether a step is the forward loop of a recurrence that is trained."""
    is_loop = step.loop is not None and step.forward is None
    return is_loop and any(other.forward == step.name for other in phase.steps)
