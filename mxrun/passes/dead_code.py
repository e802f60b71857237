"""Dead-code elimination: null requests for unread outputs, removal of steps without read outputs.

A hidden output that only backward reads (a dropout's mask) then costs nothing in inference, and an
output of several that no layer reads is not computed.

Needs: a graph with all its readers. Provides: a graph in which every value is read, or is a result
or a state.
"""

from __future__ import annotations

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
