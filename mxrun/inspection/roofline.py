"""Roofline for `bench`: each operator's time against its floor, and the step against their sum."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

import numpy as np

from mxrun.base.dataclass import dataclass
from mxrun.base.machine import Machine
from mxrun.executor.executor import Executor
from mxrun.graph.cost import Cost, cost_of, traffic_of
from mxrun.graph.graph import MemoryClass, Step
from mxrun.runtime.profiler import Event

# Number of operator groups reported as those with the largest gain.
_MAX_GROUPS = 3


@dataclass(frozen=True)
class OperatorFloor:
    """Step of the plan with its median time in seconds and its cost."""

    step: Step
    seconds: float
    cost: Cost

    @property
    def savings_s(self) -> float:
        """Seconds above the floor."""
        return max(0.0, self.seconds - self.cost.floor_s)

    def to_json(self) -> dict[str, Any]:
        """Return the figures as JSON; `of_bound` is bound / time, 1 at best."""
        return {
            "name": self.step.name,
            "op": _operator(self.step),
            "phase": self.step.kind.value,
            "ms": self.seconds * 1e3,
            "floor_ms": self.cost.floor_s * 1e3,
            "compute_ms": self.cost.compute_s * 1e3,
            "memory_ms": self.cost.memory_s * 1e3,
            "overhead_ms": self.cost.overhead_s * 1e3,
            "bound": self.cost.bound.value,
            "of_bound": self.cost.bound_s / self.seconds,
            "predicted_ms": self.cost.predicted_s * 1e3,
        }


@dataclass(frozen=True)
class Excess:
    """Potential gain of all steps of one operator in one phase.

    savings_ms: their time above their floors; savings: as a fraction of `Roofline.total_s`.
    """

    op: str
    phase: str
    steps: int
    ms: float
    floor_ms: float
    savings_ms: float
    savings: float


@dataclass(frozen=True)
class Roofline:
    """Operators of one phase with their floors, and the step with the sum of the floors.

    batch_s: minimum time to copy a batch into the plan. step_s: median time of a complete step.
    """

    machine: Machine
    operators: tuple[OperatorFloor, ...]
    batch_s: float
    step_s: float

    @property
    def operators_s(self) -> float:
        """Sum of the operators' times in profiled steps."""
        return sum(operator.seconds for operator in self.operators)

    @property
    def reference_s(self) -> float:
        """Denominator of fractions: the larger of the step's time and the operators' sum.

        Profiled steps and timed steps are different ones; other processes may have slowed either.
        """
        return max(self.step_s, self.operators_s)

    @property
    def floor_s(self) -> float:
        """Sum of the floors of the operators and of a batch."""
        return self.batch_s + sum(operator.cost.floor_s for operator in self.operators)

    @property
    def predicted_s(self) -> float:
        """Sum of the operators' predicted times and of a batch's floor."""
        return self.batch_s + sum(operator.cost.predicted_s for operator in self.operators)

    def to_json(self) -> dict[str, Any]:
        """Return the roofline as JSON.

        The fields `of_floor` and `error` are fractions of the measured step; `savings` is one
        of `total_ms`, the larger of the step's time and the operators' sum in profiled steps.
        """
        return {
            "machine": self.machine.to_json(),
            "operators": [operator.to_json() for operator in self.operators],
            "step": {
                "ms": self.step_s * 1e3,
                "operators_ms": self.operators_s * 1e3,
                "total_ms": self.reference_s * 1e3,
                "batch_floor_ms": self.batch_s * 1e3,
                "floor_ms": self.floor_s * 1e3,
                "of_floor": self.floor_s / self.step_s,
                "predicted_ms": self.predicted_s * 1e3,
                "error": self.predicted_s / self.step_s - 1,
            },
            "largest_excesses": [asdict(excess) for excess in self.largest_excesses()],
            "disturbed": self.machine.disturbed,
        }

    def largest_excesses(self) -> list[Excess]:
        """Return the groups of operators with the most time above their floors."""
        groups: dict[tuple[str, str], list[OperatorFloor]] = defaultdict(list)
        for operator in self.operators:
            groups[_operator(operator.step), operator.step.kind.value].append(operator)
        found = [
            Excess(
                op=op,
                phase=phase,
                steps=len(group),
                ms=sum(operator.seconds for operator in group) * 1e3,
                floor_ms=sum(operator.cost.floor_s for operator in group) * 1e3,
                savings_ms=(savings_s := sum(operator.savings_s for operator in group)) * 1e3,
                savings=savings_s / self.reference_s,
            )
            for (op, phase), group in groups.items()
        ]
        return sorted(found, key=lambda excess: -excess.savings_ms)[:_MAX_GROUPS]


def roofline(
    executor: Executor, phase: str, calls: Iterable[Event], step_s: float, machine: Machine
) -> Roofline:
    """Compare the profiled `calls` of a phase with their minimum costs."""
    seconds = _medians(calls)
    overheads = executor.programs[phase].overheads(machine)
    plan = executor.plan
    planned = plan.phases[phase]
    operators = tuple(
        OperatorFloor(
            step,
            seconds[step.name],
            cost_of(step, traffic_of(step, planned.offsets), machine, overheads[step.name]),
        )
        for step in planned.steps
        if step.name in seconds
    )
    batch = sum(block.nbytes for block in plan.pinned if block.memory_class is MemoryClass.IO)
    return Roofline(machine, operators, machine.seconds_to_move(batch, batch), step_s)


def _medians(calls: Iterable[Event]) -> dict[str, float]:
    """Return the seconds of each operator's calls in one step, as the median over steps."""
    by_step: dict[str, dict[Any, int]] = defaultdict(lambda: defaultdict(int))
    for call in calls:
        by_step[call.name][call.arguments["step"]] += call.duration_ns
    return {
        # The clock may not advance within a short call.
        name: max(1.0, float(np.median(list(times.values())))) / 1e9
        for name, times in by_step.items()
    }


def _operator(step: Step) -> str:
    assert step.prop is not None
    return step.prop.type_string
