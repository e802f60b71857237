"""Loading of a config and its planning, for all commands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from mxrun.base.device import DeviceDescription
from mxrun.base.fold_tree import partial_sums
from mxrun.base.keywords import AUTO
from mxrun.base.launcher import ranks_here
from mxrun.base.tensor import TensorSpec
from mxrun.compiler.compile import compile_plan
from mxrun.compiler.request import CompileRequest
from mxrun.config import ConfigSource, Overrides, Parsed, RunOptions, parse
from mxrun.frontend import ModelDefinition, build
from mxrun.graph.phases import ACCUMULATE, EVALUATE, TRAIN, UPDATE
from mxrun.io.loading.order import LastBatch
from mxrun.io.loading.staging import staging_specs
from mxrun.passes.autotune_candidates import Chooser
from mxrun.planner.plan import Plan
from mxrun.planner.remat.budget import Budget
from mxrun.preparation.budget import budgeted
from mxrun.preparation.device import describe, kind_of, open_device, with_device_checked
from mxrun.preparation.notes import Notify, ignore_note
from mxrun.preparation.plugins import load_plugins
from mxrun.train.run_directory import config_of


def load(
    path: str | Path,
    overrides: Sequence[str] = (),
    batch: int | None = None,
    needs_device: bool = True,
) -> ModelDefinition:
    """Load a config's plugins, read the config and build its model definition.

    needs_device: whether the config's device must be there. Raises UserError with all diagnostics.
    """
    return build(parse_config(path, overrides, needs_device), batch)


def parse_config(
    source: ConfigSource, overrides: Overrides = (), needs_device: bool = True
) -> Parsed:
    """Parse a config and load its plugins; `build` raises its diagnostics.

    source: a file, the folder of a run or of a checkpoint, or plain values. needs_device: whether a
    device that is not there is one of the diagnostics. Raises UserError if a plugin cannot be
    loaded, or if the user has not chosen to run it.
    """
    named = source if isinstance(source, Mapping) else Path(source)
    parsed = parse(named if isinstance(named, Mapping) else config_of(named), overrides)
    load_plugins(parsed, named)
    return with_device_checked(parsed) if needs_device else parsed


def trust_plugins(source: ConfigSource, overrides: Overrides = ()) -> None:
    """Trust the plugins of a config, or of a run's or a checkpoint's folder, from now on.

    Raises UserError if they cannot be loaded; paths without a config are ignored.
    """
    named = source if isinstance(source, Mapping) else Path(source)
    config = named if isinstance(named, Mapping) else config_of(named)
    if isinstance(config, Mapping) or config.is_file():
        load_plugins(parse(config, overrides), named, allow=True)


# By phase and step, the implementations that autotuning selected before.
AutotunedKernels = Mapping[str, Mapping[str, str]]


def plan_for(
    built: ModelDefinition,
    training: bool,
    threads: int | None = None,
    notify: Notify = ignore_note,
) -> Plan:
    """Return the plan of a training run (with its evaluation) or of inference.

    The batch size is that of `built`; `micro_batches.planned` may split batches. notify: receives
    notes while kernels are autotuned.
    """
    return compile_plan(built.model.symbol, request_for(built, training, threads, notify))


def request_for(
    built: ModelDefinition, training: bool, threads: int | None = None, notify: Notify = ignore_note
) -> CompileRequest:
    """Return the compile request of a training run, or of inference with the whole network.

    This is the only way from a config to a request: what runs a part of the network, or another
    batch, replaces fields of it. notify: receives notes while kernels are autotuned.
    """
    settings = built.training
    device = describe(built.options, thread_count(built, threads))
    phases = [TRAIN] if training else []
    if training and settings.accumulate * built.micro_batches > 1:
        phases.append(ACCUMULATE)
    if training and built.updates_apart:
        phases.append(UPDATE)
    if not training or built.options.data.eval is not None:
        phases.append(EVALUATE)
    shorter = built.buckets if training else {}
    return CompileRequest(
        inputs=built.model.inputs,
        buckets={length: model.inputs for length, model in shorter.items()},
        shapes=built.model.shapes,
        rules=settings.rules if training else {},
        clipping=settings.clipping if training else None,
        average=settings.average if training else None,
        staged=planned_staging(built, staged_specs(built)) if training else {},
        partial_sums=partial_sums(built.own_parts) if training else 0,
        shard=built.shard if training else None,
        phases=tuple(phases),
        device=device,
        backward=built.options.backward,
        implementation=built.options.implementation,
        chooser=chooser_for(built, device, notify),
        precision=built.options.precision,
        constant_parameters=not training,
        fuse=built.options.fuse,
        **budgeted(built, training, device),
    )


def least_bytes(built: ModelDefinition, training: bool) -> int:
    """Return the bytes that a run needs at least, with everything recomputed that saves memory."""
    request = replace(request_for(built, training), budget=Budget(least=True))
    return compile_plan(built.model.symbol, request).planned_bytes


def chooser_for(
    built: ModelDefinition, device: DeviceDescription, notify: Notify
) -> Chooser | None:
    """Return the autotuner for a device; None if the config requests no autotuning."""
    if not is_timed(built):
        return None
    # Imported on demand, to start faster without autotuning.
    from mxrun.preparation.autotune import Autotuner

    return Autotuner(open_device(built.options, device), notify)


def is_timed(built: ModelDefinition) -> bool:
    """Return whether the kernels of some layers are autotuned."""
    layers = (node.options.implementation for node in built.model.symbol.nodes)
    return AUTO in (built.options.implementation, *layers)


def staged_specs(built: ModelDefinition) -> dict[str, TensorSpec]:
    """Return the specs of one batch prefetched by loader threads; empty if data are in memory."""
    if not any(request.prefetched for request in built.data.values()):
        return {}
    return staging_specs(built.model.records, built.model.batch_size)


def staged_names(options: RunOptions, specs: Mapping[str, TensorSpec]) -> list[dict[str, str]]:
    """Return the tensors of each prefetched batch of `specs`, by the names of the inputs."""
    count = options.data.prefetch if specs else 0
    return [{name: f"{name}:staged{index}" for name in specs} for index in range(count)]


def planned_staging(
    built: ModelDefinition, specs: Mapping[str, TensorSpec]
) -> dict[str, TensorSpec]:
    """Return the tensors of prefetched batches of `specs` that have a place in the plan.

    A device whose memory the host cannot write to copies them from the host's.
    """
    if not kind_of(built.options).has_host_memory:
        return {}
    return {
        tensor: specs[name]
        for batch in staged_names(built.options, specs)
        for name, tensor in batch.items()
    }


def last_batch(built: ModelDefinition, role: str) -> LastBatch:
    """Return the treatment of records that do not fill the last batch.

    Evaluation reads every record once. Training discards them if rows of a batch depend on each
    other (batch normalisation), because padding would change the results of the others.
    """
    if role == "eval":
        return "pad"
    coupled = any(node.prop and node.prop.list_state_updates() for node in built.model.symbol.nodes)
    return built.options.data.last_batch or ("discard" if coupled else "pad")


def thread_count(built: ModelDefinition, threads: int | None = None) -> int:
    """Return how many threads a context may use: `threads`, else the config's, else its cores.

    Contexts that train together share the cores equally, and so do the ranks of one machine.
    """
    cores = kind_of(built.options).cores()
    sharing = built.contexts * (ranks_here() if built.ranks > 1 else 1)
    return threads or built.options.threads or max(1, cores // sharing)
