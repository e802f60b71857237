"""Copies of the body of a recurrence under other names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from mxrun.graph.node import Node, NodeEntry, topological
from mxrun.graph.recurrence.operator import RecurrenceProperty
from mxrun.operator.register import AnyProperty

Rename = Callable[[str], str]


def renamed(heads: Sequence[NodeEntry], rename: Rename) -> tuple[NodeEntry, ...]:
    """Return a copy of the heads in which every node has another name."""
    copies: dict[Node, Node] = {}
    for node in topological(heads):
        copies[node] = replace(
            node,
            name=rename(node.name),
            prop=_renamed(node.prop, rename),
            inputs=tuple(NodeEntry(copies[entry.node], entry.index) for entry in node.inputs),
        )
    return tuple(NodeEntry(copies[head.node], head.index) for head in heads)


def _renamed(prop: AnyProperty | None, rename: Rename) -> AnyProperty | None:
    """Return a property; that of a recurrence with a renamed body."""
    if not isinstance(prop, RecurrenceProperty):
        return prop
    given = prop.parameters
    names = {
        key: tuple(map(rename, getattr(given, key)))
        for key in ("sequences", "memories", "initial", "final", "valid")
    }
    return RecurrenceProperty(given.model_copy(update=names), renamed(prop.body, rename))
