"""Rematerialisation of reorders: layout copies of inputs are made again in backward.

An input is live during the entire step, so its copy in another layout can be made again for one
pass over memory. That pays if the copy would otherwise be live at the peak.

Needs: kernels. Provides: the same values, from a few more reorders; the same graph if they do not
lower peak memory.
"""

from __future__ import annotations

from dataclasses import replace

from mxrun.graph.graph import (
    Graph,
    GraphBuilder,
    MemoryClass,
    Step,
    StepKind,
    ValueId,
    forward_count,
)
from mxrun.planner.inplace import inplace
from mxrun.planner.liveness import peak_bytes


def rematerialise_reorders(graph: Graph, in_place: bool = True) -> Graph:
    """Repeat the reorders of inputs before backward, if that lowers peak memory."""
    repeated = _repeated(graph)
    if len(repeated.steps) == len(graph.steps):
        return graph
    peaks = [peak_bytes(each, inplace(each, in_place)) for each in (graph, repeated)]
    return repeated if peaks[1] < peaks[0] else graph


def _repeated(graph: Graph) -> Graph:
    start = forward_count(graph.steps)
    if not start:
        return graph
    given = {v for v in graph.sources.values() if graph.values[v].memory_class is MemoryClass.IO}
    copies = {
        step.writes[0]: step
        for step in graph.steps[:start]
        if step.kind is StepKind.REORDER and given.issuperset(step.reads)
    }
    builder = GraphBuilder(graph)
    builder.steps = list(graph.steps[:start])
    again: dict[ValueId, ValueId] = {}
    for step in graph.steps[start:]:
        for value in step.reads:
            if value in copies and value not in again:
                again[value] = _copy(builder, copies[value])
        inputs = tuple(again.get(v, v) if v is not None else None for v in step.inputs)
        builder.step(replace(step, inputs=inputs))
    return builder.build()


def _copy(builder: GraphBuilder, step: Step) -> ValueId:
    """Append the same reorder again and return its new output."""
    (original,) = step.writes
    old = builder.values[original]
    value = builder.value(f"{old.name}:anew", old.spec, old.memory_class)
    name = f"{step.name}:anew"
    builder.step(replace(step, name=name, outputs=(value,)))
    return value
