"""Budgets of networks with recurrences: what the steps of a recurrence compute again in backward.

If all that backward reads does not fit, cheap outputs of the steps are computed again. Then only
the memories of every so many steps are kept, and segments run forward again. Segments all cost one
more forward run, whatever their length, so the first length that fits is used: half of the steps, a
quarter, and so on, down to about the square root of the number of steps, beyond which the memories
between segments grow faster than a segment shrinks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Protocol

from mxrun.graph.cost import StepSeconds
from mxrun.graph.graph import Step
from mxrun.graph.infer import InferredSpecs
from mxrun.graph.recurrence.operator import RecurrenceProperty
from mxrun.graph.symbol import Symbol
from mxrun.planner.plan import LoopKernel, PhasePlan, Plan, Recomputed
from mxrun.planner.remat.budget import Budget, OverBudget


class Planner(Protocol):
    """Function that plans a network."""

    def __call__(
        self, budget: Budget | None, segment: int | None = None, cheap: bool = False
    ) -> Plan:
        """Return a plan; segment, cheap: as `segment` and `drop_cheap` of a CompileRequest.

        Raises OverBudget.
        """


def segment_lengths(symbol: Symbol, inference: InferredSpecs) -> list[int | None]:
    """Return the lengths of segments to try, the longest first, after none at all.

    The list is empty without recurrences.
    """
    steps = [
        node.prop.count([*map(inference.spec, node.argument_entries())])
        for node in symbol.nodes
        if isinstance(node.prop, RecurrenceProperty) and not node.prop.parameters.unroll
    ]
    if not steps:
        return []
    lengths: list[int | None] = [None]
    length = -(-max(steps) // 2)
    while length > 1 and 4 * length * length >= max(steps):
        lengths.append(length)
        length = -(-length // 2)
    return lengths


def fit_in_segments(
    planner: Planner, lengths: Sequence[int | None], budget: Budget, seconds: StepSeconds
) -> Plan:
    """Return a plan within a budget: one that computes nothing again in loops if that fits.

    With `budget.least`, the plan with the least memory. Raises OverBudget if none fits.
    """
    try:
        whole = planner(budget)
        if not (budget.least and lengths):
            return whole
    except OverBudget as error:
        if not lengths:
            raise
        smallest = error
    plain = planner(None)
    if budget.least:
        plans = (planner(budget, length, True) for length in lengths)
        marked = (_marked(plan, plain, seconds) for plan in plans)
        return min((whole, *marked), key=lambda plan: plan.planned_bytes)
    limit = plain.pinned_bytes + budget.reusable_bytes(plain.phases, plain.pinned_bytes)
    for length in lengths:
        try:
            return _marked(planner(replace(budget, nbytes=limit), length, True), plain, seconds)
        except OverBudget as error:
            if error.least_bytes < smallest.least_bytes:
                smallest = error
    raise smallest


def _marked(plan: Plan, plain: Plan, seconds: StepSeconds) -> Plan:
    """Return the plan with what its loops compute again among the recomputed steps."""
    phases = {
        name: _with_loops(phase, plain.phases[name], seconds) if phase.graph.is_train else phase
        for name, phase in plan.phases.items()
    }
    return replace(plan, phases=phases)


def _with_loops(phase: PhasePlan, plain: PhasePlan, seconds: StepSeconds) -> PhasePlan:
    known = phase.recomputed or Recomputed((), 0, sum(map(seconds, plain.steps)), 0.0)
    again = dict(_repeated(phase, seconds))
    for step in plain.steps:
        if _runs_again(step, phase, plain):
            again[step.name] = seconds(step)
    recomputed = replace(
        known,
        steps=(*known.steps, *again),
        plain_bytes=plain.reusable_bytes,
        extra_s=known.extra_s + sum(again.values()),
    )
    return replace(phase, recomputed=recomputed)


def _repeated(
    phase: PhasePlan, seconds: StepSeconds, times: int = 1
) -> Iterator[tuple[str, float]]:
    """Yield the steps that loops repeat, and their seconds in all iterations."""
    for step in phase.steps:
        kernel = step.kernel
        if isinstance(kernel, LoopKernel) and step.loop is not None:
            yield from _repeated(kernel.body, seconds, times * step.loop.count)
        elif step.repeats is not None and times > 1 and not step.is_view:
            yield step.repeats, times * seconds(step)


def _runs_again(step: Step, phase: PhasePlan, plain: PhasePlan) -> bool:
    """Return whether a step is the forward loop of a recurrence that runs in segments."""
    if step.loop is None or step.forward is not None:
        return False
    new = next((other for other in phase.steps if other.name == step.name), None)
    is_trained = any(other.forward == step.name for other in plain.steps)
    return is_trained and new is not None and _loop_depth(new) > _loop_depth(step)


def _loop_depth(step: Step) -> int:
    """Return how deep the loops within a step are nested."""
    if not isinstance(step.kernel, LoopKernel):
        return 0
    return 1 + max(map(_loop_depth, step.kernel.body.steps), default=0)
