"""Least cost of a plan's step: its launches, bytes and operations, by operator."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import asdict
from functools import partial
from typing import Any

from mxrun.base.dataclass import dataclass
from mxrun.base.machine import Machine
from mxrun.device.interface import Device
from mxrun.executor.bind import placed_steps
from mxrun.graph.cost import cost_of, traffic_of
from mxrun.operator.launch import Handle, Launch, Repeat, runs_python
from mxrun.planner.plan import Plan


@dataclass(frozen=True)
class StepFigures:
    """Figures of some steps of a plan.

    launches: of kernels and of bodies in NumPy, of which `host_bodies` are the latter. bytes: each
    tensor of an operator read and written once. floor_ms: for each operator its bytes, its
    operations or its launches, whichever takes longest; the other times are those of one of them
    alone.
    """

    what: str
    launches: int
    host_bodies: int
    bytes: int
    flops: int
    memory_ms: float
    compute_ms: float
    launch_ms: float
    floor_ms: float


def step_figures(plan: Plan, phase: str, device: Device, peaks: Machine) -> dict[str, Any]:
    """Return the figures of one step of a phase as JSON, with those of each operator.

    device: on which nothing is allocated or run.
    """
    planned, memory = plan.phases[phase], device.unbacked(plan.planned_bytes)
    bound = placed_steps(planned, planned.steps, device, partial(Handle, memory))
    groups: dict[str, list[StepFigures]] = defaultdict(list)
    for step, placed in zip(planned.steps, bound, strict=True):
        kernel = step.kernel
        assert kernel is not None
        launches = sum(map(_count, placed.launches))
        if not launches:
            continue
        cost = cost_of(step, traffic_of(step, planned.offsets), peaks, launches * peaks.loop_s)
        operator = "reorder" if step.prop is None else step.prop.type_string
        what = operator if step.kind.value == operator else f"{operator} {step.kind.value}"
        groups[what].append(
            StepFigures(
                what=what,
                launches=launches,
                host_bodies=sum(_count(each) for each in placed.launches if runs_python(each)),
                bytes=kernel.bytes_moved,
                flops=kernel.flops,
                memory_ms=cost.memory_s * 1e3,
                compute_ms=cost.compute_s * 1e3,
                launch_ms=cost.overhead_s * 1e3,
                floor_ms=cost.bound_s * 1e3,
            )
        )
    sums = [_sum(what, rows) for what, rows in groups.items()]
    return {
        "phase": phase,
        "machine": peaks.to_json(),
        "total": asdict(_sum("total", sums)),
        "operators": [asdict(row) for row in sorted(sums, key=lambda row: -row.floor_ms)],
    }


def _count(launch: Launch) -> int:
    """Return the number of launches of kernels or bodies."""
    if isinstance(launch, Repeat):
        return launch.count * sum(map(_count, launch.program))
    return 1


def _sum(what: str, rows: Iterable[StepFigures]) -> StepFigures:
    each = [asdict(row) for row in rows]
    names = [name for name in StepFigures.__dataclass_fields__ if name != "what"]
    return StepFigures(what=what, **{name: sum(row[name] for row in each) for name in names})
