"""Gradients of the variables of a recurrence's body, as kinds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from mxrun.graph.node import Node, NodeEntry
from mxrun.operator.property import GradientKind


def gradient_kinds(
    nodes: Sequence[Node], outputs: Iterable[NodeEntry], memories: Mapping[str, NodeEntry]
) -> dict[str, GradientKind]:
    """Return the gradient kinds of the variables that get a gradient from an output.

    nodes: those of the body, inputs before users. memories: the heads that they read. A head gets
    a gradient if its memory does.
    """
    heads = [*outputs]
    while True:
        kinds = _kinds_below(nodes, heads)
        new = [head for name, head in memories.items() if name in kinds and head not in heads]
        if not new:
            return kinds
        heads += new


def _kinds_below(nodes: Sequence[Node], heads: Iterable[NodeEntry]) -> dict[str, GradientKind]:
    """Return the gradient kinds of the variables that get a gradient from the heads."""
    kinds = dict.fromkeys(heads, GradientKind.COMPUTES)
    for node in reversed(nodes):
        if node.prop is None or all(
            NodeEntry(node, index) not in kinds for index in range(node.num_outputs)
        ):
            continue
        for entry, kind in zip(node.inputs, node.prop.list_gradients(), strict=False):
            if kind is not GradientKind.ZERO:
                kinds[entry] = kind
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
