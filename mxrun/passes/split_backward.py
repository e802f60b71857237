"""Gradients that share no work, in steps of their own.

A product's data gradient and weight gradient are two computations that one backward step does only
for the sake of its name. Apart, each lets go of what it alone reads, and the planner may put other
steps between them.

Needs: backward steps without kernels. Provides: the same gradients from more steps.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace

from mxrun.graph.graph import Graph, Step, writes


def split_backward(graph: Graph) -> Graph:
    """The graph with every backward step cut into the groups that its operator declares."""
    return replace(graph, steps=tuple(part for step in graph.steps for part in _parts(step)))


def _parts(step: Step) -> Iterator[Step]:
    groups: list[list[int]] = []
    if step.forward is not None and step.prop is not None:
        asked = {i for i, value in enumerate(step.outputs) if value is not None}
        separate_groups = step.prop.independent_gradients()
        groups = [wanted for group in separate_groups if (wanted := sorted(asked & {*group}))]
    if len(groups) < 2:
        yield step
        return
    yield from (_only(step, group) for group in groups)


def _only(step: Step, group: Collection[int]) -> Step:
    """The part of a backward step that computes some of its gradients."""
    assert step.prop is not None
    outputs = tuple(value if i in group else None for i, value in enumerate(step.outputs))
    arguments = step.prop.list_arguments()
    name = f"{step.name}:{'+'.join(arguments[i] for i in group)}"
    return replace(step, name=name, outputs=outputs, requests=writes(outputs))
