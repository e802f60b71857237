"""Commutation of max-pooling with a preceding monotone map: the pooling runs first.

max(relu(x)) = relu(max(x)). In training the map then reads and writes one element per window
instead of all, forward and backward, and its full-size output is not stored.

Needs: a forward graph before its gradient. Provides: the same results and gradients.
"""

from __future__ import annotations

from dataclasses import replace

from mxrun.graph.graph import Graph, GraphBuilder, MemoryClass, Step
from mxrun.passes.single_use import Readers, may_fuse, with_pairs

# Name of this pass among the fusions.
COMMUTE_MAXPOOL = "maximum before rectifier"
# Minimum ratio of elements to windows. With as many windows as elements the map saves nothing, and
# where it is another step may absorb its work.
_MIN_REDUCTION = 2


def commute_maxpool(graph: Graph) -> Graph:
    """Move each monotone map behind the max-pooling that is its only reader."""
    readers = Readers(graph)

    def following(step: Step) -> Step | None:
        reader = readers.only_one(step.outputs[0])
        return reader if reader is not None and _may_commute(graph, step, reader) else None

    return with_pairs(graph, following, _commuted)


def _may_commute(graph: Graph, function: Step, maximum: Step) -> bool:
    if function.prop is None or maximum.prop is None:
        return False
    if not (function.prop.is_monotone and maximum.prop.is_max_selection):
        return False
    read, mapped, pooled = (
        graph.spec(value) for value in (function.reads[0], *function.writes, *maximum.writes)
    )
    alike = read.dtype == mapped.dtype == pooled.dtype
    fewer = pooled.elements * _MIN_REDUCTION <= mapped.elements
    return alike and fewer and may_fuse(function) and may_fuse(maximum)


def _commuted(builder: GraphBuilder, function: Step, maximum: Step) -> tuple[Step, Step]:
    """Return the pooling applied to the map's input, then the map."""
    (end,) = maximum.writes
    spec = builder.values[end].spec
    pooled = builder.value(f"{maximum.name}_maxima", spec, MemoryClass.ACTIVATIONS)
    place = (function.order, 0)
    first = replace(maximum, inputs=function.inputs, outputs=(pooled,), readings=(place,))
    return first, replace(function, inputs=(pooled,), outputs=(end,))
