"""MXNet's JSON form of a symbol (the format of MXNet 1.x's `Symbol.tojson`)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from mxrun.base.errors import Diagnostic, MxrunError, UserError
from mxrun.base.params import from_strings
from mxrun.graph.node import Node, NodeEntry, topological
from mxrun.graph.recurrence.operator import RecurrenceProperty
from mxrun.graph.recurrence.parameters import RecurrenceParameters
from mxrun.operator.register import AnyProperty, create_from_strings

# MXNet version of the format; MXNet's loader upgrades files of older versions.
_VERSION = 10901


def dump(heads: Sequence[NodeEntry]) -> str:
    """Return the graph in MXNet's JSON: explicit parameters as strings, depth-first order.

    The body of a recurrence is the only item of its node's `subgraphs`.
    """
    return json.dumps(_document(heads), indent=2)


def _document(heads: Sequence[NodeEntry]) -> dict[str, object]:
    nodes = topological(heads)
    index = {node: position for position, node in enumerate(nodes)}
    entries: list[dict[str, object]] = []
    row_pointer = [0]
    for node in nodes:
        record: dict[str, object] = {"op": node.operator, "name": node.name}
        strings = {} if node.prop is None else node.prop.parameters.to_strings()
        if strings or node.attributes:
            record["attrs"] = dict(sorted({**strings, **node.attributes}.items()))
        record["inputs"] = [[index[entry.node], entry.index, 0] for entry in node.inputs]
        if isinstance(node.prop, RecurrenceProperty):
            record["subgraphs"] = [_document(node.prop.body)]
        entries.append(record)
        row_pointer.append(row_pointer[-1] + node.num_outputs)
    return {
        "nodes": entries,
        "arg_nodes": [index[node] for node in nodes if node.is_variable],
        "node_row_ptr": row_pointer,
        "heads": [[index[head.node], head.index, 0] for head in heads],
        "attrs": {"mxnet_version": ["int", _VERSION]},
    }


def load(text: str) -> tuple[NodeEntry, ...]:
    """Return the heads of a graph in MXNet's JSON.

    Raises UserError naming the node that cannot be used, and the reason.
    """
    try:
        return _heads(json.loads(text))
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise UserError(Diagnostic("not a symbol in MXNet's JSON form", got=reason)) from error


def _heads(document: Mapping[str, Any]) -> tuple[NodeEntry, ...]:
    nodes: list[Node] = []
    for record in document["nodes"]:
        nodes.append(_node(record, nodes))
    return tuple(_entry(nodes, head, "heads") for head in document["heads"])


def _node(record: Mapping[str, Any], nodes: list[Node]) -> Node:
    name, operator = str(record["name"]), str(record["op"])
    # Before version 1.0, MXNet wrote "param" or "attr".
    attributes: dict[str, str] = {}
    for key in ("param", "attr", "attrs"):
        attributes.update({str(k): str(v) for k, v in record.get(key, {}).items()})
    inputs = tuple(_entry(nodes, reference, name) for reference in record["inputs"])
    if operator == "null":
        return Node(name, inputs=inputs, attributes=attributes)
    hidden = {key: value for key, value in attributes.items() if key.startswith("__")}
    strings = {key: value for key, value in attributes.items() if key not in hidden}
    try:
        prop = _property(operator, strings, record)
    except MxrunError as error:
        raise UserError(Diagnostic(f"node {name!r}: {error}")) from error
    expected = (*prop.list_arguments(), *prop.list_auxiliary_states())
    if len(inputs) != len(expected):
        raise UserError(
            Diagnostic(
                f"node {name!r}: {operator} has {len(inputs)} inputs",
                expected=f"{len(expected)}: {', '.join(expected)}",
            )
        )
    return Node(name, prop, inputs, hidden)


def _property(operator: str, strings: Mapping[str, str], record: Mapping[str, Any]) -> AnyProperty:
    """Return the property of an operator; of a recurrence, with its body."""
    if operator != RecurrenceProperty.type_string:
        return create_from_strings(operator, strings)
    parameters, problems = from_strings(RecurrenceParameters, strings)
    if parameters is None:
        raise UserError(problems)
    (body,) = record["subgraphs"]
    prop = RecurrenceProperty(parameters, _heads(body))
    prop.require_consistent()
    return prop


def _entry(nodes: list[Node], reference: Any, owner: str) -> NodeEntry:
    position, index = int(reference[0]), int(reference[1])
    if not 0 <= position < len(nodes) or not 0 <= index < nodes[position].num_outputs:
        raise UserError(
            Diagnostic(f"node {owner!r} reads {reference}, which no earlier node gives")
        )
    return NodeEntry(nodes[position], index)
