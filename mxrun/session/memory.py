"""`inspect-memory`: a plan without data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from mxrun.graph.plan import Plan
from mxrun.session.build import load, plan_for


@dataclass(frozen=True)
class MemoryReport:
    """What a run's arena would hold; every figure in bytes counts the whole arena."""

    name: str
    phase: str
    plan: Plan

    def to_json(self) -> dict[str, Any]:
        """The report for machines."""
        plan = self.plan
        return {
            "planned_bytes": plan.planned_bytes,
            "lower_bound_bytes": plan.lower_bound_bytes,
            "naive_bytes": plan.naive_bytes,
            "in_place_only_bytes": plan.in_place_only_bytes,
            "proved_optimal": plan.proved_optimal,
            "classes": {name: asdict(figures) for name, figures in plan.classes().items()},
            "hints": [asdict(hint) for phase in plan.phases.values() for hint in phase.hints],
            "planning_ms": plan.planning_ms,
        }


def inspect_memory(
    path: str | Path,
    overrides: Sequence[str] = (),
    phase: str = "train",
    batch: int | None = None,
    threads: int | None = None,
) -> MemoryReport:
    """Plan a run without data; `phase` is train (which evaluates too) or infer."""
    built = load(path, overrides, batch)
    plan = plan_for(built, training=phase == "train", threads=threads)
    return MemoryReport(built.config.name, phase, plan)
