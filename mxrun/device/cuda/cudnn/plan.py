"""Execution plans: the engine that cuDNN's heuristics prefer for a graph on a card.

A plan is made without a card, from the card's properties, and is text: cuDNN's JSON, which holds
the graph, the card, the engine with its parameters and, for engines that are compiled for a graph,
their code. Making a convolution's plan takes 20 ms, that of a compiled engine 0.3 to 1 s, so plans
are cached on disk for each graph, card and version of the library. The text of a compiled engine is
not the same twice, so that a run records its plans and a resumed one adopts them.

Only engines that give the same bits in every run are taken. float32 refuses those that round its
numbers for tensor cores, unless the graph allows tf32.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from itertools import islice

from mxrun.base import disk_cache
from mxrun.base.dataclass import dataclass
from mxrun.base.errors import InternalError
from mxrun.base.once import once
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

    key: text of what it was made for. engine: name of the engine and its parameters among those
    for the graph. text: cuDNN's JSON. workspace_bytes: scratch memory needed during a call.
    """

    key: str
    graph: OperationGraph
    card: str
    engine: str
    workspace_bytes: int
    text: bytes

    @property
    def record(self) -> dict[str, object]:
        """Figures from which the same plan is made again, as JSON with its digest."""
        figures: dict[str, object] = {
            "engine": self.engine,
            "workspace_bytes": self.workspace_bytes,
            "plan": self.text.decode(),
        }
        return {**figures, "sha256": _digest(figures)}

    def alternatives(self) -> tuple[str, ...]:
        """Return the names of the first engines that may be taken, in cuDNN's order."""
        return tuple(name for name, _ in islice(_engines(self.graph, self.card), _MOST_PLANS))


@once
def loaded(plan: ExecutionPlan, index: int) -> Descriptor:
    """Return a plan for execution on a card by number, made from its text at binding: 1 to 20 ms.

    Each card has its own, which one thread at a time may execute: engines may load code into the
    card at the first call, and cuDNN does not promise that several threads can share a plan. Raises
    InternalError where cuDNN refuses the text.
    """
    descriptor = Descriptor(DescriptorKind.EXECUTION_PLAN)
    descriptor.set(Attribute.EXECUTION_PLAN_DEVICEPROP, properties(plan.card))
    descriptor.set(Attribute.EXECUTION_PLAN_JSON_REPRESENTATION, plan.text)
    descriptor.finalise()
    return descriptor


@once
def properties(card: str) -> Descriptor:
    """Return the descriptor of a card's properties, which are JSON."""
    text = card.encode() + b"\0"
    return describe(DescriptorKind.DEVICEPROP, {Attribute.DEVICEPROP_JSON_REPRESENTATION: text})


def properties_of_card(index: int) -> str:
    """Return the properties of a card as JSON. No machine has run this call yet."""
    card = describe(DescriptorKind.DEVICEPROP, {Attribute.DEVICEPROP_DEVICE_ID: index})
    return card.text(Attribute.DEVICEPROP_JSON_REPRESENTATION).rstrip(b"\0").decode()


def plan_of(
    graph: OperationGraph, card: str, constraints: ImplementationConstraints = UNCONSTRAINED
) -> ExecutionPlan:
    """Return an adopted plan, else that of the first engine that satisfies the constraints.

    card: properties as JSON. Raises Unsupported if there is none.
    """
    record = _adopted.get(None)
    text = None if record is None else record.get(digest_of(_key(graph, card, constraints)))
    plan = None if text is None else _adopted_plan(graph, card, constraints, text)
    return plan or _own_plan(graph, card, constraints)


_adopted: ContextVar[Mapping[str, str]] = ContextVar("plans of another run")


@contextmanager
def adopting(plans: Mapping[str, str]) -> Iterator[None]:
    """Context manager in which `plan_of` returns the recorded plans.

    plans: their records as JSON, by the digests of what they were made for.
    """
    before = _adopted.set(plans)
    try:
        yield
    finally:
        _adopted.reset(before)


@once
def _adopted_plan(
    graph: OperationGraph, card: str, constraints: ImplementationConstraints, text: str
) -> ExecutionPlan | None:
    with suppress(ValueError):
        return _recorded(graph, card, _key(graph, card, constraints), json.loads(text))
    return None


@once
def _own_plan(
    graph: OperationGraph, card: str, constraints: ImplementationConstraints
) -> ExecutionPlan:
    """Return the plan in the cache, or a new one."""
    key = _key(graph, card, constraints)
    plan = _recorded(graph, card, key, disk_cache.get(CACHE, key))
    if plan is None:
        plan = _made(graph, card, constraints)
        disk_cache.put(CACHE, key, plan.record)
    return plan


def _key(graph: OperationGraph, card: str, constraints: ImplementationConstraints) -> str:
    return f"{version()}\n{card}\n{graph!r}\n{constraints!r}"


def _recorded(graph: OperationGraph, card: str, key: str, record: object) -> ExecutionPlan | None:
    """Return the plan of a record; None if there is none or if its digest is another."""
    if not isinstance(record, dict):
        return None
    found = {**record}
    digest = found.pop("sha256", None)
    if digest != _digest(found):
        return None
    text = found["plan"].encode()
    return ExecutionPlan(key, graph, card, found["engine"], found["workspace_bytes"], text)


def digest_of(key: str) -> str:
    """Return the digest by which runs record a plan."""
    return hashlib.sha256(key.encode()).hexdigest()


def _digest(figures: dict[str, object]) -> str:
    return hashlib.sha256(json.dumps(figures, sort_keys=True).encode()).hexdigest()


def _made(
    graph: OperationGraph, card: str, constraints: ImplementationConstraints
) -> ExecutionPlan:
    """Return a new plan; of several that exceed the scratch limit, that which needs the least."""
    key = _key(graph, card, constraints)
    least: ExecutionPlan | None = None
    refused, tried = "it has no engine that may be taken", 0
    for name, engine in _engines(graph, card):
        if constraints.name not in (None, name):
            continue
        try:
            plan = _plan(key, graph, card, name, engine)
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


def _plan(
    key: str, graph: OperationGraph, card: str, name: str, engine: Descriptor
) -> ExecutionPlan:
    plan = describe(
        DescriptorKind.EXECUTION_PLAN,
        {
            Attribute.EXECUTION_PLAN_ENGINE_CONFIG: engine,
            Attribute.EXECUTION_PLAN_DEVICEPROP: properties(card),
        },
    )
    (workspace,) = plan.numbers(Attribute.EXECUTION_PLAN_WORKSPACE_SIZE)
    text = plan.text(Attribute.EXECUTION_PLAN_JSON_REPRESENTATION)
    return ExecutionPlan(key, graph, card, name, workspace, text)


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
