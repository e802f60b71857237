"""Dead-code elimination: null requests for unread outputs, removal of steps without read outputs.

A hidden output that only backward reads (a dropout's mask) then costs nothing in inference, and an
output of several that no layer reads is not computed.

Needs: a graph with all its readers. Provides: a graph in which every value is read, or is a result
or a state.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from mxrun.graph.graph import Graph, Step, ValueId, writes


def eliminate_dead_code(graph: Graph) -> Graph:
    """Return the graph without unread outputs and without the steps that have no other."""
    needed: set[ValueId] = {*graph.results.values(), *graph.mutations}
    live: list[Step] = []
    for step in reversed(graph.steps):
        outputs = tuple(value if value in needed else None for value in step.outputs)
        if not any(value is not None for value in outputs):
            continue
        needed.update(step.reads)
        if outputs != step.outputs:
            step = replace(step, outputs=outputs, requests=writes(outputs))
        live.append(step)
    return replace(graph, steps=tuple(reversed(live)))


def without_unread_views(steps: Sequence[Step], needed: Iterable[ValueId]) -> list[Step]:
    """Return steps without the views that no later step reads; needed: values read elsewhere."""
    read, live = set(needed), list[Step]()
    for step in reversed(steps):
        if not step.is_view or not read.isdisjoint(step.writes):
            read.update(step.reads)
            live.append(step)
    return live[::-1]
