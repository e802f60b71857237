"""Translation of a complete symbol to an nn.Module: straight-line code that calls modules."""

from __future__ import annotations

import operator
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import fx, nn

from mxrun.peers.pytorch import LOSSES, MODULES, OPERATORS, RESULTS
from mxrun.peers.pytorch.module import ReferenceModule
from mxrun.peers.pytorch.parameters import MXNetParameters, Tensor
from mxrun.peers.pytorch_carried import PASSED, carried_values, read_state, write_state
from mxrun.peers.pytorch_symbol import SymbolGraph, SymbolNode

# Their backward does not read their outputs, so a following ReLU may run in place.
_OVERWRITABLE = ("BatchNorm", "Convolution", "FullyConnected", "elemwise_add")


@dataclass(frozen=True)
class TorchNetwork:
    """The module, and its trained parameters by their names in the symbol."""

    module: Any
    trained: Mapping[str, Any]


def build_network(
    graph: SymbolGraph,
    variables: Mapping[str, Tensor],
    inputs: Sequence[str],
    trained: Collection[str],
) -> TorchNetwork:
    """Build the network over `inputs`, in that order; its variables are parameters and buffers.

    With names in `trained` it returns (objective, mean loss), each summed over the symbol's losses,
    else the symbol's outputs. Raises ValueError for unsupported operators and losses.
    """
    builder = _Builder(graph, variables, trained)
    return TorchNetwork(builder.build(inputs), {name: builder.variables[name] for name in trained})


class _Builder:
    def __init__(
        self, graph: SymbolGraph, variables: Mapping[str, Tensor], trained: Collection[str]
    ) -> None:
        self.graph, self.training = graph, bool(trained)
        self.root, self.code = nn.Module(), fx.Graph()
        # By the number of a node, where the next values of its carried states are.
        self.carried = {
            index: carried_values(node, MXNetParameters(node.attributes, self.training))
            for index, node in enumerate(graph.nodes)
        }
        self.states = {
            graph.nodes[index].inputs[position][0]
            for index, values in self.carried.items()
            for position in values
        }
        states = {graph.nodes[index].name for index in self.states}
        self.variables = {
            name: nn.Parameter(tensor, requires_grad=name in trained)
            if name not in graph.auxiliary | states
            else tensor
            for name, tensor in variables.items()
        }
        self.values: list[Any] = []
        self.readers = [0] * len(graph.nodes)
        for node in graph.nodes:
            for source, _ in node.inputs:
                self.readers[source] += 1
        for head, _ in graph.heads:
            self.readers[head] += 1

    def build(self, inputs: Sequence[str]) -> Any:
        """Return the module."""
        given = {name: self.code.placeholder(f"input{i}") for i, name in enumerate(inputs)}
        for index, node in enumerate(self.graph.nodes):
            if node.operator == "null":
                self.values.append(given.get(node.name))
            elif node.operator in PASSED:
                self.values.append(self._value(*node.inputs[PASSED[node.operator]]))
            else:
                self.values.append(self._call(index, node))
        heads = [self._value(source, output) for source, output in self.graph.heads]
        self._carry()
        if self.training:
            heads = [self._total(heads, 0), self._total(heads, 1)]
        self.code.output(tuple(heads))
        return fx.GraphModule(self.root, self.code)

    def _carry(self) -> None:
        """Store the values of carried states for the next call."""
        written: set[int] = set()
        for index, values in self.carried.items():
            inputs = self.graph.nodes[index].inputs
            for position, place in values.items():
                state = inputs[position][0]
                if state not in written:
                    value = self._value(*inputs[place] if place >= 0 else (index, -1 - place))
                    # Every node reads a copy of the state.
                    (kept,) = self._value(state, 0).args
                    self.code.call_function(write_state, (kept, value))
                written.add(state)

    def _total(self, heads: list[Any], part: int) -> Any:
        total = None
        for (index, _), head in zip(self.graph.heads, heads, strict=True):
            node = self.graph.nodes[index]
            if node.operator not in LOSSES:
                raise ValueError(
                    f"the output {node.operator} {node.name!r} is not a supported loss"
                )
            value = self.code.call_function(operator.getitem, (head, part))
            total = (
                value if total is None else self.code.call_function(operator.add, (total, value))
            )
        return total

    def _call(self, index: int, node: SymbolNode) -> Any:
        """Add the node's module to the root and return code that calls it."""
        parameters = MXNetParameters(node.attributes, self.training)
        module, read = self._module(index, node, parameters)
        if module is None:
            if node.operator not in OPERATORS:
                raise ValueError(f"operator {node.operator} ({node.name!r}) is not supported")
            module, read = ReferenceModule(OPERATORS[node.operator], parameters), len(node.inputs)
        if isinstance(module, nn.ReLU):
            module.inplace = self._may_overwrite(node)
        self.root.add_module(f"node{index}", module)
        sources = [self._value(*source) for source in node.inputs[:read]]
        called = self.code.call_module(f"node{index}", tuple(sources))
        return _Several(called) if isinstance(module, ReferenceModule) else called

    def _module(self, index: int, node: SymbolNode, parameters: MXNetParameters) -> tuple[Any, int]:
        """Return a loss or library module, or None, and the number of inputs to call it with."""
        make_loss = (LOSSES if self.training else RESULTS).get(node.operator)
        if make_loss is not None:
            loss = make_loss(parameters)
            if self.training and self.readers[index] > 1:
                raise ValueError(
                    f"{node.operator} {node.name!r} is a loss that other operators read"
                )
            return loss, len(node.inputs) if self.training else 1
        names = [self.graph.nodes[source].name for source, _ in node.inputs[1:]]
        statistics = node.operator == "BatchNorm" and self._reads_statistics(index)
        make = MODULES.get(node.operator)
        if make is None or statistics or not all(name in self.variables for name in names):
            return None, 0
        return make(parameters, [self.variables[name] for name in names]), 1

    def _reads_statistics(self, index: int) -> bool:
        """Return whether an output of the node other than the first is used."""
        read = [source for node in self.graph.nodes for source in node.inputs]
        return any(source == index and output for source, output in (*read, *self.graph.heads))

    def _may_overwrite(self, node: SymbolNode) -> bool:
        source, _ = node.inputs[0]
        return self.readers[source] == 1 and self.graph.nodes[source].operator in _OVERWRITABLE

    def _value(self, source: int, output: int) -> Any:
        """Return code for one output of a node; a variable becomes an attribute of the root."""
        value = self.values[source]
        if value is None:
            name = self.graph.nodes[source].name
            if name not in self.variables:
                raise ValueError(f"no array for {name}")
            attribute = f"variable{source}"
            variable = self.variables[name]
            if isinstance(variable, nn.Parameter):
                self.root.register_parameter(attribute, variable)
            else:
                self.root.register_buffer(attribute, variable)
            value = self.code.get_attr(attribute)
            if source in self.states:
                value = self.code.call_function(read_state, (value,))
            self.values[source] = value
        if isinstance(value, _Several):
            return self.code.call_function(operator.getitem, (value.called, output))
        return value


@dataclass(frozen=True)
class _Several:
    """Call that returns a tuple."""

    called: Any
