"""Constant folding and weight pre-packing: values that depend on parameters alone, computed once.

Inference changes no parameter. A packed copy of a weight, or a weight with a folded normalisation,
is computed once and stored beside the parameters. The steps that compute such values move to a
graph of their own. What several phases compute alike is stored once.

Needs: kernels, of graphs that change no parameter. Provides: for each of them, two graphs. The
stored values are sources of the second; the first has their storage as sources, which its steps
overwrite.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import replace

from mxrun.graph.graph import Graph, MemoryClass, Step, StepKind, Value, ValueId
from mxrun.graph.phases import PREPARE
from mxrun.passes.dead_code import without_unread_views

# Sources that only training changes.
GIVEN = (MemoryClass.PARAMETERS, MemoryClass.OPTIMIZER, MemoryClass.AUXILIARY)


def fold_parameter_constants(graphs: Mapping[str, Graph]) -> dict[str, Graph]:
    """Return the graphs without the steps that depend on parameters alone, by phase.

    Before them come the graphs of those steps: the phase PREPARE and, for what a further phase
    alone computes, PREPARE followed by its name.
    """
    numbers: dict[Hashable, int] = {}
    known: dict[int, str] = {}
    preparing: dict[str, Graph] = {}
    remaining: dict[str, Graph] = {}
    for phase, graph in graphs.items():
        suffix = f":{phase}" if remaining else ""
        before, remaining[phase] = _divided(graph, suffix, numbers, known)
        if before.steps:
            preparing[PREPARE + suffix] = before
    return preparing | remaining


def _divided(
    graph: Graph, suffix: str, numbers: dict[Hashable, int], known: dict[int, str]
) -> tuple[Graph, Graph]:
    """Return the graph of the steps that depend on parameters alone, and that of the others.

    suffix: ends the names of the stored values. numbers: as in `_computations`. known: names of
    values stored before, by the number of what computes them; values stored now are added.
    """
    constant = _constant_steps(graph)
    # A view costs nothing, so it stays in every graph in which it is read.
    moved = {step.name for step in constant if not step.is_view}
    views = {step.name for step in constant if step.is_view}
    steps = [step for step in graph.steps if step.name not in moved]
    remaining = without_unread_views(steps, graph.results.values())
    read = {value for step in remaining for value in step.reads} | set(graph.results.values())
    before = [step for step in graph.steps if step.name in moved or step.name in views]
    stored = [v for step in before if step.name in moved for v in step.writes if v in read]
    computed = _computations(graph, constant, numbers)
    names: dict[ValueId, str] = {}
    own: dict[ValueId, str] = {}
    for value in stored:
        # Values that one graph computes alike twice remain two tensors of it.
        name = known.get(computed[value])
        if name is None or name in names.values():
            name = own[value] = f"{graph.values[value].name}:{value}{suffix}"
            known.setdefault(computed[value], name)
        names[value] = name
    return _before(graph, before, own), _after(graph, remaining, names)


def _computations(
    graph: Graph, steps: list[Step], numbers: dict[Hashable, int]
) -> dict[ValueId, int]:
    """Return the number of what computes each value of constant steps.

    It is the same for equal values of two graphs. numbers: by the name of a source, or by an
    operator with the numbers of its inputs; new ones are added.
    """

    def number(what: Hashable) -> int:
        return numbers.setdefault(what, len(numbers))

    found = {value: number(name) for name, value in graph.sources.items()}
    for step in steps:
        inputs = tuple(None if value is None else found[value] for value in step.inputs)
        # Each reorder has a property of its own, and all do the same.
        prop = None if step.kind is StepKind.REORDER else step.prop
        implementation = step.kernel and step.kernel.implementation
        for index, value in enumerate(step.outputs):
            if value is not None:
                found[value] = number((prop, implementation, index, graph.spec(value), inputs))
    return found


def _constant_steps(graph: Graph) -> list[Step]:
    known = {v for v in graph.sources.values() if graph.values[v].memory_class in GIVEN}
    found = []
    for step in graph.steps:
        if step.reads and known.issuperset(step.reads):
            known.update(step.writes)
            found.append(step)
    return found


def _before(graph: Graph, steps: list[Step], stored: Mapping[ValueId, str]) -> Graph:
    """Return the first graph, in which each stored value overwrites its storage; stored: names."""
    needed, found, values = set(stored), list[Step](), list(graph.values)
    for step in reversed(steps):
        if not needed.isdisjoint(step.writes):
            needed.update(step.reads)
            found.append(step)
    steps = found[::-1]
    read = {value for step in steps for value in step.reads}
    sources = {name: value for name, value in graph.sources.items() if value in read}
    mutations = {}
    for value, name in stored.items():
        place = Value(name, graph.spec(value), MemoryClass.CONSTANTS)
        mutations[value] = sources[place.name] = len(values)
        values.append(place)
    return replace(
        graph,
        values=tuple(values),
        steps=tuple(steps),
        sources=sources,
        results={},
        mutations=mutations,
    )


def _after(graph: Graph, steps: list[Step], stored: Mapping[ValueId, str]) -> Graph:
    values = list(graph.values)
    read = {value for step in steps for value in step.reads} | set(graph.results.values())
    sources = {name: value for name, value in graph.sources.items() if value in read}
    for value, name in stored.items():
        sources[name] = value
        values[value] = replace(values[value], memory_class=MemoryClass.CONSTANTS)
    return replace(graph, values=tuple(values), steps=tuple(steps), sources=sources)
