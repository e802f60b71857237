"""Symbol → Plan: the list of passes, in order."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from mxrun.base import flags
from mxrun.base.tensor import TensorSpec
from mxrun.graph.gradient import gradient
from mxrun.graph.graph import Graph
from mxrun.graph.infer import Inference, infer
from mxrun.graph.passes.inplace import inplace
from mxrun.graph.passes.lower import lower
from mxrun.graph.passes.place import place, place_pinned
from mxrun.graph.passes.select import AUTO, select
from mxrun.graph.passes.updates import UpdateRule, updates
from mxrun.graph.plan import Plan
from mxrun.graph.reverse import reverse
from mxrun.graph.symbol import Symbol
from mxrun.graph.verify import verify_graph, verify_plan

TRAIN = "train"
EVALUATE = "evaluate"

BACKWARDS = {"explicit_graph": gradient, "reverse": reverse}


@dataclass(frozen=True)
class CompileRequest:
    """What a plan is made for.

    inputs: specs of the io slots, batch axis included. shapes: further known shapes by name.
    rules: the update of each trained parameter; empty for a plan without training. gradients:
        parameters whose gradients are wanted as results although nothing updates them.
    in_place, reuse: sharing that can be turned off to show that it changes no bit.
    """

    inputs: Mapping[str, TensorSpec]
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    rules: Mapping[str, UpdateRule] = field(default_factory=dict)
    gradients: tuple[str, ...] = ()
    phases: tuple[str, ...] = (TRAIN, EVALUATE)
    threads: int = 1
    backward: str = "explicit_graph"
    implementation: str = AUTO
    in_place: bool = True
    reuse: bool = True


def compile_plan(symbol: Symbol, request: CompileRequest) -> Plan:
    """Run every pass for each phase; raises UserError for a network that cannot be planned."""
    started = time.perf_counter()
    inference = infer_request(symbol, request)
    graphs = {
        phase: select(
            _phase_graph(symbol, request, inference, phase), request.threads, request.implementation
        )
        for phase in request.phases
    }
    pinned = place_pinned(list(graphs.values()))
    phases = {
        phase: place(phase, graph, inplace(graph, request.in_place), pinned, request.reuse)
        for phase, graph in graphs.items()
    }
    specs = {
        name: graph.spec(value)
        for graph in graphs.values()
        for name, value in graph.sources.items()
    }
    planning_ms = (time.perf_counter() - started) * 1e3
    plan = Plan(phases, pinned, specs, request.threads, planning_ms)
    if flags.debug():
        for graph in graphs.values():
            verify_graph(graph, "select")
        verify_plan(plan)
    return plan


def infer_request(symbol: Symbol, request: CompileRequest) -> Inference:
    """Shapes and types of the whole network under the request's inputs."""
    shapes = {name: spec.shape for name, spec in request.inputs.items()}
    types = {name: spec.dtype for name, spec in request.inputs.items()}
    return infer(symbol.heads, {**request.shapes, **shapes}, types)


def _phase_graph(
    symbol: Symbol, request: CompileRequest, inference: Inference, phase: str
) -> Graph:
    graph = lower(symbol, inference, request.inputs.keys(), is_train=phase == TRAIN)
    _verify(graph, "lower")
    wanted = dict.fromkeys((*request.rules, *request.gradients))
    if phase != TRAIN or not wanted:
        return graph
    differentiated = BACKWARDS[request.backward](graph, wanted)
    graph = _verify(differentiated.graph, request.backward)
    trained = {name: differentiated.gradients[name] for name in request.rules}
    graph = _verify(updates(graph, trained, request.rules), "updates")
    results = {f"{name}_grad": differentiated.gradients[name] for name in request.gradients}
    return graph.with_results(results)


def _verify(graph: Graph, after: str) -> Graph:
    return verify_graph(graph, after) if flags.debug() else graph
