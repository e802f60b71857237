"""Compilation of a Symbol to a Plan: the passes and planning stages, in order."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

from mxrun.base import flags
from mxrun.base.dataclass import dataclass
from mxrun.base.errors import InternalError
from mxrun.base.slices import Shard
from mxrun.base.tensor import TensorSpec
from mxrun.compiler.loop import with_loops
from mxrun.compiler.passes import BACKWARDS, fused_graph, phase_graph, verified
from mxrun.compiler.recurrence.body import BodyPasses
from mxrun.compiler.recurrence.budget import fit_in_segments, segment_lengths
from mxrun.compiler.recurrence.expand import expand_recurrences
from mxrun.compiler.request import CompileRequest
from mxrun.compiler.verify import verify_graph, verify_plan
from mxrun.graph.cost import StepSeconds
from mxrun.graph.graph import Graph, MemoryClass
from mxrun.graph.infer import InferredSpecs, infer
from mxrun.graph.lower import lower
from mxrun.graph.phases import (
    ACCUMULATE,
    EVALUATE,
    GENERATE,
    PREFILL,
    TRAIN,
    UPDATE,
    bucket_phase,
)
from mxrun.graph.symbol import Symbol
from mxrun.graph.update_rule import parameter_of
from mxrun.passes.fold_parameter_constants import fold_parameter_constants
from mxrun.passes.pinned_gradients import pinned_gradients
from mxrun.passes.select import KernelSelection, select
from mxrun.planner.gradient_groups import rank_bounds
from mxrun.planner.place import place, place_pinned
from mxrun.planner.plan import Block, PhasePlan, Plan
from mxrun.planner.remat.budget import Budget, Plain, fit_to_budget
from mxrun.planner.remat.reorders import rematerialise_reorders
from mxrun.planner.schedule.schedule import schedule
from mxrun.planner.storage import Sharing, assign_storage

Finish = Callable[[str, Graph], Graph]


@contextmanager
def _uncollected() -> Iterator[None]:
    """Disable the garbage collector, which would traverse the many lasting objects of planning."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@_uncollected()
def compile_plan(symbol: Symbol, request: CompileRequest) -> Plan:
    """Run all passes and planning stages for each phase and return the plan.

    Raises UserError for a network that cannot be planned.
    """
    started = time.perf_counter()
    variants = _variants(symbol, request)
    if request.budget is None or request.segment is not None:
        return _compiled(variants, request, started)

    def planner(budget: Budget | None, segment: int | None = None, cheap: bool = False) -> Plan:
        given = replace(request, segment=segment, drop_cheap=cheap, budget=budget)
        return _compiled(variants, given, started)

    largest = variants[0].specs
    lengths = segment_lengths(symbol, largest) if largest.complete else []
    return fit_in_segments(planner, lengths, request.budget, StepSeconds(request.machine))


@dataclass(frozen=True)
class _Variant:
    """Network for io slots of one size; names: those of its phases in the plan."""

    symbol: Symbol
    inputs: Mapping[str, TensorSpec]
    specs: InferredSpecs
    names: Mapping[str, str]


def _variants(symbol: Symbol, request: CompileRequest) -> list[_Variant]:
    """Return the network for sequences of each length, the largest first, then that of PREFILL."""
    found = []
    for length in (None, *request.buckets):
        inputs = request.inputs if length is None else request.buckets[length]
        specs = infer_request(symbol, replace(request, inputs=inputs))
        names = {phase: bucket_phase(phase, length) for phase in request.phases}
        found.append(_Variant(symbol, inputs, specs, names))
    if (given := request.prefill) is not None:
        specs = infer_request(given.symbol, replace(request, inputs=given.inputs))
        found.append(_Variant(given.symbol, given.inputs, specs, {PREFILL: PREFILL}))
    return found


def _compiled(variants: Sequence[_Variant], request: CompileRequest, started: float) -> Plan:
    """Return the plan with recurrences in segments as requested; started: when planning began."""
    graphs: dict[str, Graph] = {}
    for each in variants:
        sized = replace(request, inputs=each.inputs)
        for phase, name in each.names.items():
            owned = None
            if phase == UPDATE and request.shard is not None:
                owned = _owned(graphs[TRAIN], request.shard)
            graph = phase_graph(each.symbol, sized, each.specs, phase, owned)
            graphs[name] = _selected(graph, sized, name)
    return _planned(graphs, request, started)


def _owned(graph: Graph, shard: Shard) -> dict[str, tuple[int, int]]:
    """Return the bounds of the slice of each parameter that a rank updates.

    graph: of TRAIN, with the gradients in pinned tensors.
    """
    blocks = [
        block for block in place_pinned([graph]) if block.memory_class is MemoryClass.GRADIENTS
    ]
    elements = {block.name: graph.spec(graph.sources[block.name]).elements for block in blocks}
    found = rank_bounds(blocks, elements, shard.ranks)
    return {
        parameter_of(name): (bounds[shard.rank], bounds[shard.rank + 1])
        for name, bounds in found.items()
    }


@_uncollected()
def compile_graphs(
    graphs: Mapping[str, Graph], request: CompileRequest, finish: Finish | None = None
) -> Plan:
    """Return the plan of graphs by phase, whose steps have no kernels yet; they may contain loops.

    finish: changes the graph of a phase after its kernels are selected. Raises UserError for a step
    that cannot run on the device.
    """
    started = time.perf_counter()
    selected = {phase: _selected(graph, request, phase) for phase, graph in graphs.items()}
    if finish is not None:
        selected = {
            phase: verified(finish(phase, graph), "finish") for phase, graph in selected.items()
        }
    return _planned(selected, request, started)


def forward_graph(
    symbol: Symbol, request: CompileRequest, inference: InferredSpecs, is_train: bool
) -> Graph:
    """Return the forward graph of a symbol with its operators fused, for `compile_graphs`."""
    return fused_graph(lower(symbol, inference, request.inputs.keys(), is_train), request)


def _selected(graph: Graph, request: CompileRequest, phase: str) -> Graph:
    """Return the graph of a phase with kernels."""
    graph = _with_kernels(graph, request, phase)
    if phase == TRAIN and UPDATE in request.phases and ACCUMULATE not in request.phases:
        graph = verified(
            pinned_gradients(graph, tuple(request.rules), request.device), "pinned_gradients"
        )
    return graph


def _with_kernels(
    graph: Graph, request: CompileRequest, phase: str, is_body: bool = False
) -> Graph:
    """Return the graph, or the body of a loop, with kernels; recurrences become loops."""

    whole = replace(request, segment=None)

    def kernels(graph: Graph) -> Graph:
        return _with_kernels(graph, whole, phase, is_body=True)

    def place_body(graph: Graph, pinned: tuple[Block, ...]) -> PhasePlan:
        sharing = Sharing(request.in_place, request.join, request.add_to)
        return _placed(phase, graph, pinned, request, sharing).plan

    passes = BodyPasses(
        partial(fused_graph, request=request),
        BACKWARDS[request.backward],
        kernels,
        request.segment,
        StepSeconds(request.machine).is_cheap if request.drop_cheap else None,
    )
    graph = verified(expand_recurrences(graph, passes), "expand_recurrences")
    graph = with_loops(graph, kernels, place_body)
    choice = _choice(request, phase)
    # Parameters change after the last iteration of a loop.
    return select(graph, request.device, choice, request.constant_parameters or is_body)


def _planned(graphs: dict[str, Graph], request: CompileRequest, started: float) -> Plan:
    """Schedule and place graphs with kernels; started: when planning began, for its time."""
    if request.constant_parameters:
        if set(graphs) not in ({EVALUATE}, {GENERATE}, {GENERATE, PREFILL}):
            raise InternalError("a plan of other phases than inference changes its parameters")
        graphs = fold_parameter_constants(graphs)
    _check_states(graphs)
    pinned = place_pinned(
        list(graphs.values()), request.staged, request.partial_sums, request.shard is not None
    )
    sharing = Sharing(request.in_place, request.join, request.add_to)
    plain = {
        phase: _placed(phase, graph, pinned, request, sharing) for phase, graph in graphs.items()
    }
    phases, budget_bytes = {phase: each.plan for phase, each in plain.items()}, None
    if request.budget is not None:
        phases, budget_bytes = fit_to_budget(
            plain, pinned, request.budget, sharing, request.machine
        )
    # Slots of shorter sequences are the beginnings of those of the longest, which come first.
    specs = {
        name: graph.spec(value)
        for graph in reversed(graphs.values())
        for name, value in graph.sources.items()
        if name not in graph.within
    } | dict(request.staged)
    planning_ms = (time.perf_counter() - started) * 1e3
    plan = Plan(phases, pinned, specs, request.device, planning_ms, budget_bytes)
    if flags.debug():
        for planned in phases.values():
            verify_graph(planned.graph, "place")
        verify_plan(plan)
    return plan


def _check_states(graphs: Mapping[str, Graph]) -> None:
    """Raise InternalError if two phases store a carried state in different dtypes."""
    found: dict[str, str] = {}
    for graph in graphs.values():
        for name, value in graph.sources.items():
            if graph.values[value].memory_class is not MemoryClass.CARRIED:
                continue
            dtype = graph.spec(value).dtype
            if found.setdefault(name, dtype) != dtype:
                raise InternalError(f"{name} is {found[name]} in one phase and {dtype} in another")


def _placed(
    phase: str,
    graph: Graph,
    pinned: tuple[Block, ...],
    request: CompileRequest,
    sharing: Sharing,
) -> Plain:
    """Schedule and place one phase."""
    graph = rematerialise_reorders(graph, request.in_place)
    scheduled = schedule(graph, sharing, request.order)
    placed_graph, storage = assign_storage(scheduled.graph, sharing)
    planned = place(phase, placed_graph, storage, pinned, request.reuse)
    # The bound does not cover concat in place and add-to, with which peak memory may be lower.
    is_known = not storage.parts and len(placed_graph.steps) == len(scheduled.graph.steps)
    least = scheduled.least_bytes if is_known else None
    planned = replace(planned, order=scheduled.order, any_order_bytes=least)
    return Plain(planned, scheduled.graph)


def infer_request(symbol: Symbol, request: CompileRequest) -> InferredSpecs:
    """Infer the shapes and types of the entire network from the request's inputs."""
    shapes = {name: spec.shape for name, spec in request.inputs.items()}
    types = {name: spec.dtype for name, spec in request.inputs.items()}
    return infer(symbol.heads, {**request.shapes, **shapes}, types)


def _choice(request: CompileRequest, phase: str) -> KernelSelection:
    return KernelSelection(
        request.implementation, request.chooser, request.autotuned.get(phase, {})
    )
