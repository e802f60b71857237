"""Options of `memory.budget` for planning, and reports of the resulting recomputation."""

from __future__ import annotations

from typing import Any

from mxrun.base.device import DeviceDescription
from mxrun.frontend import ModelDefinition
from mxrun.graph.phases import TRAIN
from mxrun.planner.plan import Plan
from mxrun.planner.remat.budget import Budget
from mxrun.preparation.device import open_device


def budgeted(built: ModelDefinition, training: bool, device: DeviceDescription) -> dict[str, Any]:
    """Return the options of a compile request for the config's budget; empty without one.

    A share refers to the memory of training and is ignored for inference. Contexts that train
    together share a size equally.
    """
    configured = built.options.memory.budget
    if configured is None or (configured.nbytes is None and not training):
        return {}
    place = built.options.place("memory", "budget")
    nbytes = None if configured.nbytes is None else configured.nbytes // built.contexts
    budget = Budget(nbytes, configured.share, place=place)
    # The number of micro-batches changes bits, so it must not depend on measurements.
    measured = training and not built.options.memory.micro_batches
    machine = open_device(built.options, device).known_peaks() if measured else None
    return {"budget": budget, "machine": machine}


def budget_figures(plan: Plan, contexts: int) -> dict[str, Any]:
    """Return the budget and the recomputed steps by phase, as JSON; bytes are of all contexts."""
    return {
        "budget_bytes": None if plan.budget_bytes is None else contexts * plan.budget_bytes,
        "recompute": {
            name: {
                "steps": list(phase.recomputed.steps),
                "plain_bytes": contexts * (plan.pinned_bytes + phase.recomputed.plain_bytes),
                "extra_ms": phase.recomputed.extra_s * 1e3,
                "extra": phase.recomputed.extra,
            }
            for name, phase in plan.phases.items()
            if phase.recomputed is not None
        },
    }


def budget_notes(plan: Plan) -> list[str]:
    """Return notes for the user about a plan that a budget changed."""
    phase = plan.phases.get(TRAIN)
    if phase is None or phase.recomputed is None:
        return []
    recomputed = phase.recomputed
    return [
        f"memory.budget: {plan.pinned_bytes + recomputed.plain_bytes:,} bytes would be needed, "
        f"{plan.planned_bytes:,} are planned: backward runs {len(recomputed.steps)} steps again, "
        f"which will probably take {recomputed.extra:.1%} longer"
    ]
