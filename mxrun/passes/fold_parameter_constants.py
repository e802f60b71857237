"""Constant folding and weight pre-packing: values that depend on parameters alone, computed once.

Inference changes no parameter. A packed copy of a weight, or a weight with a folded normalisation,
is computed once and stored beside the parameters. The steps that compute such values move to a
graph of their own.

Needs: kernels, of a graph that changes no parameter. Provides: two graphs. The stored values are
sources of the second; the first has their storage as sources, which its steps overwrite.
"""

from __future__ import annotations

from dataclasses import replace

from mxrun.graph.graph import Graph, MemoryClass, Step, Value, ValueId

# Sources that only training changes.
GIVEN = (MemoryClass.PARAMETERS, MemoryClass.OPTIMIZER, MemoryClass.AUXILIARY)


def fold_parameter_constants(graph: Graph) -> tuple[Graph, Graph]:
    """Return the graph of the steps that depend on parameters alone, and that of the others."""
    constant = _constant_steps(graph)
    # A view costs nothing, so it stays in every graph in which it is read.
    moved = {step.name for step in constant if not _is_view(step)}
    views = {step.name for step in constant if _is_view(step)}
    remaining = _without_idle_views([step for step in graph.steps if step.name not in moved], graph)
    read = {value for step in remaining for value in step.reads} | set(graph.results.values())
    before = [step for step in graph.steps if step.name in moved or step.name in views]
    stored = [v for step in before if step.name in moved for v in step.writes if v in read]
    return _before(graph, before, stored), _after(graph, remaining, stored)


def _without_idle_views(steps: list[Step], graph: Graph) -> list[Step]:
    needed = set(graph.results.values())
    found = []
    for step in reversed(steps):
        if not _is_view(step) or not needed.isdisjoint(step.writes):
            needed.update(step.reads)
            found.append(step)
    return found[::-1]


def _is_view(step: Step) -> bool:
    return step.is_view


def _constant_steps(graph: Graph) -> list[Step]:
    known = {v for v in graph.sources.values() if graph.values[v].memory_class in GIVEN}
    found = []
    for step in graph.steps:
        if step.reads and known.issuperset(step.reads):
            known.update(step.writes)
            found.append(step)
    return found


def _name(graph: Graph, value: ValueId) -> str:
    return f"{graph.values[value].name}:{value}"


def _before(graph: Graph, steps: list[Step], stored: list[ValueId]) -> Graph:
    """Return the first graph, in which each stored value overwrites its storage."""
    steps, values = _without_idle_views(steps, replace(graph, results={})), list(graph.values)
    read = {value for step in steps for value in step.reads}
    sources = {name: value for name, value in graph.sources.items() if value in read}
    mutations = {}
    for value in stored:
        place = Value(_name(graph, value), graph.spec(value), MemoryClass.CONSTANTS)
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


def _after(graph: Graph, steps: list[Step], stored: list[ValueId]) -> Graph:
    values = list(graph.values)
    read = {value for step in steps for value in step.reads} | set(graph.results.values())
    sources = {name: value for name, value in graph.sources.items() if value in read}
    for value in stored:
        sources[_name(graph, value)] = value
        values[value] = replace(values[value], memory_class=MemoryClass.CONSTANTS)
    return replace(graph, values=tuple(values), steps=tuple(steps), sources=sources)
