"""Splitting of backward steps into independent gradients.

The data gradient and the weight gradient of a product are two computations without shared work. As
separate steps each frees the tensors that it alone reads, and the scheduler may put other steps
between them.

Needs: backward steps without kernels. Provides: the same gradients from more steps.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace

from mxrun.graph.graph import Graph, Step, writes


def split_backward(graph: Graph) -> Graph:
    """Split every backward step into the groups of gradients that its operator declares."""
    return replace(graph, steps=tuple(part for step in graph.steps for part in _parts(step)))


def _parts(step: Step) -> Iterator[Step]:
    groups: list[list[int]] = []
    if step.forward is not None and step.prop is not None:
        requested = {i for i, value in enumerate(step.outputs) if value is not None}
        separate_groups = step.prop.independent_gradients()
        groups = [needed for group in separate_groups if (needed := sorted(requested & {*group}))]
    if len(groups) < 2:
        yield step
        return
    yield from (_only(step, group) for group in groups)


def _only(step: Step, group: Collection[int]) -> Step:
    """Return the part of a backward step that computes the gradients in `group`."""
    assert step.prop is not None
    outputs = tuple(value if i in group else None for i, value in enumerate(step.outputs))
    arguments = step.prop.list_arguments()
    name = f"{step.name}:{'+'.join(arguments[i] for i in group)}"
    return replace(step, name=name, outputs=outputs, requests=writes(outputs))
