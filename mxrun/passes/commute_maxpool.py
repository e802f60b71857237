"""Maxima over windows are taken before a function that keeps the order of numbers, not after.

The maximum of rectified numbers is the rectified maximum. In training the rectifier then works on
one number of each window, forward and backward, and what it would have made of all the others need
not be kept.

Needs: a forward graph before its gradient. Provides: the same results and gradients.
"""

from __future__ import annotations

from dataclasses import replace

from mxrun.graph.graph import Graph, GraphBuilder, MemoryClass, Step
from mxrun.passes.single_use import Readers, may_join, with_pairs

# What this pass is called among the fusions.
MAXIMA_FIRST = "maximum before rectifier"
# By how much fewer the windows must be than the numbers: where they are as many, another step may
# as well do the function's work beside its own.
_MIN_REDUCTION = 2


def commute_maxpool(graph: Graph) -> Graph:
    """The graph with each such function behind the maxima that alone read it."""
    readers = Readers(graph)
    functions = {}
    for step in graph.steps:
        following = readers.only_one(step.outputs[0])
        if following is not None and _may_change_places(graph, step, following):
            functions[following.name] = step
    return with_pairs(graph, functions, _changed)


def _may_change_places(graph: Graph, function: Step, maximum: Step) -> bool:
    if function.prop is None or maximum.prop is None:
        return False
    if not (function.prop.is_monotone and maximum.prop.is_max_selection):
        return False
    read, made, chosen = (
        graph.spec(value) for value in (function.reads[0], *function.writes, *maximum.writes)
    )
    alike = read.dtype == made.dtype == chosen.dtype
    fewer = chosen.elements * _MIN_REDUCTION <= made.elements
    return alike and fewer and may_join(function) and may_join(maximum)


def _changed(builder: GraphBuilder, function: Step, maximum: Step) -> tuple[Step, Step]:
    """The maximum, which reads what the function read, and the function of that."""
    (end,) = maximum.writes
    spec = builder.values[end].spec
    chosen = builder.value(f"{maximum.name}_maxima", spec, MemoryClass.ACTIVATIONS)
    place = (function.order, 0)
    first = replace(maximum, inputs=function.inputs, outputs=(chosen,), readings=(place,))
    return first, replace(function, inputs=(chosen,), outputs=(end,))
