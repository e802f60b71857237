"""Symbols: networks as values, composed from operators by name."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cached_property

from mxrun.base.errors import Diagnostic, SourceLocation, UserError
from mxrun.base.near_names import nearest
from mxrun.graph.json import dump, load
from mxrun.graph.node import Node, NodeEntry, topological
from mxrun.operator.register import create


class NameManager:
    """Generator of MXNet's names for unnamed nodes: `convolution0`, `convolution1`, ..."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    def name(self, operator: str) -> str:
        """Return the next name for an operator."""
        hint = operator.lower()
        count = self._counts.get(hint, 0)
        self._counts[hint] = count + 1
        return f"{hint}{count}"


_NAMES: ContextVar[NameManager] = ContextVar("names", default=NameManager())  # noqa: B039


@contextmanager
def fresh_names() -> Iterator[None]:
    """Context manager within which automatic names count from 0, so that they are stable."""
    token = _NAMES.set(NameManager())
    try:
        yield
    finally:
        _NAMES.reset(token)


class Symbol:
    """Immutable list of entries of a graph."""

    def __init__(self, heads: Iterable[NodeEntry]) -> None:
        self.heads = tuple(heads)

    def __len__(self) -> int:
        return len(self.heads)

    def __getitem__(self, key: int | str) -> Symbol:
        """Return one output, by position or by name (`fc1_output`, or `fc1` for its first output).

        Raises UserError for an unknown name.
        """
        if isinstance(key, int):
            return Symbol([self.heads[key]])
        by_name = {entry.name: entry for entry in self.heads}
        first = {entry.node.name: entry for entry in self.heads if entry.index == 0}
        by_name = first | by_name
        if key not in by_name:
            hint = nearest(key, by_name) or f"outputs: {', '.join(self.list_outputs())}"
            raise UserError(Diagnostic(f"the symbol has no output {key!r}", hint=hint))
        return Symbol([by_name[key]])

    @cached_property
    def nodes(self) -> tuple[Node, ...]:
        """All nodes, inputs before users."""
        return tuple(topological(self.heads))

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
            entry.node.name
            for node in self.nodes
            for entry in node.inputs[len(node.argument_entries()) :]
        ]

    def get_internals(self) -> Symbol:
        """Return all visible outputs of all nodes as one symbol."""
        return Symbol(
            NodeEntry(node, index)
            for node in self.nodes
            for index in range(1 if node.prop is None else node.prop.num_visible_outputs)
        )

    def tojson(self) -> str:
        """Return the graph in MXNet's JSON."""
        return dump(self.heads)

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
    return Symbol(head for symbol in symbols for head in symbol.heads)


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
    prop = create(operator, parameters or {})
    node_name = name if name is not None else _NAMES.get().name(operator)
    arguments = (*prop.list_arguments(), *prop.list_auxiliary_states())
    unknown = [key for key in inputs if key not in arguments]
    if unknown:
        raise UserError(
            Diagnostic(
                f"{operator} {node_name!r} has no argument {key!r}",
                expected=f"one of {', '.join(arguments)}",
                hint=nearest(key, arguments),
            )
            for key in unknown
        )
    wired = {key: _single(operator, key, symbol) for key, symbol in inputs.items()}
    entries = tuple(
        wired.get(argument) or NodeEntry(Node(f"{node_name}_{argument}")) for argument in arguments
    )
    node = Node(node_name, prop, entries)
    return Symbol(NodeEntry(node, index) for index in range(prop.num_visible_outputs))


def _single(operator: str, argument: str, symbol: Symbol) -> NodeEntry:
    if len(symbol) != 1:
        outputs = ", ".join(symbol.list_outputs())
        raise UserError(
            Diagnostic(
                f"{operator}'s argument {argument!r} takes one output",
                got=f"{len(symbol)} outputs: {outputs}",
                hint="choose one with [index]",
            )
        )
    return symbol.heads[0]
