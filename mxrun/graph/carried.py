"""States that carry values from each run of a phase to the next: names, and how to omit them."""

from __future__ import annotations

from dataclasses import replace

from mxrun.base.errors import Diagnostic, UserError
from mxrun.graph.node import Node, NodeEntry
from mxrun.graph.symbol import Symbol

# Operator that marks an output of a layer whose states are carried.
CARRIED = "_carried"

# A user's names have no colon.
_EVALUATION = ":evaluation"


def evaluation_state(name: str) -> str:
    """Return the name of the tensor in which evaluation has the carried state `name`.

    What training carries is thus the same after an evaluation in the middle of it.
    """
    return f"{name}{_EVALUATION}"


def is_evaluation_state(name: str) -> bool:
    """Return whether a tensor is a carried state of evaluation, which no checkpoint holds."""
    return name.endswith(_EVALUATION)


def state_of(name: str) -> str:
    """Return the name of a carried state in the network."""
    return name.removesuffix(_EVALUATION)


def uncarried(symbol: Symbol) -> Symbol:
    """Return the network with states that begin as zeros in every run, instead of being carried.

    Only states of layers, which `CARRIED` marks, are concerned. Raises UserError if another layer
    reads their last values.
    """
    marks = [node for node in symbol.nodes if node.operator == CARRIED]
    states = {entry.node for node in marks for entry in node.inputs[len(node.argument_entries()) :]}
    made: dict[NodeEntry, NodeEntry] = {}
    for node in symbol.nodes:
        if node.operator == CARRIED:
            made[NodeEntry(node)] = made[node.inputs[0]]
            continue
        changed = _from_zeros(node, states)
        if any(entry not in made for entry in changed.inputs):
            problem = f"{node.operator} {node.name!r} reads the last states of a layer"
            raise UserError(Diagnostic(problem, node.place, "a layer's outputs at all positions"))
        inputs = tuple(made[entry] for entry in changed.inputs)
        changed = changed if inputs == changed.inputs else replace(changed, inputs=inputs)
        for index in range(changed.num_outputs):
            made[NodeEntry(node, index)] = NodeEntry(changed, index)
    return Symbol(made[head] for head in symbol.heads)


def _from_zeros(node: Node, states: set[Node]) -> Node:
    """Return a node without its arguments that are carried states."""
    if node.prop is None or not any(entry.node in states for entry in node.inputs):
        return node
    names = (*node.prop.list_arguments(), *node.prop.list_auxiliary_states())
    given = dict(zip(names, node.inputs, strict=True))
    prop = node.prop.from_zeros([name for name, entry in given.items() if entry.node in states])
    names = (*prop.list_arguments(), *prop.list_auxiliary_states())
    return replace(node, prop=prop, inputs=tuple(given[name] for name in names))
