"""Micro-batches (`memory.micro_batches`): plans of runs whose batches are computed in parts.

The number of parts depends on the config alone. Times are those of the fixed cost model and not of
this machine, so that the same config gives the same bits wherever the same kernels run.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from mxrun.base.dataclass import dataclass
from mxrun.compiler.compile import compile_plan
from mxrun.compiler.request import CompileRequest
from mxrun.frontend import ModelDefinition
from mxrun.graph.cost import StepSeconds
from mxrun.graph.phases import ACCUMULATE, TRAIN, UPDATE
from mxrun.planner.plan import Plan
from mxrun.planner.remat.budget import Budget, OverBudget, sufficient_share
from mxrun.preparation.notes import Notify, ignore_note
from mxrun.preparation.planning import AutotunedKernels, request_for

# Overhead of each step's calls on a few cores of a server; every micro-batch repeats it.
_CALL_S = 2e-6


@dataclass(frozen=True)
class Planned:
    """Plan of each context of a run, whose batches may be split into micro-batches.

    unsplit_bytes: bytes of the plan without micro-batches and recomputation.
    """

    built: ModelDefinition
    plan: Plan
    unsplit_bytes: int

    @property
    def planned_bytes(self) -> int:
        """Bytes of the arenas of all contexts."""
        return self.plan.planned_bytes * self.built.contexts


def planned(
    built: ModelDefinition,
    training: bool,
    threads: int | None = None,
    notify: Notify = ignore_note,
    autotuned: AutotunedKernels | None = None,
) -> Planned:
    """Return the plan of inference, or of training with micro-batches if the budget requires them.

    Training is planned for one of the config's contexts, all of which have the same plan.

    If unsplit batches fit without recomputation, they are used. Otherwise each number of
    micro-batches is planned, with recomputation, and the plan with the lowest predicted time is
    taken. notify: as for `plan_for`. autotuned: kernels to use again without timing. Raises
    OverBudget with the smallest arena found if none fits.
    """
    built = built.divided() if training else built
    try:
        return _planned(built, training, threads, notify, autotuned)
    except OverBudget as failure:
        if built.contexts == 1:
            raise
        (diagnostic,) = failure.diagnostics
        reason = f"each of the {built.contexts} contexts has an arena of its own with these figures"
        chained = replace(diagnostic, chain=(*diagnostic.chain, reason))
        raise OverBudget(chained, failure.least_bytes) from failure


def _planned(
    built: ModelDefinition,
    training: bool,
    threads: int | None,
    notify: Notify,
    autotuned: AutotunedKernels | None,
) -> Planned:
    def request(split: ModelDefinition) -> CompileRequest:
        return replace(request_for(split, training, threads, notify), autotuned=autotuned or {})

    first = request(built)
    budget = first.budget
    if not training or budget is None or not built.options.memory.micro_batches:
        plan = compile_plan(built.model.symbol, first)
        return Planned(built, plan, plan.planned_bytes)
    unsplit = compile_plan(built.model.symbol, replace(first, budget=None))
    limit = unsplit.pinned_bytes + budget.reusable_bytes(unsplit.phases, unsplit.pinned_bytes)
    if unsplit.planned_bytes <= limit:
        return Planned(built, replace(unsplit, budget_bytes=limit), unsplit.planned_bytes)
    within = replace(budget, nbytes=limit)
    found: dict[float, Planned] = {}
    failures: list[OverBudget] = []
    for parts in divisors(built.model.batch_size):
        split = built.with_micro_batches(parts)
        request_within = replace(request(split), budget=within)
        try:
            plan = compile_plan(split.model.symbol, request_within)
        except OverBudget as failure:
            failures.append(failure)
            continue
        # On equal times the smaller number of micro-batches is preferred.
        found.setdefault(_step_seconds(split, plan), Planned(split, plan, unsplit.planned_bytes))
        if all(phase.recomputed is None for phase in plan.phases.values()):
            # More micro-batches only take longer.
            break
    if not found:
        raise _smallest_failure(failures, unsplit, budget, built.model.batch_size)
    return found[min(found)]


def divisors(count: int) -> Iterator[int]:
    """Return the divisors of `count`, ascending."""
    return (part for part in range(1, count + 1) if count % part == 0)


def _step_seconds(built: ModelDefinition, plan: Plan) -> float:
    """Return the predicted seconds of a training step: all micro-batches, and the update."""
    seconds = StepSeconds(None)
    micro_batches = built.training.accumulate * built.micro_batches
    runs = {TRAIN: 1, ACCUMULATE: micro_batches - 1, UPDATE: built.updates_apart}
    return sum(
        count * sum(_CALL_S + seconds(step) for step in plan.phases[name].steps)
        for name, count in runs.items()
        if count
    )


def _smallest_failure(
    failures: list[OverBudget], unsplit: Plan, budget: Budget, batch_size: int
) -> OverBudget:
    """Return the failure with the smallest arena; for a share, the hint names a sufficient one."""
    failure = min(failures, key=lambda failure: failure.least_bytes)
    (diagnostic,) = failure.diagnostics
    tried = ", ".join(map(str, divisors(batch_size)))
    reason = f"each batch of {batch_size} was tried in {tried} micro-batches; none needs less"
    hint = "give it more memory"
    if budget.share is not None:
        required = failure.least_bytes - unsplit.pinned_bytes
        hint = sufficient_share(required, unsplit.reusable_bytes)
    return OverBudget(replace(diagnostic, chain=(reason,), hint=hint), failure.least_bytes)


def micro_batch_notes(run: Planned) -> list[str]:
    """Return notes for the user about micro-batches."""
    built = run.built
    if built.micro_batches == 1:
        return []
    return [
        f"memory.micro_batches: each batch of {built.batch_size // built.contexts} is computed as "
        f"{built.micro_batches} of {built.model.batch_size}: {run.plan.planned_bytes:,} bytes "
        f"instead of {run.unsplit_bytes:,}"
    ]
