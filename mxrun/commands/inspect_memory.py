"""Implementation of `inspect-memory`: a plan without data, its peak, memory outside the arena."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

from mxrun.base.device import CUDA, GPU
from mxrun.base.errors import Diagnostic, UserError
from mxrun.base.files import check_outputs
from mxrun.config import Parsed, RunOptions
from mxrun.config.bundled import find_config
from mxrun.device.interface import Device
from mxrun.device.registry import recorded_device
from mxrun.executor.bind import bind
from mxrun.executor.step_figures import step_figures
from mxrun.frontend import ModelDefinition, build
from mxrun.generation.network import language_model, plan_generation
from mxrun.graph.phases import EVALUATE, GENERATE, TRAIN
from mxrun.inspection.memory_report import MemoryReport, memory_report
from mxrun.inspection.what_if import WhatIfRequest, what_if
from mxrun.operator.native_kernel import Addition, add_loop
from mxrun.options.inspect_memory import InspectOptions
from mxrun.options.shared import MAX
from mxrun.planner.plan import Plan
from mxrun.preparation.device import open_device
from mxrun.preparation.max_batch_size import max_batch_size
from mxrun.preparation.micro_batches import Planned, planned
from mxrun.preparation.notes import Notify, ignore_note, notify_once
from mxrun.preparation.planning import parse_config, trust_plugins
from mxrun.preparation.prepared import preparing
from mxrun.runtime.memory_limits import remaining_bytes
from mxrun.runtime.resident import resident_bytes
from mxrun.train.run_directory import CONFIG_FILE, config_of

# Number of elements for which every thread is worthwhile.
_MANY = 1 << 62


def inspect_configs(options: InspectOptions, notify: Notify = ignore_note) -> list[MemoryReport]:
    """Plan the runs of a config and, if there is one, of `--diff`, with equal options.

    notify: receives notes about long waits. Raises UserError, before planning, for output files
    that cannot be written or are one of the configs.
    """
    names = [name for name in (options.config, options.diff) if name is not None]
    paths = [_run_or_config(name) for name in names]
    if options.allow_plugins:
        for path in paths:
            trust_plugins(path, options.overrides)
    check_outputs(dict.fromkeys(map(config_of, paths), "CONFIG"), options.files)
    notify = notify_once(notify)
    with _device(options):
        return _reports(names, paths, options, notify)


def _device(options: InspectOptions) -> AbstractContextManager[None]:
    """Return the context manager in which `gpu` is the card that is planned for."""
    card = options.device_properties
    return nullcontext() if card is None else recorded_device(GPU, card)


def _reports(
    names: Sequence[str], paths: Sequence[Path], options: InspectOptions, notify: Notify
) -> list[MemoryReport]:
    """Return the report on each config."""
    if options.diff is None:
        return [inspect_memory(paths[0], options, notify, options.device_properties is None)]
    reports = []
    for name, path in zip(names, paths, strict=True):
        try:
            # Memory outside the plan is measured for one network only: the kernels of a second one
            # would already be bound in this process.
            reports.append(inspect_memory(path, options, notify, measured=False))
        except UserError as error:
            first, *others = error.diagnostics
            chain = (f"{name} is planned", *first.chain)
            raise UserError([replace(first, chain=chain), *others]) from error
    return reports


def _run_or_config(name: str) -> Path:
    """Return the path of a run's folder, or of a config."""
    folder = Path(name)
    return folder if (folder / CONFIG_FILE).is_file() else find_config(name)


def inspect_memory(
    path: str | Path,
    options: InspectOptions,
    notify: Notify = ignore_note,
    measured: bool = True,
) -> MemoryReport:
    """Plan the run of a config without data.

    notify: receives notes about long waits. measured: also measure the memory outside the arena,
    for which all kernels are bound.
    """
    parsed = parse_config(path, options.overrides)
    kind = parsed.devices[0][0] if parsed.devices else GPU
    if options.device_properties is not None and kind != GPU:
        problem = f"--device-properties describes a card, and the context of {path} is {kind}"
        raise UserError(Diagnostic(problem, hint=f"add context={GPU}"))
    if options.phase == GENERATE:
        return _generation_memory(parsed, options, notify, measured)
    return _planned_memory(parsed, options, notify, measured)


def _planned_memory(
    parsed: Parsed, options: InspectOptions, notify: Notify, measured: bool
) -> MemoryReport:
    phase, threads = options.phase or "train", options.threads
    training = phase == "train"
    built = build(parsed, max_batch_size(options.batch, parsed, training, threads, notify))
    if options.ranks is not None:
        built = _on_ranks(built, options.ranks)
    if options.what_if and built.options.memory.micro_batches:
        raise UserError(
            Diagnostic(
                "--what-if does not support micro-batches",
                place=built.options.place("memory", "micro_batches"),
                hint="add memory.micro_batches=false",
            )
        )
    with preparing(built.options, notify):
        run = planned(built, training, threads, notify)
        if options.what_if:
            notify(
                "--what-if plans other settings, which takes about ten times as long as this plan"
            )
        device = open_device(run.built.options, run.plan.device)
        # What the CPU can do is not known before it is measured.
        peaks = device.known_peaks() if run.plan.device.family == CUDA else None
        phases = [name for name in (TRAIN, EVALUATE) if name in run.plan.phases]
        what_if_request = WhatIfRequest(parsed, training, threads, run.built, run.plan)
        return replace(
            memory_report(run, phase),
            outside=outside_bytes(run.built.options, run.plan, notify) if measured else {},
            what_if=what_if(what_if_request) if options.what_if else None,
            step=None if peaks is None else step_figures(run.plan, phases[0], device, peaks),
        )


def _on_ranks(built: ModelDefinition, count: int) -> ModelDefinition:
    """Return the run of one of several ranks. Raises UserError if that many cannot train it."""
    if not built.options.is_distributed:
        raise UserError(
            Diagnostic(
                f"--ranks is for several processes, but kvstore: {built.options.kvstore} is for "
                "one",
                built.options.place("kvstore"),
                hint="add kvstore=dist_sync",
            )
        )
    return built.on_ranks(count)


def _generation_memory(
    parsed: Parsed, options: InspectOptions, notify: Notify, measured: bool
) -> MemoryReport:
    """Plan the generation of one text, or of `batch` texts; length: by default the context."""
    if options.batch == MAX:
        raise UserError(Diagnostic("--batch max has no meaning for text", hint="--batch N"))
    rows = options.batch or 1
    built = build(parsed, rows)
    with preparing(built.options, notify):
        positions = options.length or language_model(built).context
        plan = plan_generation(built, rows, positions, options.threads, notify=notify).plan
        report = memory_report(Planned(built, plan, plan.planned_bytes), GENERATE)
        outside = outside_bytes(built.options, plan, notify) if measured else {}
    # Text is generated on one context.
    return replace(report, contexts=1, batch_size=rows, outside=outside)


def thread_figures(before: int, after: int) -> dict[str, int]:
    """Return the bytes that the start of threads added, and the total, from resident bytes.

    If pages were freed meanwhile, `after` may be less than `before`: the threads' part is then too
    small to be measured and counts as 0.
    """
    threads_bytes = max(after - before, 0)
    return {"threads_bytes": threads_bytes, "total_bytes": before + threads_bytes}


def outside_bytes(options: RunOptions, plan: Plan, notify: Notify = ignore_note) -> dict[str, Any]:
    """Bind the plan's kernels without an arena, start the threads, and measure this process.

    A run additionally holds the records of its data, and Python's allocations while it runs.
    """
    device, index = open_device(options, plan.device), plan.device.index
    memory = device.unbacked(plan.planned_bytes)
    own = [device.memory_bytes(index)]
    programs = [bind(phase, device, memory) for phase in plan.phases.values()]
    own.append(device.memory_bytes(index))
    # An empty loop, which starts the pool's threads with their stacks.
    nothing = Addition(count=0, source=None, target=None)
    start_threads = device.host_loop(add_loop, nothing, _MANY)
    # The first measurement itself allocates memory.
    resident_bytes()
    before = resident_bytes()
    start_threads()
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
        **thread_figures(before.total, after.total),
        # The compiler's memory is never freed; later processes find its results in the cache.
        "compiler_ran": "mxrun.codegen.sequential.compiler" in sys.modules,
        "temporary_bytes": _temporary_bytes(device, plan, notify),
        "device": _device_figures(*own),
    }


def _device_figures(
    before: tuple[int, int] | None, after: tuple[int, int] | None
) -> dict[str, int] | None:
    """Return what is outside the plan in a device's own memory, from its free and all bytes.

    before, after: binding. occupied_bytes: by the driver for this process, and by other programs.
    programs_bytes: by the bound programs. None for a device in the host's memory.
    """
    if before is None or after is None:
        return None
    return {"occupied_bytes": before[1] - before[0], "programs_bytes": before[0] - after[0]}


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
