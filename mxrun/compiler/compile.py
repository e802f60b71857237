"""Symbol → Plan: the list of passes, in order."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from mxrun.base import flags
from mxrun.base.dtype import FLOAT32
from mxrun.base.errors import InternalError
from mxrun.base.keywords import PREFERRED
from mxrun.base.machine import Machine
from mxrun.base.tensor import TensorSpec
from mxrun.compiler.verify import verify_graph, verify_plan
from mxrun.graph.gradient import gradient
from mxrun.graph.graph import Graph, ValueId
from mxrun.graph.infer import InferredSpecs, infer
from mxrun.graph.lower import lower
from mxrun.graph.phases import ACCUMULATE, EVALUATE, PREPARE, TRAIN
from mxrun.graph.reverse import reverse
from mxrun.graph.symbol import Symbol
from mxrun.graph.update_rule import Clipping, UpdateRule, averaged
from mxrun.passes.autotune_candidates import Chooser
from mxrun.passes.batch_norm_state import batch_norm_state
from mxrun.passes.commute_maxpool import MAXIMA_FIRST, commute_maxpool
from mxrun.passes.dead_code import eliminate_dead_code
from mxrun.passes.fold_batch_norm import FOLDING, fold_batch_norm
from mxrun.passes.fold_parameter_constants import fold_parameter_constants
from mxrun.passes.fuse import fuse
from mxrun.passes.precision import precision
from mxrun.passes.select import KernelSelection, select
from mxrun.passes.split_backward import split_backward
from mxrun.passes.updates import accumulate, eager, updates
from mxrun.planner.place import place, place_pinned
from mxrun.planner.plan import Block, Plan
from mxrun.planner.remat.budget import Budget, Plain, fitted
from mxrun.planner.remat.reorders import rematerialise_reorders
from mxrun.planner.schedule.schedule import BEST, schedule
from mxrun.planner.storage import Sharing, shared

BACKWARDS = {"explicit_graph": gradient, "reverse": reverse}


@dataclass(frozen=True)
class CompileRequest:
    """What a plan is made for.

    inputs: specs of the io slots, batch axis included. shapes: further known shapes by name.
    rules: the update of each trained parameter; empty for a plan without training. gradients:
        parameters whose gradients are wanted as results although nothing updates them.
    clipping: of all gradients together. average: the momentum of the moving average of every
        trained parameter, which evaluation then reads in its place.
    staged: batches made ahead, which lie beside the io slots.
    phases: those wanted; with ACCUMULATE, TRAIN adds to the running sums as well.
    implementation: how kernels are chosen for nodes that do not say: PREFERRED, AUTO, or by name.
    chooser: what times the candidates of AUTO; without it, that is PREFERRED. kept: by phase and
        step the names of implementations that were chosen before and are taken again.
    precision: of the activations that may be bfloat16, where a node does not say.
    fixed: whether no phase (EVALUATE alone) changes parameters or states, so that a phase PREPARE
        of its own computes what they decide alone.
    fuse: whether chains of operators may become one and, of a plan that is fixed, normalizations
        part of the products before them.
    unfused: fusions that are left out, by name, to show what each of them changes.
    in_place, join, add_to, reuse: sharing that can be turned off to show that it changes no bit.
    order: of steps, by name where not the best is wanted, for the same end.
    budget: what the arena may have; forward steps run again in backward where that is too little
        for the plain plan. machine: by whose figures it is told what takes how long.
    """

    inputs: Mapping[str, TensorSpec]
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    rules: Mapping[str, UpdateRule] = field(default_factory=dict)
    clipping: Clipping | None = None
    average: float | None = None
    gradients: tuple[str, ...] = ()
    staged: Mapping[str, TensorSpec] = field(default_factory=dict)
    phases: tuple[str, ...] = (TRAIN, EVALUATE)
    threads: int = 1
    backward: str = "explicit_graph"
    implementation: str = PREFERRED
    chooser: Chooser | None = None
    kept: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    precision: str = FLOAT32
    fixed: bool = False
    fuse: bool = True
    unfused: tuple[str, ...] = ()
    in_place: bool = True
    join: bool = True
    add_to: bool = True
    reuse: bool = True
    order: str = BEST
    budget: Budget | None = None
    machine: Machine | None = None


@contextmanager
def _uncollected() -> Iterator[None]:
    """Look for no garbage meanwhile: planning makes much that stays, which would be gone over."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@_uncollected()
def compile_plan(symbol: Symbol, request: CompileRequest) -> Plan:
    """Run every pass for each phase; raises UserError for a network that cannot be planned."""
    started = time.perf_counter()
    inference = infer_request(symbol, request)
    graphs = {
        phase: select(
            _phase_graph(symbol, request, inference, phase),
            request.threads,
            _choice(request, phase),
            request.fixed,
        )
        for phase in request.phases
    }
    if request.fixed:
        if set(graphs) != {EVALUATE}:
            raise InternalError("a plan of other phases than evaluation changes its parameters")
        prepare, evaluate = fold_parameter_constants(graphs[EVALUATE])
        graphs = ({PREPARE: prepare} if prepare.steps else {}) | {EVALUATE: evaluate}
    pinned = place_pinned(list(graphs.values()), request.staged)
    sharing = Sharing(request.in_place, request.join, request.add_to)
    plain = {
        phase: _placed(phase, graph, pinned, request, sharing) for phase, graph in graphs.items()
    }
    phases, budget_bytes = {phase: each.plan for phase, each in plain.items()}, None
    if request.budget is not None:
        phases, budget_bytes = fitted(plain, pinned, request.budget, sharing, request.machine)
    specs = {
        name: graph.spec(value)
        for graph in graphs.values()
        for name, value in graph.sources.items()
    } | dict(request.staged)
    planning_ms = (time.perf_counter() - started) * 1e3
    plan = Plan(phases, pinned, specs, request.threads, planning_ms, budget_bytes)
    if flags.debug():
        for phase in phases.values():
            verify_graph(phase.graph, "placing")
        verify_plan(plan)
    return plan


def _placed(
    phase: str,
    graph: Graph,
    pinned: tuple[Block, ...],
    request: CompileRequest,
    sharing: Sharing,
) -> Plain:
    """A phase in the best order of its steps, or in the one that is asked for."""
    graph = rematerialise_reorders(graph, request.in_place)
    scheduled = schedule(graph, sharing, request.order)
    whole, storage = shared(scheduled.graph, sharing)
    planned = place(phase, whole, storage, pinned, request.reuse)
    # With other sharing an order may need less.
    is_known = not storage.parts and len(whole.steps) == len(scheduled.graph.steps)
    least = scheduled.least_bytes if is_known else None
    planned = replace(planned, order=scheduled.order, any_order_bytes=least)
    return Plain(planned, scheduled.graph)


def infer_request(symbol: Symbol, request: CompileRequest) -> InferredSpecs:
    """Shapes and types of the whole network under the request's inputs."""
    shapes = {name: spec.shape for name, spec in request.inputs.items()}
    types = {name: spec.dtype for name, spec in request.inputs.items()}
    return infer(symbol.heads, {**request.shapes, **shapes}, types)


def _phase_graph(
    symbol: Symbol, request: CompileRequest, inference: InferredSpecs, phase: str
) -> Graph:
    if phase == EVALUATE:
        averages = {name: averaged(name) for name in request.rules}
        stand_ins = {} if request.average is None else averages
        graph = lower(symbol, inference, request.inputs.keys(), False, stand_ins)
        return _verify(eliminate_dead_code(_fused(graph, request)), "prune")
    graph = _fused(lower(symbol, inference, request.inputs.keys(), is_train=True), request)
    wanted = dict.fromkeys((*request.rules, *request.gradients))
    gradients: Mapping[str, ValueId] = {}
    if wanted:
        differentiated = BACKWARDS[request.backward](graph, wanted)
        graph = _verify(differentiated.graph, request.backward)
        gradients = differentiated.gradients
        graph = _verify(split_backward(graph), "separate")
        results = {f"{name}_grad": gradients[name] for name in request.gradients}
        graph = graph.with_results(results)
    graph = batch_norm_state(graph)
    trained = {name: gradients[name] for name in request.rules}
    if ACCUMULATE in request.phases:
        graph, trained = accumulate(graph, trained)
    if phase == TRAIN:
        graph = updates(graph, trained, request.rules, request.clipping, request.average)
    return _verify(eliminate_dead_code(_verify(eager(graph), "updates")), "prune")


def _choice(request: CompileRequest, phase: str) -> KernelSelection:
    return KernelSelection(request.implementation, request.chooser, request.kept.get(phase, {}))


def _fused(graph: Graph, request: CompileRequest) -> Graph:
    graph = _verify(graph, "lower")
    graph = precision(graph, request.precision)
    if request.fuse and request.fixed and FOLDING not in request.unfused:
        graph = _verify(fold_batch_norm(graph), "fold")
    if not request.fuse:
        return graph
    graph = _verify(fuse(graph, request.unfused), "fuse")
    if graph.is_train and MAXIMA_FIRST not in request.unfused:
        graph = _verify(commute_maxpool(graph), "maxima_first")
    return graph


def _verify(graph: Graph, after: str) -> Graph:
    return verify_graph(graph, after) if flags.debug() else graph
