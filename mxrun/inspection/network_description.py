"""Description of a network's graph as plain data, for drawings and JSON."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from mxrun.base.tensor import PartialShape
from mxrun.frontend import ModelDefinition
from mxrun.graph.compose import input_names
from mxrun.graph.infer import infer
from mxrun.graph.node import Node, NodeEntry
from mxrun.graph.symbol import Symbol
from mxrun.io.loading.batch import SAMPLE_WEIGHT
from mxrun.operator.register import AnyProperty

Report = dict[str, Any]
Shapes = Mapping[NodeEntry, PartialShape]


def describe_network(definition: ModelDefinition) -> Report:
    """Return the description of a config's network: name, batch size, and all nodes.

    Nodes are in topological order. Each has these keys:

    - kind: operator, unapplied (an operator without inputs), input (a variable filled with data)
      or variable;
    - operator, family (`OperatorFamily`), parameters: of an operator, as strings;
    - outputs: name and shape of each; inputs: the arguments, then the auxiliary states, with the
      node and output that each reads. Unknown shapes are null.
    """
    model = definition.model
    return {
        "kind": "network",
        "name": definition.options.name,
        "batch_size": definition.options.data.batch_size,
        "nodes": _described(model.symbol.nodes, model.inference.shapes, model.records),
    }


def describe_symbol(symbol: Symbol, name: str) -> Report:
    """Return the description of a symbol without data: its shapes follow from declared ones.

    The variables that no operator has made for itself are its inputs.
    """
    own = {
        f"{node.name}_{argument}"
        for node in symbol.nodes
        if node.prop is not None
        for argument in input_names(node.prop)
    }
    inputs = {variable for variable in symbol.list_inputs() if variable not in own}
    nodes = _described(symbol.nodes, infer(symbol.heads, {}).shapes, inputs)
    return {"kind": "network", "name": name, "batch_size": None, "nodes": nodes}


def describe_operator(prop: AnyProperty) -> Report:
    """Return the description of a network that is one operator without inputs."""
    name = prop.type_string
    nodes = _described([Node(name.lower(), prop)], {}, ())
    return {"kind": "network", "name": name, "batch_size": None, "nodes": nodes}


def _described(nodes: Sequence[Node], shapes: Shapes, inputs: Collection[str]) -> list[Report]:
    return [
        {
            "name": node.name,
            "kind": _kind(node, inputs),
            "operator": node.operator,
            "family": "variable" if node.prop is None else node.prop.family.value,
            "parameters": {} if node.prop is None else node.prop.parameters.to_strings(),
            "outputs": [
                {"name": name, "shape": _shape(shapes, NodeEntry(node, index))}
                for index, name in enumerate(_visible_outputs(node))
            ],
            "inputs": list(_inputs(node, shapes)),
        }
        for node in nodes
        if node.name != SAMPLE_WEIGHT
    ]


def _kind(node: Node, inputs: Collection[str]) -> str:
    if node.prop is None:
        return "input" if node.name in inputs else "variable"
    return "unapplied" if node.prop.list_arguments() and not node.inputs else "operator"


def _visible_outputs(node: Node) -> tuple[str, ...]:
    if node.prop is None:
        return ("output",)
    return node.prop.list_outputs()[: node.prop.num_visible_outputs]


def _inputs(node: Node, shapes: Shapes) -> Iterator[Report]:
    """Yield the arguments and auxiliary states; `node` is null if nothing is wired.

    The weights of samples, which mxrun fills itself, are left out.
    """
    if node.prop is None:
        return
    arguments, states = node.prop.list_arguments(), node.prop.list_auxiliary_states()
    for position, name in enumerate((*arguments, *states)):
        part: Report = {"argument": name, "auxiliary": position >= len(arguments)}
        if position < len(node.inputs):
            entry = node.inputs[position]
            if entry.node.name == SAMPLE_WEIGHT:
                continue
            source = {"node": entry.node.name, "output": entry.index}
            yield {**part, **source, "shape": _shape(shapes, entry)}
        else:
            yield {**part, "node": None, "output": 0, "shape": None}


def _shape(shapes: Shapes, entry: NodeEntry) -> list[int | None] | None:
    shape = shapes.get(entry)
    return None if shape is None else list(shape)
