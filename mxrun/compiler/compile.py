"""Compilation of a Symbol to a Plan: the passes and planning stages, in order."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial

from mxrun.base import flags
from mxrun.base.device import ONE_THREAD, DeviceDescription
from mxrun.base.dtype import FLOAT32
from mxrun.base.errors import InternalError
from mxrun.base.keywords import PREFERRED
from mxrun.base.machine import Machine
from mxrun.base.tensor import TensorSpec
from mxrun.compiler.loop import with_loops
from mxrun.compiler.recurrence.body import BodyPasses
from mxrun.compiler.recurrence.budget import fit_in_segments, segment_lengths
from mxrun.compiler.recurrence.expand import expand_recurrences
from mxrun.compiler.verify import verify_graph, verify_plan
from mxrun.graph.carried import evaluation_state
from mxrun.graph.cost import StepSeconds
from mxrun.graph.gradient import gradient
from mxrun.graph.graph import Graph, GraphBuilder, MemoryClass, ValueId
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
from mxrun.graph.reverse import reverse
from mxrun.graph.symbol import Symbol
from mxrun.graph.update_rule import Clipping, UpdateRule, accumulated, averaged
from mxrun.passes.autotune_candidates import Chooser
from mxrun.passes.batch_norm_state import batch_norm_state
from mxrun.passes.bias_activation import BIAS_ACTIVATION, bias_activation
from mxrun.passes.carried_states import carried_states
from mxrun.passes.commute_maxpool import COMMUTE_MAXPOOL, commute_maxpool
from mxrun.passes.dead_code import eliminate_dead_code
from mxrun.passes.fold_batch_norm import FOLDING, fold_batch_norm
from mxrun.passes.fold_parameter_constants import fold_parameter_constants
from mxrun.passes.fuse import fuse
from mxrun.passes.pinned_gradients import in_order_of_backward, pinned_gradients
from mxrun.passes.precision import precision
from mxrun.passes.select import KernelSelection, select
from mxrun.passes.split_backward import split_backward
from mxrun.passes.updates import accumulate, hoist_updates, updates
from mxrun.planner.place import place, place_pinned
from mxrun.planner.plan import Block, PhasePlan, Plan
from mxrun.planner.remat.budget import Budget, Plain, fit_to_budget
from mxrun.planner.remat.reorders import rematerialise_reorders
from mxrun.planner.schedule.schedule import BEST, schedule
from mxrun.planner.storage import Sharing, assign_storage

BACKWARDS = {"explicit_graph": gradient, "reverse": reverse}

Finish = Callable[[str, Graph], Graph]


@dataclass(frozen=True)
class Prefill:
    """Network of the phase PREFILL and its io slots, which hold several positions.

    It has the parameters and the states of the network that computes one position a run.
    """

    symbol: Symbol
    inputs: Mapping[str, TensorSpec]


@dataclass(frozen=True)
class CompileRequest:
    """Inputs and options of a compilation.

    inputs: specs of the io slots, batch axis included.
    buckets: by length, the io slots of batches of shorter sequences; every phase is planned for
        these as well, in the same arena, under the name of `bucket_phase`.
    prefill: what the phase PREFILL runs, beside GENERATE; None for a plan without it.
    shapes: further known shapes by name.
    rules: the update rule of each trained parameter; empty for a plan without training.
    gradients: parameters whose gradients are results although no update reads them.
    clipping: limit on the global norm of all gradients.
    average: momentum of the moving average of every trained parameter; evaluation reads the average
        in place of the parameter.
    staged: io tensors of batches prepared ahead, stored beside the io slots.
    device: what the plan shall run on.
    phases: phases to plan; with ACCUMULATE, TRAIN also adds to the running sums. With UPDATE,
        TRAIN ends with the gradients, in pinned tensors, and UPDATE reads them.
    implementation: kernel selection for nodes that name none: PREFERRED, AUTO, or a name.
    chooser: times the candidates of AUTO; without it, AUTO is PREFERRED.
    autotuned: by phase and step, names of implementations autotuned before, which are used again.
    precision: dtype of the activations that may be bfloat16, where a node names none.
    constant_parameters: if true, no phase (EVALUATE alone, or GENERATE and PREFILL) changes
        parameters, and a phase PREPARE computes the values that depend on them alone.
    fuse: if true, chains of operators are fused and, in a fixed plan, batch normalisations are
        folded into the products before them.
    unfused: names of fusions to leave out, to measure the effect of each.
    in_place, join, add_to, reuse: kinds of memory sharing that can be turned off, to check that
        they change no bit.
    order: name of a schedule to use instead of the best, for the same purpose.
    budget: limit of the arena; forward steps are recomputed if the plain plan exceeds it.
    machine: measured speeds from which times are predicted.
    segment: number of iterations of a recurrence that run again together in backward; all that
        backward reads is kept if it is None.
    drop_cheap: whether backward computes cheap outputs of a recurrence's steps again.
    """

    inputs: Mapping[str, TensorSpec]
    buckets: Mapping[int, Mapping[str, TensorSpec]] = field(default_factory=dict)
    prefill: Prefill | None = None
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    rules: Mapping[str, UpdateRule] = field(default_factory=dict)
    clipping: Clipping | None = None
    average: float | None = None
    gradients: tuple[str, ...] = ()
    staged: Mapping[str, TensorSpec] = field(default_factory=dict)
    phases: tuple[str, ...] = (TRAIN, EVALUATE)
    device: DeviceDescription = ONE_THREAD
    backward: str = "explicit_graph"
    implementation: str = PREFERRED
    chooser: Chooser | None = None
    autotuned: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    precision: str = FLOAT32
    constant_parameters: bool = False
    fuse: bool = True
    unfused: tuple[str, ...] = ()
    in_place: bool = True
    join: bool = True
    add_to: bool = True
    reuse: bool = True
    order: str = BEST
    budget: Budget | None = None
    machine: Machine | None = None
    segment: int | None = None
    drop_cheap: bool = False


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
    graphs = {}
    for each in variants:
        sized = replace(request, inputs=each.inputs)
        for phase, name in each.names.items():
            graph = _phase_graph(each.symbol, sized, each.specs, phase)
            graphs[name] = _selected(graph, sized, name)
    return _planned(graphs, request, started)


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
            phase: _verify(finish(phase, graph), "finish") for phase, graph in selected.items()
        }
    return _planned(selected, request, started)


def forward_graph(
    symbol: Symbol, request: CompileRequest, inference: InferredSpecs, is_train: bool
) -> Graph:
    """Return the forward graph of a symbol with its operators fused, for `compile_graphs`."""
    return _fused(lower(symbol, inference, request.inputs.keys(), is_train), request)


def _selected(graph: Graph, request: CompileRequest, phase: str) -> Graph:
    """Return the graph of a phase with kernels."""
    graph = _with_kernels(graph, request, phase)
    if phase == TRAIN and UPDATE in request.phases and ACCUMULATE not in request.phases:
        graph = _verify(
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
        partial(_fused, request=request),
        BACKWARDS[request.backward],
        kernels,
        request.segment,
        StepSeconds(request.machine).is_cheap if request.drop_cheap else None,
    )
    graph = _verify(expand_recurrences(graph, passes), "expand_recurrences")
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
    pinned = place_pinned(list(graphs.values()), request.staged)
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


def _phase_graph(
    symbol: Symbol, request: CompileRequest, inference: InferredSpecs, phase: str
) -> Graph:
    if phase == UPDATE:
        return _update_graph(request, inference)
    if phase in (EVALUATE, GENERATE, PREFILL):
        averages = {name: averaged(name) for name in request.rules}
        stand_ins = {} if request.average is None else averages
        stand_ins |= {name: evaluation_state(name) for name in symbol.list_carried_states()}
        graph = lower(symbol, inference, request.inputs.keys(), False, stand_ins)
        graph = hoist_updates(carried_states(_fused(graph, request)))
        if phase == PREFILL:
            graph = replace(graph, results={})
        return _verify(eliminate_dead_code(graph), "dead_code")
    graph = _fused(lower(symbol, inference, request.inputs.keys(), is_train=True), request)
    differentiated_names = dict.fromkeys((*request.rules, *request.gradients))
    gradients: Mapping[str, ValueId] = {}
    if differentiated_names:
        differentiated = BACKWARDS[request.backward](graph, differentiated_names)
        graph = _verify(differentiated.graph, request.backward)
        gradients = differentiated.gradients
        graph = _verify(split_backward(graph), "split_backward")
        results = {f"{name}_grad": gradients[name] for name in request.gradients}
        graph = graph.with_results(results)
    graph = carried_states(batch_norm_state(graph))
    trained = {name: gradients[name] for name in request.rules}
    updates_apart = UPDATE in request.phases
    if updates_apart:
        trained = in_order_of_backward(graph, trained)
    if ACCUMULATE in request.phases:
        graph, trained = accumulate(graph, trained)
    elif updates_apart:
        graph = graph.with_results({accumulated(name): trained[name] for name in trained})
    if phase == TRAIN and not updates_apart:
        graph = updates(graph, trained, request.rules, request.clipping, request.average)
    return _verify(eliminate_dead_code(_verify(hoist_updates(graph), "updates")), "dead_code")


def _update_graph(request: CompileRequest, inference: InferredSpecs) -> Graph:
    """Return the graph of the updates alone, which read the gradients from pinned tensors."""
    builder = GraphBuilder(Graph(is_train=True))
    variables = {entry.node.name: entry for entry in inference.shapes if entry.node.is_variable}
    gradients = {}
    for name in request.rules:
        spec = inference.spec(variables[name])
        builder.source(name, spec, MemoryClass.PARAMETERS)
        gradients[name] = builder.source(accumulated(name), spec, MemoryClass.GRADIENTS)
    graph = updates(builder.build(), gradients, request.rules, request.clipping, request.average)
    return _verify(graph, "updates")


def _choice(request: CompileRequest, phase: str) -> KernelSelection:
    return KernelSelection(
        request.implementation, request.chooser, request.autotuned.get(phase, {})
    )


def _fused(graph: Graph, request: CompileRequest) -> Graph:
    graph = _verify(graph, "lower")
    graph = precision(graph, request.precision)
    if request.fuse and request.constant_parameters and FOLDING not in request.unfused:
        graph = _verify(fold_batch_norm(graph), "fold_batch_norm")
    if not request.fuse:
        return graph
    graph = _verify(fuse(graph, request.unfused), "fuse")
    if graph.is_train and COMMUTE_MAXPOOL not in request.unfused:
        graph = _verify(commute_maxpool(graph), "commute_maxpool")
    if graph.is_train and BIAS_ACTIVATION not in request.unfused:
        graph = _verify(bias_activation(graph), "bias_activation")
    return graph


def _verify(graph: Graph, after: str) -> Graph:
    return verify_graph(graph, after) if flags.debug() else graph
