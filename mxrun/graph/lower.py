"""Lowering of a Symbol to a Graph: one forward step per operator, with every shape known.

Needs: complete inference. Provides: a forward graph whose sources are the variables.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from mxrun.base.errors import Diagnostic, UserError
from mxrun.graph.graph import Graph, GraphBuilder, MemoryClass, ValueId
from mxrun.graph.infer import InferredSpecs
from mxrun.graph.lower_node import RANDOM_STATE, Iterations, add_node
from mxrun.graph.node import NodeEntry
from mxrun.graph.symbol import Symbol

__all__ = ["RANDOM_STATE", "UNTRAINED", "lower"]

# Step number without training; training steps count from 1. In every evaluation the records of a
# data set draw the same random numbers, whatever the batch size.
UNTRAINED = 0


def lower(
    symbol: Symbol,
    inference: InferredSpecs,
    inputs: Collection[str],
    is_train: bool,
    stand_ins: Mapping[str, str] | None = None,
) -> Graph:
    """Return the forward graph of `symbol`.

    Variables named in `inputs` are io slots, others parameters or auxiliary states. Every head is a
    result under its name, and so are output and loss of every operator with a loss. A recurrence
    is one step, or the steps of all its iterations if it is unrolled. stand_ins: by the names of
    parameters, the optimizer states that replace them; by those of carried states, the names of
    others in their place.

    Raises UserError if a shape is unknown or two nodes share a name.
    """
    stand_ins = stand_ins or {}
    _check_names(symbol)
    _check_complete(inference)
    builder = GraphBuilder(Graph(is_train=is_train))
    entries: dict[NodeEntry, ValueId] = {}
    states = dict.fromkeys(symbol.list_auxiliary_states(), MemoryClass.AUXILIARY)
    carried = (*symbol.list_carried_states(), *_overwritten(symbol))
    states |= dict.fromkeys(carried, MemoryClass.CARRIED)
    for node in symbol.nodes:
        if node.prop is None:
            entry = NodeEntry(node)
            kind = _memory_class(node.name, inputs, states, stand_ins)
            name = stand_ins.get(node.name, node.name)
            entries[entry] = builder.source(name, inference.spec(entry), kind)
            continue
        add_node(builder, node, inference, entries, Iterations())
        if node.prop.loss_output is not None:
            for loss in (NodeEntry(node), NodeEntry(node, node.prop.loss_output)):
                builder.results[loss.name] = entries[loss]
    for head in symbol.heads:
        if builder.results.setdefault(head.name, entries[head]) != entries[head]:
            raise UserError(
                Diagnostic(
                    f"two outputs are named {head.name!r}",
                    place=head.node.place,
                    hint="rename one of the layers or inputs",
                )
            )
    return builder.build()


def _overwritten(symbol: Symbol) -> list[str]:
    """Return the names of the variables that operators of the network overwrite."""
    return [
        node.inputs[source].name
        for node in symbol.nodes
        if node.prop is not None
        for source in node.prop.list_mutated_inputs()
    ]


def _memory_class(
    variable: str,
    inputs: Collection[str],
    states: Mapping[str, MemoryClass],
    stand_ins: Collection[str],
) -> MemoryClass:
    """Return the class of a variable: io slot, state, stand-in, else parameter."""
    if variable in inputs:
        return MemoryClass.IO
    if variable in states:
        return states[variable]
    return MemoryClass.OPTIMIZER if variable in stand_ins else MemoryClass.PARAMETERS


def _check_names(symbol: Symbol) -> None:
    seen: dict[str, object] = {}
    for node in symbol.nodes:
        if node.name in seen:
            raise UserError(
                Diagnostic(
                    f"two nodes are named {node.name!r}",
                    place=node.place,
                    hint="give each node a name of its own; to share a weight, wire one variable",
                )
            )
        seen[node.name] = node


def _check_complete(inference: InferredSpecs) -> None:
    if inference.diagnostics:
        raise UserError(inference.diagnostics)
    if not inference.complete:
        names = ", ".join(inference.unknown)
        raise UserError(
            Diagnostic(
                "not enough is known to infer every shape",
                got=f"need shape of: {names}",
                hint="declare the shape under network.inputs or variables",
            )
        )
