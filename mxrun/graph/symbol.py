"""Symbols: networks as values, composed from operators by name."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from typing import TypeVar

from mxrun.base.errors import Diagnostic, SourceLocation, UserError
from mxrun.base.near_names import nearest
from mxrun.base.once import cached_property
from mxrun.graph.compose import is_unapplied, replace_variables, visible_entries, with_inputs
from mxrun.graph.json import dump, load
from mxrun.graph.naming_scopes import NameManager, Prefix, fresh_names, node_name
from mxrun.graph.node import Node, NodeEntry, topological
from mxrun.operator.register import create

__all__ = [
    "NameManager",
    "Prefix",
    "Symbol",
    "apply",
    "apply_entries",
    "fresh_names",
    "group",
    "load_json",
    "variable",
]

AnySymbol = TypeVar("AnySymbol", bound="Symbol")


class Symbol:
    """Immutable list of entries of a graph, or the outputs of one un-applied operator."""

    def __init__(self, heads: Iterable[NodeEntry]) -> None:
        self.heads = tuple(heads)

    def __len__(self) -> int:
        return len(self.heads)

    def __iter__(self: AnySymbol) -> Iterator[AnySymbol]:
        return (type(self)([head]) for head in self.heads)

    @property
    def is_unapplied(self) -> bool:
        """True for an operator that still lacks all of its inputs."""
        return bool(self.heads) and is_unapplied(self.heads[0].node)

    @cached_property
    def _applied_heads(self) -> tuple[NodeEntry, ...]:
        if not self.is_unapplied:
            return self.heads
        node = with_inputs(self.heads[0].node, {})
        return tuple(NodeEntry(node, head.index) for head in self.heads)

    def applied(self: AnySymbol) -> AnySymbol:
        """Return the symbol; an un-applied operator with a variable for each of its inputs."""
        return type(self)(self._applied_heads) if self.is_unapplied else self

    def compose(
        self: AnySymbol, inputs: Mapping[str, Symbol], name: str | None = None
    ) -> AnySymbol:
        """Return the symbol with inputs; this one stays as it is.

        inputs: of an un-applied operator, by the names of its arguments; of any other symbol, what
        replaces its variables, by their names. name: new name of the first output's node.

        Raises UserError for a name that the operator or the symbol does not have.
        """
        given = {key: single(symbol, key) for key, symbol in inputs.items()}
        if not self.is_unapplied:
            return type(self)(replace_variables(self.heads, given, name))
        node = with_inputs(self.heads[0].node, given, name)
        return type(self)(NodeEntry(node, head.index) for head in self.heads)

    def __getitem__(self: AnySymbol, key: int | slice | str) -> AnySymbol:
        """Return one output, by position or by name (`fc1_output`, or `fc1` for its first output).

        Raises UserError for an unknown name.
        """
        if isinstance(key, slice):
            return type(self)(self.heads[key])
        if isinstance(key, int):
            return type(self)([self.heads[key]])
        by_name = {entry.name: entry for entry in self.heads}
        first = {entry.node.name: entry for entry in self.heads if entry.index == 0}
        by_name = first | by_name
        if key not in by_name:
            hint = nearest(key, by_name) or f"outputs: {', '.join(self.list_outputs())}"
            raise UserError(Diagnostic(f"the symbol has no output {key!r}", hint=hint))
        return type(self)([by_name[key]])

    @cached_property
    def nodes(self) -> tuple[Node, ...]:
        """All nodes, inputs before users; of an un-applied operator also its variables."""
        return tuple(topological(self._applied_heads))

    def list_outputs(self) -> list[str]:
        """Return the names of the heads."""
        return [entry.name for entry in self.heads]

    def list_arguments(self) -> list[str]:
        """Return the names of the variables that are arguments, in depth-first order."""
        auxiliary = set(self.list_auxiliary_states())
        return [n.name for n in self.nodes if n.is_variable and n.name not in auxiliary]

    def list_auxiliary_states(self) -> list[str]:
        """Return the names of the variables that hold auxiliary states."""
        return [
            *dict.fromkeys(
                entry.node.name
                for node in self.nodes
                for entry in node.inputs[len(node.argument_entries()) :]
            )
        ]

    def list_carried_states(self) -> list[str]:
        """Return the names of the auxiliary states that carry values from each run to the next."""
        found = []
        for node in self.nodes:
            if node.prop is not None:
                names = {carried.state for carried in node.prop.list_carried_states()}
                states = node.inputs[len(node.argument_entries()) :]
                named = zip(node.prop.list_auxiliary_states(), states, strict=True)
                found += [entry.node.name for name, entry in named if name in names]
        return [*dict.fromkeys(found)]

    def list_inputs(self) -> list[str]:
        """Return the names of all variables, in depth-first order."""
        return [node.name for node in self.nodes if node.is_variable]

    def get_internals(self: AnySymbol) -> AnySymbol:
        """Return all visible outputs of all nodes as one symbol."""
        return type(self)(entry for node in self.nodes for entry in visible_entries(node))

    def get_children(self: AnySymbol) -> AnySymbol | None:
        """Return the inputs of the heads' nodes as one symbol; None for variables."""
        nodes = dict.fromkeys(head.node for head in self._applied_heads)
        entries = [entry for node in nodes for entry in node.inputs]
        return type(self)(entries) if entries else None

    def tojson(self) -> str:
        """Return the graph in MXNet's JSON."""
        return dump(self._applied_heads)

    def graph_hash(self) -> str:
        """Return the SHA-256 of the graph: operators, explicit parameters, names and wiring."""
        return hashlib.sha256(self.tojson().encode()).hexdigest()


def variable(
    name: str, attributes: Mapping[str, str] | None = None, place: SourceLocation | None = None
) -> Symbol:
    """Return a symbol for an input, parameter or state."""
    return Symbol([NodeEntry(Node(name, attributes=dict(attributes or {}), place=place))])


def load_json(text: str) -> Symbol:
    """Return the symbol in MXNet's JSON. Raises UserError naming a node that cannot be used."""
    return Symbol(load(text))


def group(symbols: Iterable[Symbol]) -> Symbol:
    """Return several symbols as one symbol with all their outputs."""
    return Symbol(head for symbol in symbols for head in symbol.applied().heads)


def apply(
    operator: str,
    inputs: Mapping[str, Symbol],
    parameters: Mapping[str, object] | None = None,
    name: str | None = None,
) -> Symbol:
    """Create an operator by name and wire it; return its visible outputs.

    Missing arguments become variables named `<name>_<argument>`.

    Raises UserError for an unknown operator, bad parameters or an argument that the operator does
    not have.
    """
    return Symbol(apply_entries(operator, inputs, parameters or {}, name)).applied()


def apply_entries(
    operator: str,
    inputs: Mapping[str, Symbol],
    parameters: Mapping[str, object],
    name: str | None = None,
    attributes: Mapping[str, str] | None = None,
) -> tuple[NodeEntry, ...]:
    """Return the visible outputs of an operator, un-applied if there are no inputs.

    Raises UserError as `apply`.
    """
    prop = create(operator, parameters)
    node = Node(node_name(name, operator), prop, attributes=dict(attributes or {}))
    if inputs:
        node = with_inputs(node, {key: single(each, key, node) for key, each in inputs.items()})
    return visible_entries(node)


def single(symbol: Symbol, argument: str, reader: Node | None = None) -> NodeEntry:
    """Return the only output of a symbol that is given for an argument.

    Raises UserError if it has several.
    """
    heads = symbol.applied().heads
    if len(heads) != 1:
        outputs = ", ".join(symbol.list_outputs())
        whose = f"{reader.operator}'s argument" if reader is not None else "the argument"
        raise UserError(
            Diagnostic(
                f"{whose} {argument!r} takes one output",
                got=f"{len(symbol)} outputs: {outputs}",
                hint="choose one with [index]",
            )
        )
    return heads[0]
