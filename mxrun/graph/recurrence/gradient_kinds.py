"""Gradients of the variables of a recurrence's body, as kinds."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from mxrun.graph.node import Node, NodeEntry
from mxrun.operator.property import GradientKind

# Returns the positions of a node's arguments on which outputs at some positions depend.
Sources = Callable[[Node, Sequence[int]], Iterable[int]]


def differentiable(node: Node, outputs: Sequence[int] = ()) -> list[int]:
    """Return the positions of a node's arguments whose gradients are not always zero.

    They are those of all its outputs.
    """
    del outputs
    kinds = () if node.prop is None else node.prop.list_gradients()
    return [index for index, kind in enumerate(kinds) if kind is not GradientKind.ZERO]


def entries_below(
    nodes: Sequence[Node],
    heads: Iterable[NodeEntry],
    memories: Mapping[str, NodeEntry],
    sources: Sources = differentiable,
) -> set[NodeEntry]:
    """Return the heads and the entries that get a gradient from one of them, in any step.

    nodes: those of the body, inputs before users. memories: the heads that they read. A head gets
    a gradient if its memory does.
    """
    found, before = set(heads), 0
    while len(found) > before:
        before = len(found)
        for node in reversed(nodes):
            if own := positions(node, found):
                found.update(node.inputs[index] for index in sources(node, own))
        variables = {entry.node.name for entry in found if entry.node.is_variable}
        found.update(head for name, head in memories.items() if name in variables)
    return found


def positions(node: Node, entries: Collection[NodeEntry]) -> list[int]:
    """Return the positions of a node's outputs that are among some entries."""
    return [index for index in range(node.num_outputs) if NodeEntry(node, index) in entries]


def gradient_kinds(
    nodes: Sequence[Node], outputs: Iterable[NodeEntry], memories: Mapping[str, NodeEntry]
) -> dict[str, GradientKind]:
    """Return the gradient kinds of the variables that get a gradient from an output.

    nodes, memories: as in `entries_below`.
    """
    found = entries_below(nodes, outputs, memories)
    kinds = dict.fromkeys(found, GradientKind.COMPUTES)
    for node in reversed(nodes):
        if node.prop is not None and positions(node, found):
            own = node.prop.list_gradients()
            kinds.update((node.inputs[index], own[index]) for index in differentiable(node))
    return {entry.node.name: kind for entry, kind in kinds.items() if entry.node.is_variable}


def differentiated_variables(nodes: Iterable[Node]) -> frozenset[str]:
    """Return the names of the variables for which some node's operator has a gradient."""
    found = set()
    for node in nodes:
        if node.prop is not None:
            named = zip(node.argument_entries(), node.prop.list_arguments(), strict=True)
            differentiated = node.prop.list_differentiated()
            found |= {
                entry.node.name
                for entry, name in named
                if entry.node.is_variable and name in differentiated
            }
    return frozenset(found)
