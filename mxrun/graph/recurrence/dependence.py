"""Dependence of the outputs of a recurrence on its arguments, through all steps, by gradients."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from mxrun.graph.node import Node, NodeEntry
from mxrun.graph.recurrence.gradient_kinds import differentiable, entries_below, positions
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
        own = positions(node, read)
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
    heads = (*prop.stacked, *(memory.head for memory in prop.memories if memory.is_final))
    memories = {memory.name: memory.head for memory in prop.memories}
    return entries_below(prop.nodes, [heads[index] for index in outputs], memories, _sources)


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


def _sources(node: Node, outputs: Sequence[int]) -> list[int]:
    """Return the positions of a node's arguments on which some outputs depend by a gradient."""
    found = differentiable(node)
    if isinstance(node.prop, RecurrenceProperty):
        own = arguments_of(node.prop, outputs)
        return [index for index in found if index in own]
    return found
