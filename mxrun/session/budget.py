"""`memory.budget`: what a plan is asked for, and what fitting into it came to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mxrun.executor.executor import Executor
from mxrun.frontend import ModelDefinition
from mxrun.graph.phases import TRAIN
from mxrun.planner.plan import Plan
from mxrun.planner.remat.budget import Budget
from mxrun.runtime.machine import known_machine

# Enough for a mean, and little beside a run.
_MEASURED_STEPS = 5


def budgeted(built: ModelDefinition, training: bool, threads: int) -> dict[str, Any]:
    """What a config's budget adds to a request for a plan; nothing where it has none.

    A share is of what training needs, and says nothing of inference.
    """
    asked = built.config.memory.budget
    if asked is None or (asked.nbytes is None and not training):
        return {}
    place = built.config.place("memory", "budget")
    budget = Budget(asked.nbytes, asked.share, place=place)
    # In how many parts batches are computed changes bits, and must not depend on what was measured.
    measured = training and not built.config.memory.micro_batches
    return {"budget": budget, "machine": known_machine(threads) if measured else None}


def budget_figures(plan: Plan) -> dict[str, Any]:
    """The budget and what backward computes again for it, for machines; by phase."""
    return {
        "budget_bytes": plan.budget_bytes,
        "recompute": {
            name: {
                "steps": list(phase.recomputed.steps),
                "plain_bytes": plan.pinned_bytes + phase.recomputed.plain_bytes,
                "extra_ms": phase.recomputed.extra_s * 1e3,
                "extra": phase.recomputed.extra,
            }
            for name, phase in plan.phases.items()
            if phase.recomputed is not None
        },
    }


def measured_recompute(executor: Executor, say: Callable[[str], None]) -> dict[str, Any] | None:
    """What running steps again takes: as predicted, and measured in a few training steps more.

    They change what is learned: for a run that is over, with everything saved; `say` hears of
    them. None where nothing runs again. Fractions are of what the other steps take.
    """
    made = executor.plan.phases[TRAIN].recomputed
    if made is None:
        return None
    say(
        f"memory.budget: {_MEASURED_STEPS} steps more measure what running steps again takes; "
        "nothing of them is kept"
    )
    profile = executor.profile(TRAIN)
    for _ in range(_MEASURED_STEPS):
        profile.run()
    repeated = {s.name for s in executor.plan.phases[TRAIN].steps if s.repeats is not None}
    times = {operator.name: operator.ms for operator in profile.operators()}
    again = sum(ms for name, ms in times.items() if name in repeated)
    measured = again / (sum(times.values()) - again)
    say(
        f"memory.budget: running {len(made.steps)} steps again took {measured:.1%} longer, "
        f"{made.extra:.1%} were predicted"
    )
    return {
        "steps": len(made.steps),
        "predicted_extra": made.extra,
        "measured_extra": measured,
    }


def budget_notes(plan: Plan) -> list[str]:
    """What a person should know of a plan that a budget changed."""
    phase = plan.phases.get(TRAIN)
    if phase is None or phase.recomputed is None:
        return []
    made = phase.recomputed
    return [
        f"memory.budget: {plan.pinned_bytes + made.plain_bytes:,} bytes would be needed, "
        f"{plan.planned_bytes:,} are planned: backward runs {len(made.steps)} steps again, "
        f"which will probably take {made.extra:.1%} longer"
    ]
