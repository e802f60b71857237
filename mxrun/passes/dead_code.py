"""Drop what nobody reads: outputs without a reader get the null request, idle steps go.

A hidden output that only backward needs (a dropout's mask) costs nothing in inference, and an
output of several that no layer uses is not computed.

Needs: a graph with all its readers. Provides: no value that nothing reads, but results and states.
"""

from __future__ import annotations

from dataclasses import replace

from mxrun.graph.graph import Graph, Step, ValueId, writes


def eliminate_dead_code(graph: Graph) -> Graph:
    """The same graph without unread outputs and without the steps that have no other."""
    needed: set[ValueId] = {*graph.results.values(), *graph.mutations}
    kept: list[Step] = []
    for step in reversed(graph.steps):
        outputs = tuple(value if value in needed else None for value in step.outputs)
        if not any(value is not None for value in outputs):
            continue
        needed.update(step.reads)
        if outputs != step.outputs:
            step = replace(step, outputs=outputs, requests=writes(outputs))
        kept.append(step)
    return replace(graph, steps=tuple(reversed(kept)))
