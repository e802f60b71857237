"""Expansion of layers with `fused: false` into the networks that they are composites of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mxrun.base.dataclass import dataclass
from mxrun.base.tensor import TensorSpec
from mxrun.graph.infer import InferredSpecs, infer
from mxrun.graph.node import Node, NodeEntry
from mxrun.graph.recurrence.node import recurrent_node
from mxrun.graph.recurrence.parameters import RecurrenceParameters
from mxrun.operator.composite import Entry, RecurrentNetwork
from mxrun.operator.register import create


@dataclass(frozen=True)
class Expansion:
    """Network in place of a node: a variable for each input, and the visible outputs."""

    variables: tuple[Node, ...]
    outputs: tuple[NodeEntry, ...]
    inference: InferredSpecs


def expansion_of(node: Node, inputs: Sequence[TensorSpec]) -> Expansion | None:
    """Return the network of a node with these inputs; None if its operator is no composite.

    Raises UserError for parameters with which it is none.
    """
    if node.prop is None:
        return None
    names = (*node.prop.list_arguments(), *node.prop.list_auxiliary_states())
    variables = tuple(Node(f"{node.name}/{name}", place=node.place) for name in names)
    entries = [NodeEntry(variable) for variable in variables]
    shapes = [spec.shape for spec in inputs]
    outputs = node.prop.expand(_CompositeNodes(node), entries, shapes)
    if outputs is None:
        return None
    named = {variable.name: spec for variable, spec in zip(variables, inputs, strict=True)}
    known = {name: spec.shape for name, spec in named.items()}
    types = {name: spec.dtype for name, spec in named.items()}
    return Expansion(variables, tuple(outputs), infer(outputs, known, types))


class _CompositeNodes:
    """Builder of the nodes of one composite."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def apply(
        self,
        operator: str,
        name: str,
        inputs: Sequence[Entry],
        parameters: Mapping[str, object] | None = None,
    ) -> list[NodeEntry]:
        """Return the visible outputs of an operator."""
        prop = create(operator, parameters or {})
        node = Node(f"{self._node.name}/{name}", prop, tuple(inputs), place=self._node.place)
        return [NodeEntry(node, index) for index in range(prop.num_visible_outputs)]

    def recur(
        self, name: str, network: RecurrentNetwork
    ) -> tuple[list[NodeEntry], dict[str, NodeEntry]]:
        """Return the outputs of all steps, stacked, and the memories after the last one."""
        scope = f"{self._node.name}/{name}"
        keys = (*network.sequences, *network.initial, *network.shared)
        inside = {key: NodeEntry(Node(f"{scope}/{key}")) for key in keys}
        outputs, after = network.body(inside)
        memories = tuple(f"{scope}/{key}" for key in network.initial)
        initial = {key: entry for key, entry in network.initial.items() if entry is not None}
        parameters = RecurrenceParameters(
            sequences=tuple(f"{scope}/{key}" for key in network.sequences),
            memories=memories,
            offsets=(1,) * len(memories),
            initial=tuple(f"{scope}/{key}" for key in initial),
            num_outputs=len(outputs),
            final=memories,
            reverse=network.is_reversed,
            use_sequence_length=False,
            valid=(),
            steps=None,
            unroll=False,
        )
        given = {**network.sequences, **initial, **network.shared}
        node = recurrent_node(
            scope,
            (*outputs, *(after[key] for key in network.initial)),
            parameters,
            {f"{scope}/{key}": entry for key, entry in given.items()},
            self._node.place,
        )
        stacked = [NodeEntry(node, index) for index in range(len(outputs))]
        finals = enumerate(network.initial, len(outputs))
        return stacked, {key: NodeEntry(node, index) for index, key in finals}
