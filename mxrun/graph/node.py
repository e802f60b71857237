"""Nodes of a user's network: variables and operators with their wiring."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field

from mxrun.base.dataclass import dataclass
from mxrun.base.errors import SourceLocation
from mxrun.base.layer_options import DEFAULTS, LayerOptions
from mxrun.operator.register import AnyProperty


@dataclass(frozen=True, eq=False)
class Node:
    """Variable (`prop` is None), or operator applied to entries of other nodes.

    inputs: the arguments and then the auxiliary states, in the property's order. attributes:
    MXNet's node attributes (`__shape__`, `__lr_mult__`, ...), as strings.
    """

    name: str
    prop: AnyProperty | None = None
    inputs: tuple[NodeEntry, ...] = ()
    attributes: Mapping[str, str] = field(default_factory=dict)
    place: SourceLocation | None = None
    options: LayerOptions = DEFAULTS

    @property
    def is_variable(self) -> bool:
        """True for an input, a parameter or a state."""
        return self.prop is None

    @property
    def operator(self) -> str:
        """Registered name of the operator; MXNet's `null` for a variable."""
        return "null" if self.prop is None else self.prop.type_string

    @property
    def num_outputs(self) -> int:
        """Number of outputs, hidden ones included."""
        return 1 if self.prop is None else len(self.prop.list_outputs())

    def entry_name(self, index: int) -> str:
        """Return MXNet's name of output `index`: the variable's own, or `conv1_output`."""
        if self.prop is None:
            return self.name
        return f"{self.name}_{self.prop.list_outputs()[index]}"

    def argument_entries(self) -> tuple[NodeEntry, ...]:
        """Return the inputs without the auxiliary states."""
        if self.prop is None:
            return ()
        return self.inputs[: len(self.prop.list_arguments())]


@dataclass(frozen=True)
class NodeEntry:
    """One output of a node."""

    node: Node
    index: int = 0

    @property
    def name(self) -> str:
        """MXNet's name of this output."""
        return self.node.entry_name(self.index)


def topological(heads: Iterable[NodeEntry]) -> list[Node]:
    """Return all nodes reachable from `heads`, inputs before users, depth-first like MXNet."""
    order: list[Node] = []
    seen: set[Node] = set()
    for head in heads:
        if head.node in seen:
            continue
        seen.add(head.node)
        stack: list[tuple[Node, Iterator[NodeEntry]]] = [(head.node, iter(head.node.inputs))]
        while stack:
            node, inputs = stack[-1]
            entry = next(inputs, None)
            if entry is None:
                order.append(node)
                stack.pop()
            elif entry.node not in seen:
                seen.add(entry.node)
                stack.append((entry.node, iter(entry.node.inputs)))
    return order
