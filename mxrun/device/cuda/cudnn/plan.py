"""Execution plans: the engine that cuDNN's heuristics prefer for a graph on a card.

A plan is made without a card, from the card's properties, and is text: cuDNN's JSON, which holds
the graph, the card, the engine with its parameters and, for engines that are compiled for a graph,
their code. Making a convolution's plan takes 20 ms, that of a compiled engine 0.3 to 1 s, so plans
are cached on disk for each graph, card and version of the library.

Only engines that give the same bits in every run are taken. float32 refuses those that round its
numbers for tensor cores, unless the graph allows tf32.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator
from itertools import islice

from mxrun.base import disk_cache
from mxrun.base.dataclass import dataclass
from mxrun.base.errors import InternalError
from mxrun.base.once import cached_property, once
from mxrun.device.cuda.cudnn.constants import (
    Attribute,
    DescriptorKind,
    HeuristicMode,
    NumericalNote,
)
from mxrun.device.cuda.cudnn.descriptor import Descriptor, Value, describe
from mxrun.device.cuda.cudnn.graph import OperationGraph
from mxrun.device.cuda.cudnn.library import version
from mxrun.operator.constraints import (
    UNCONSTRAINED,
    ImplementationConstraints,
    Unsupported,
)

CACHE = "cudnn-plans"
# Engines that each way to rank them returns at most; it returned up to 40 for the graphs of mxrun.
_MOST_ENGINES = 64
_MOST_NOTES = 16
# Plans that are tried for one that fits, and that the autotuner compares.
_MOST_PLANS = 8
_INEXACT = {
    NumericalNote.DOWN_CONVERT_INPUTS,
    NumericalNote.REDUCED_PRECISION_REDUCTION,
    NumericalNote.NONDETERMINISTIC,
}


@dataclass(frozen=True)
class ExecutionPlan:
    """Execution plan of a graph on a card.

    engine: name of the engine and its parameters among those for the graph. text: cuDNN's JSON.
    workspace_bytes: scratch memory needed during a call.
    """

    graph: OperationGraph
    card: str
    engine: str
    workspace_bytes: int
    text: bytes

    def alternatives(self) -> tuple[str, ...]:
        """Return the names of the first engines that may be taken, in cuDNN's order."""
        return tuple(name for name, _ in islice(_engines(self.graph, self.card), _MOST_PLANS))

    @cached_property
    def descriptor(self) -> Descriptor:
        """Descriptor for execution, made from the text at binding: 1 to 20 ms.

        Raises InternalError where cuDNN refuses the text.
        """
        plan = Descriptor(DescriptorKind.EXECUTION_PLAN)
        plan.set(Attribute.EXECUTION_PLAN_DEVICEPROP, properties(self.card))
        plan.set(Attribute.EXECUTION_PLAN_JSON_REPRESENTATION, self.text)
        plan.finalise()
        return plan


@once
def properties(card: str) -> Descriptor:
    """Return the descriptor of a card's properties, which are JSON."""
    text = card.encode() + b"\0"
    return describe(DescriptorKind.DEVICEPROP, {Attribute.DEVICEPROP_JSON_REPRESENTATION: text})


def properties_of_card(index: int) -> str:
    """Return the properties of a card as JSON. No machine has run this call yet."""
    card = describe(DescriptorKind.DEVICEPROP, {Attribute.DEVICEPROP_DEVICE_ID: index})
    return card.text(Attribute.DEVICEPROP_JSON_REPRESENTATION).rstrip(b"\0").decode()


@once
def plan_of(
    graph: OperationGraph, card: str, constraints: ImplementationConstraints = UNCONSTRAINED
) -> ExecutionPlan:
    """Return the plan of the first engine that satisfies the constraints.

    card: properties as JSON. Raises Unsupported if there is none.
    """
    key = f"{version()}\n{card}\n{graph!r}\n{constraints!r}"
    plan = _cached(graph, card, key)
    if plan is None:
        plan = _made(graph, card, constraints)
        figures = {
            "engine": plan.engine,
            "workspace_bytes": plan.workspace_bytes,
            "plan": plan.text.decode(),
        }
        disk_cache.put(CACHE, key, {**figures, "sha256": _digest(figures)})
    return plan


def _cached(graph: OperationGraph, card: str, key: str) -> ExecutionPlan | None:
    """Return the plan in the cache; None if there is none or if its digest is another."""
    found = disk_cache.get(CACHE, key)
    if not isinstance(found, dict):
        return None
    digest = found.pop("sha256", None)
    if digest != _digest(found):
        return None
    text = found["plan"].encode()
    return ExecutionPlan(graph, card, found["engine"], found["workspace_bytes"], text)


def _digest(figures: dict[str, object]) -> str:
    return hashlib.sha256(json.dumps(figures, sort_keys=True).encode()).hexdigest()


def _made(
    graph: OperationGraph, card: str, constraints: ImplementationConstraints
) -> ExecutionPlan:
    """Return a new plan; of several that exceed the scratch limit, that which needs the least."""
    least: ExecutionPlan | None = None
    refused, tried = "it has no engine that may be taken", 0
    for name, engine in _engines(graph, card):
        if constraints.name not in (None, name):
            continue
        try:
            plan = _plan(graph, card, name, engine)
        except (Unsupported, InternalError) as error:
            refused = str(error)
            continue
        if constraints.permits(plan.workspace_bytes):
            return plan
        if least is None or plan.workspace_bytes < least.workspace_bytes:
            least = plan
        tried += 1
        if tried == _MOST_PLANS:
            break
    if least is None:
        raise Unsupported(f"cuDNN has no plan for {graph}: {refused}")
    return least


def _plan(graph: OperationGraph, card: str, name: str, engine: Descriptor) -> ExecutionPlan:
    plan = describe(
        DescriptorKind.EXECUTION_PLAN,
        {
            Attribute.EXECUTION_PLAN_ENGINE_CONFIG: engine,
            Attribute.EXECUTION_PLAN_DEVICEPROP: properties(card),
        },
    )
    (workspace,) = plan.numbers(Attribute.EXECUTION_PLAN_WORKSPACE_SIZE)
    text = plan.text(Attribute.EXECUTION_PLAN_JSON_REPRESENTATION)
    return ExecutionPlan(graph, card, name, workspace, text)


def _engines(graph: OperationGraph, card: str) -> Iterator[tuple[str, Descriptor]]:
    """Yield the engines that may be taken with their parameters, the preferred one first.

    Those that cuDNN does not recommend are left out for graphs of several operations: one operation
    after the other is faster.
    """
    descriptor, seen = graph.descriptor(), Counter[int]()
    refused = refused_notes(graph)
    modes = HeuristicMode if len(graph.operations) == 1 else (HeuristicMode.A, HeuristicMode.B)
    for mode in modes:
        asked: dict[Attribute, Value] = {
            Attribute.ENGINEHEUR_OPERATION_GRAPH: descriptor,
            Attribute.ENGINEHEUR_MODE: mode,
            Attribute.ENGINEHEUR_DEVICEPROP: properties(card),
        }
        try:
            ranking = describe(DescriptorKind.ENGINEHEUR, asked)
            found = ranking.descriptors(
                Attribute.ENGINEHEUR_RESULTS, DescriptorKind.ENGINECFG, _MOST_ENGINES
            )
        except Unsupported:
            continue
        for configuration in found:
            (engine,) = configuration.descriptors(
                Attribute.ENGINECFG_ENGINE, DescriptorKind.ENGINE, 1
            )
            (number,) = engine.numbers(Attribute.ENGINE_GLOBAL_INDEX)
            seen[number] += 1
            if refused.isdisjoint(engine.numbers(Attribute.ENGINE_NUMERICAL_NOTE, _MOST_NOTES)):
                yield f"engine{number}.{seen[number]}", configuration


def refused_notes(graph: OperationGraph) -> set[NumericalNote]:
    """Return the numerical properties that no engine for a graph may have."""
    if graph.is_low or graph.is_tf32:
        return _INEXACT
    return {*_INEXACT, NumericalNote.TENSOR_CORE}
