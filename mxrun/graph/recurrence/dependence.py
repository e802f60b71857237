"""Dependence of the outputs of a recurrence on its arguments, through all steps, by gradients."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from mxrun.graph.node import Node, NodeEntry
from mxrun.graph.recurrence.operator import RecurrenceProperty
from mxrun.operator.property import GradientKind


def arguments_of(prop: RecurrenceProperty, outputs: Collection[int]) -> list[int]:
    """Return the positions of the arguments on which the outputs at some positions depend.

    The gradients of all others are zero.
    """
    names = {entry.node.name for entry in _read_for(prop, outputs) if entry.node.is_variable}
    return [index for index, name in enumerate(prop.list_arguments()) if name in names]


def without_gradient(
    prop: RecurrenceProperty, outputs: Collection[int], arguments: Collection[int]
) -> Iterator[tuple[Node, int]]:
    """Yield the nodes of a body that have no gradient, with the position of the argument.

    These are between the outputs and the arguments at some positions.
    """
    read, changed = _read_for(prop, outputs), _depending_on(prop, arguments)
    for node in prop.nodes:
        own = _positions(node, read)
        if node.prop is None or not own:
            continue
        given = [index for index, entry in enumerate(node.inputs) if entry in changed]
        if isinstance(node.prop, RecurrenceProperty):
            yield from without_gradient(node.prop, own, given)
            continue
        kinds = node.prop.list_gradients()
        yield from (
            (node, index)
            for index in given
            if index < len(kinds) and kinds[index] is GradientKind.NONE
        )


def _read_for(prop: RecurrenceProperty, outputs: Collection[int]) -> set[NodeEntry]:
    """Return the entries of a body that the outputs at some positions depend on, in any step."""
    final = (memory.head for memory in prop.memories if memory.is_final)
    heads = (*prop.stacked, *final)
    found, before = {heads[index] for index in outputs}, 0
    while len(found) > before:
        before = len(found)
        for node in reversed(prop.nodes):
            own = _positions(node, found)
            found.update(node.inputs[index] for index in _sources(node, own))
        for memory in prop.memories:
            if NodeEntry(prop.variable(memory.name)) in found:
                found.add(memory.head)
    return found


def _depending_on(prop: RecurrenceProperty, arguments: Collection[int]) -> set[NodeEntry]:
    """Return the entries of a body that depend on the arguments at some positions."""
    names = prop.list_arguments()
    found = {NodeEntry(prop.variable(names[index])) for index in arguments}
    before = 0
    while len(found) > before:
        before = len(found)
        for node in prop.nodes:
            for index in range(node.num_outputs):
                if any(node.inputs[source] in found for source in _sources(node, [index])):
                    found.add(NodeEntry(node, index))
        for memory in prop.memories:
            if memory.head in found:
                found.add(NodeEntry(prop.variable(memory.name)))
    return found


def _positions(node: Node, entries: Collection[NodeEntry]) -> list[int]:
    """Return the positions of a node's outputs that are among some entries."""
    return [index for index in range(node.num_outputs) if NodeEntry(node, index) in entries]


def _sources(node: Node, outputs: Collection[int]) -> list[int]:
    """Return the positions of a node's arguments on which some outputs depend by a gradient."""
    if node.prop is None or not outputs:
        return []
    kinds = node.prop.list_gradients()
    positions: Iterable[int] = range(len(kinds))
    if isinstance(node.prop, RecurrenceProperty):
        positions = arguments_of(node.prop, outputs)
    return [index for index in positions if kinds[index] is not GradientKind.ZERO]
