"""Implementation of `inspect-memory`: a plan without data, its peak, memory outside the arena."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from mxrun.base.errors import Diagnostic, UserError
from mxrun.base.files import check_outputs
from mxrun.config import Parsed, RunConfig
from mxrun.config.bundled import find_config
from mxrun.device.interface import Device
from mxrun.executor.bind import bind
from mxrun.frontend import build
from mxrun.operator.native_kernel import Addition, add_loop
from mxrun.planner.allocator.free_list import free_list_bytes
from mxrun.planner.explain import LiveTensor, block_lifetimes, live_tensors, pinned_tensors
from mxrun.planner.hint import CONCAT_IN_PLACE
from mxrun.planner.plan import PhasePlan, Plan
from mxrun.runtime.memory_limits import remaining_bytes
from mxrun.runtime.resident import resident_bytes
from mxrun.session.budget import budget_figures
from mxrun.session.device import host_loops, open_device
from mxrun.session.max_batch_size import BatchSize, max_batch_size
from mxrun.session.micro_batches import planned
from mxrun.session.notes import Notify, ignore_note, note_missing_library, notify_once
from mxrun.session.planning import parse_config, trust_plugins
from mxrun.session.what_if import WhatIfRequest, what_if

# Number of elements for which every team is worthwhile.
_MANY = 1 << 62


@dataclass(frozen=True)
class InspectRequest:
    """Options of an inspection.

    phase: train (including evaluation) or infer. batch, threads: replace the config's. diff: a
    config to compare with. what_if: also plan other settings. outputs: by option, the files that
    the caller will write. allow_plugins: trust the configs' plugins, from now on.
    """

    phase: str = "train"
    batch: BatchSize | None = None
    threads: int | None = None
    diff: str | None = None
    what_if: bool = False
    outputs: Mapping[str, Path | None] = field(default_factory=dict)
    allow_plugins: bool = False


@dataclass(frozen=True)
class MemoryReport:
    """Memory of a run's plan; all figures in bytes refer to the entire arena.

    micro_batches: number of micro-batches per batch. outside: resident bytes by kind of a process
    that is ready to run the plan but has no arena; empty if the system does not report them, or if
    they were not requested. what_if: effects of other settings; None if they were not requested.
    """

    name: str
    phase: str
    batch_size: int
    micro_batches: int
    plan: Plan
    outside: Mapping[str, Any]
    what_if: Mapping[str, Any] | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the report as JSON."""
        plan = self.plan
        return {
            "name": self.name,
            "phase": self.phase,
            "planned_bytes": plan.planned_bytes,
            "lower_bound_bytes": plan.lower_bound_bytes,
            "gap_bytes": plan.planned_bytes - plan.lower_bound_bytes,
            "fragmentation": self._fragmentation(),
            "naive_bytes": plan.naive_bytes,
            "in_place_only_bytes": plan.in_place_only_bytes,
            "free_list_bytes": self._free_list_bytes(),
            "proved_bytes": plan.proved_bytes,
            "proved_optimal": plan.proved_optimal,
            "classes": {name: asdict(figures) for name, figures in plan.classes().items()},
            "hints": [hint for phase in plan.phases.values() for hint in _hints(phase)],
            "planning_ms": plan.planning_ms,
            "order": {name: phase.order for name, phase in plan.phases.items()},
            "any_order_bytes": plan.any_order_bytes,
            "batch_size": self.batch_size,
            "micro_batches": self.micro_batches,
            **budget_figures(plan),
            "peak": self._peak(),
            "timeline": self._timeline(),
            "pinned": self._pinned(),
            "blocks": self._blocks(),
            "outside": self.outside,
            "what_if": self.what_if,
        }

    def _peak(self) -> dict[str, Any]:
        """Return the peak step and its live tensors; first and last are steps, both inclusive."""
        phase = self.plan.largest_phase
        position = phase.peak_step()
        step = phase.steps[position]
        return {
            "phase": phase.name,
            "step": position,
            "operator": step.name,
            "title": step.title,
            "op": None if step.prop is None else step.prop.type_string,
            "bytes": self.plan.pinned_bytes + phase.live_bytes()[position],
            "live": [_lifetime(live) for live in live_tensors(phase, self.plan.pinned, position)],
        }

    def _fragmentation(self) -> float:
        """Return the relative excess of the arena over the lower bound."""
        bound = self.plan.lower_bound_bytes
        return self.plan.planned_bytes / bound - 1 if bound else 0.0

    def _free_list_bytes(self) -> int:
        """Return the size of the arena with a free list of blocks, as in MXNet."""
        sizes = (
            free_list_bytes(
                [block.nbytes for block in phase.blocks],
                [block.first for block in phase.blocks],
                [block.last for block in phase.blocks],
            )
            for phase in self.plan.phases.values()
        )
        return self.plan.pinned_bytes + max(sizes, default=0)

    def _pinned(self) -> list[dict[str, Any]]:
        """Return the blocks that are live during all phases."""
        return [_placed(live) for live in pinned_tensors(self.plan.largest_phase, self.plan.pinned)]

    def _blocks(self) -> dict[str, list[dict[str, Any]]]:
        """Return the reusable blocks by phase; first and last are steps, both inclusive.

        tensors: those that a block holds one after the other, with their steps.
        """
        return {
            name: [
                {**_lifetime(each.block), "tensors": [_held(live) for live in each.held]}
                for each in block_lifetimes(phase)
            ]
            for name, phase in self.plan.phases.items()
        }

    def _timeline(self) -> dict[str, Any]:
        """Return, by phase, the steps' names and the live bytes of the arena at each."""
        return {
            name: {
                "operators": [step.name for step in phase.steps],
                "bytes": [self.plan.pinned_bytes + live for live in phase.live_bytes()],
            }
            for name, phase in self.plan.phases.items()
        }


def _hints(phase: PhasePlan) -> Iterator[dict[str, Any]]:
    """Yield each opportunity to share memory with the bytes that it saves or would save."""
    sizes = {value.name: value.spec.nbytes for value in phase.graph.values}
    for hint in phase.hints:
        # For concat in place, the size of the slice and not of the parent buffer.
        yield asdict(hint) | {
            "bytes": sizes[hint.source if hint.kind == CONCAT_IN_PLACE else hint.target]
        }


def _placed(live: LiveTensor) -> dict[str, Any]:
    return {
        "tensor": live.tensor,
        "class": live.memory_class.value,
        "bytes": live.nbytes,
        "offset": live.offset,
        "reason": live.reason,
    }


def _lifetime(live: LiveTensor) -> dict[str, Any]:
    times = {"first": live.first, "last": live.last}
    return _placed(live) | times | {"root": live.root, "shared": list(live.shared)}


def _held(live: LiveTensor) -> dict[str, Any]:
    return {
        "tensor": live.tensor,
        "first": live.first,
        "last": live.last,
        "reason": live.reason,
        "shared": list(live.shared),
    }


def inspect_configs(
    config: str, overrides: Sequence[str], request: InspectRequest, notify: Notify = ignore_note
) -> list[MemoryReport]:
    """Plan the runs of a config and, if there is one, of `request.diff`, with equal options.

    notify: receives notes about long waits. Raises UserError, before planning, for output files
    that cannot be written or are one of the configs.
    """
    names = [config] if request.diff is None else [config, request.diff]
    paths = [find_config(name) for name in names]
    if request.allow_plugins:
        for path in paths:
            trust_plugins(path, overrides)
    check_outputs(dict.fromkeys(paths, "CONFIG"), request.outputs)
    notify = notify_once(notify)
    if request.diff is None:
        return [_inspected(paths[0], overrides, request, notify)]
    reports = []
    for name, path in zip(names, paths, strict=True):
        try:
            reports.append(_inspected(path, overrides, request, notify))
        except UserError as error:
            first, *others = error.diagnostics
            chain = (f"{name} is planned", *first.chain)
            raise UserError([replace(first, chain=chain), *others]) from error
    return reports


def _inspected(
    path: Path, overrides: Sequence[str], request: InspectRequest, notify: Notify
) -> MemoryReport:
    return inspect_memory(
        path,
        overrides,
        request.phase,
        request.batch,
        request.threads,
        notify,
        # Memory outside the plan is measured for one network only: the kernels of a second one
        # would already be bound in this process.
        measured=request.diff is None,
        changes=request.what_if,
    )


def inspect_memory(
    path: str | Path,
    overrides: Sequence[str] = (),
    phase: str = "train",
    batch: BatchSize | None = None,
    threads: int | None = None,
    notify: Notify = ignore_note,
    measured: bool = True,
    changes: bool = False,
) -> MemoryReport:
    """Plan a run without data; `phase` is train (including evaluation) or infer.

    notify: receives notes about long waits. measured: also measure the memory outside the arena,
    for which all kernels are bound. changes: also plan other settings.
    """
    parsed = parse_config(path, overrides)
    with host_loops(parsed.config):
        return _planned_memory(parsed, phase, batch, threads, notify, measured, changes)


def _planned_memory(
    parsed: Parsed,
    phase: str,
    batch: BatchSize | None,
    threads: int | None,
    notify: Notify,
    measured: bool,
    changes: bool,
) -> MemoryReport:
    training = phase == "train"
    built = build(parsed, max_batch_size(batch, parsed, training, threads, notify))
    if changes and built.config.memory.micro_batches:
        raise UserError(
            Diagnostic(
                "--what-if does not support micro-batches",
                place=built.config.place("memory", "micro_batches"),
                hint="add memory.micro_batches=false",
            )
        )
    note_missing_library(built.config, notify)
    run = planned(built, training, threads, notify)
    if changes:
        notify("--what-if plans other settings, which takes about ten times as long as this plan")
    what_if_request = WhatIfRequest(parsed, training, threads, run.built, run.plan)
    return MemoryReport(
        name=built.config.name,
        phase=phase,
        batch_size=built.batch_size,
        micro_batches=run.built.micro_batches,
        plan=run.plan,
        outside=outside_bytes(run.built.config, run.plan, notify) if measured else {},
        what_if=what_if(what_if_request) if changes else None,
    )


def team_figures(before: int, after: int) -> dict[str, int]:
    """Return the bytes that the team's start added, and the total, from resident bytes.

    If pages were freed meanwhile, `after` may be less than `before`: the team's part is then too
    small to be measured and counts as 0.
    """
    team_bytes = max(after - before, 0)
    return {"team_bytes": team_bytes, "total_bytes": before + team_bytes}


def outside_bytes(config: RunConfig, plan: Plan, notify: Notify = ignore_note) -> dict[str, Any]:
    """Bind the plan's kernels without an arena, start the team, and measure this process.

    A run additionally holds the records of its data, and Python's allocations while it runs.
    """
    device = open_device(config, plan.device)
    memory = device.unbacked(plan.planned_bytes)
    programs = [bind(phase, device, memory) for phase in plan.phases.values()]
    # An empty loop, which starts the team's threads with their stacks and heaps.
    nothing = Addition(count=0, source=None, target=None)
    start_team = device.host_loop(add_loop, nothing, _MANY)
    # The first measurement itself allocates memory.
    resident_bytes()
    before = resident_bytes()
    start_team()
    after = resident_bytes()
    del programs
    if before is None or after is None:
        return {}
    return {
        "libraries_bytes": sum(before.libraries.values()),
        "libraries": dict(sorted(before.libraries.items(), key=lambda item: (-item[1], item[0]))),
        "compiled_bytes": before.compiled,
        "heap_bytes": before.heap,
        "stack_bytes": before.stack,
        **team_figures(before.total, after.total),
        # The compiler's memory is never freed; later processes find its results in the cache.
        "compiler_ran": "mxrun.codegen.sequential.compiler" in sys.modules,
        "temporary_bytes": _temporary_bytes(device, plan, notify),
    }


def _temporary_bytes(device: Device, plan: Plan, notify: Notify) -> int | None:
    """Return the most bytes of temporaries outside the plan, by a run of each phase on zeros.

    None for a device whose programs allocate nothing, and for a plan that does not fit here.
    """
    if not device.makes_temporaries:
        return None
    if plan.planned_bytes > remaining_bytes():
        notify("temporaries are not measured: the arena does not fit into this process's memory")
        return None
    notify("a step of each phase runs once, to measure the temporaries of its operators")
    memory = device.allocate(plan.planned_bytes)
    return max(bind(phase, device, memory).temporary_bytes() for phase in plan.phases.values())
