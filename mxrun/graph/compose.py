"""Composition of nodes: operators applied to entries, un-applied operators, replaced variables.

An un-applied operator is a node that has arguments but no inputs. It becomes an operator when it is
composed with its inputs; a missing one becomes a variable named `<node>_<argument>`, which has the
node's attributes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from mxrun.base.errors import Diagnostic, UserError
from mxrun.base.near_names import nearest
from mxrun.graph.node import Node, NodeEntry, topological
from mxrun.operator.register import AnyProperty


def input_names(prop: AnyProperty) -> tuple[str, ...]:
    """Return the names of the arguments and then of the auxiliary states."""
    return (*prop.list_arguments(), *prop.list_auxiliary_states())


def is_unapplied(node: Node) -> bool:
    """Return whether a node is an operator that still lacks all of its inputs."""
    return node.prop is not None and not node.inputs and bool(input_names(node.prop))


def visible_entries(node: Node) -> tuple[NodeEntry, ...]:
    """Return the outputs of a node that a network may use."""
    count = 1 if node.prop is None else node.prop.num_visible_outputs
    return tuple(NodeEntry(node, index) for index in range(count))


def with_inputs(node: Node, given: Mapping[str, NodeEntry], name: str | None = None) -> Node:
    """Return an un-applied operator with inputs, and with variables for the missing ones.

    given: by the names of the arguments, or of the variables that would stand for them. name: new
    name of the operator. Raises UserError for an argument that the operator does not have.
    """
    assert node.prop is not None
    final, names = node.name if name is None else name, input_names(node.prop)
    own = {f"{node.name}_{argument}": argument for argument in names}
    unknown = [key for key in given if key not in names and key not in own]
    if unknown:
        raise UserError(
            Diagnostic(
                f"{node.operator} {final!r} has no argument {key!r}",
                expected=f"one of {', '.join(names)}",
                hint=nearest(key, names),
            )
            for key in unknown
        )
    wired = {own.get(key, key) if key not in names else key: given[key] for key in given}
    entries = tuple(
        wired.get(argument)
        or NodeEntry(Node(f"{final}_{argument}", attributes=dict(node.attributes)))
        for argument in names
    )
    return replace(node, name=final, inputs=entries)


def replace_variables(
    heads: Sequence[NodeEntry], given: Mapping[str, NodeEntry], name: str | None = None
) -> tuple[NodeEntry, ...]:
    """Return the heads with variables replaced by entries, and the first head's node renamed.

    Nodes that read none of the variables stay the same nodes. Raises UserError for a variable that
    the graph does not have.
    """
    nodes = topological(heads)
    variables = [node.name for node in nodes if node.is_variable]
    require_variables(given, variables)
    entries: dict[NodeEntry, NodeEntry] = {}
    for node in nodes:
        inputs = tuple(entries.get(entry, entry) for entry in node.inputs)
        is_renamed = name is not None and node is heads[0].node
        if node.is_variable and node.name in given:
            entries[NodeEntry(node)] = given[node.name]
        elif inputs != node.inputs or is_renamed:
            changed = replace(node, inputs=inputs, name=name if is_renamed and name else node.name)
            for index in range(node.num_outputs):
                entries[NodeEntry(node, index)] = NodeEntry(changed, index)
    return tuple(entries.get(head, head) for head in heads)


def require_variables(given: Iterable[str], variables: Sequence[str]) -> None:
    """Raise UserError for each given name that is none of the variables."""
    unknown = [name for name in given if name not in variables]
    if unknown:
        raise UserError(
            Diagnostic(
                f"the symbol has no variable {name!r}",
                expected=f"one of {', '.join(variables)}",
                hint=nearest(name, variables),
            )
            for name in unknown
        )
