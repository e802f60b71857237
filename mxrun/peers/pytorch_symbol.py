"""MXNet's symbol JSON read for PyTorch: run as it stands, or rebuilt as an nn.Module."""

from __future__ import annotations

import json
import operator
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx, nn

from mxrun.peers.pytorch import AUXILIARY_INPUTS, OPERATORS
from mxrun.peers.pytorch.parameters import Parameters, Tensor

_FLATTENED_RANK = 2


@dataclass(frozen=True)
class Node:
    """One node: operator name (`null` for a variable), own name, parameters, what it reads.

    inputs: (node, which of its outputs).
    """

    operator: str
    name: str
    attributes: Mapping[str, str]
    inputs: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Graph:
    """Nodes in topological order and the positions of the outputs."""

    nodes: tuple[Node, ...]
    heads: tuple[tuple[int, int], ...]

    @property
    def auxiliary(self) -> set[str]:
        """Names of the variables that some operator writes."""
        return {
            self.nodes[node.inputs[index][0]].name
            for node in self.nodes
            for index in AUXILIARY_INPUTS.get(node.operator, ())
        }

    @property
    def variables(self) -> list[str]:
        """Names of arguments and auxiliary states, in order."""
        return [node.name for node in self.nodes if node.operator == "null"]


def read_symbol(text: str) -> Graph:
    """The graph in a symbol's JSON; the key of parameters was `param`, `attr`, then `attrs`."""
    content = json.loads(text)
    nodes = []
    for entry in content["nodes"]:
        attributes = entry.get("attrs") or entry.get("attr") or entry.get("param") or {}
        sources = tuple((source[0], source[1]) for source in entry["inputs"])
        nodes.append(Node(entry["op"], entry["name"], attributes, sources))
    return Graph(tuple(nodes), tuple((head[0], head[1]) for head in content["heads"]))


def run_graph(graph: Graph, arrays: Mapping[str, Tensor], is_train: bool = True) -> list[Tensor]:
    """The outputs; raises ValueError for a missing array or an unknown operator."""
    values: list[tuple[Tensor, ...]] = []
    for node in graph.nodes:
        if node.operator == "null":
            if node.name not in arrays:
                raise ValueError(f"no array for {node.name}")
            values.append((arrays[node.name],))
            continue
        if node.operator not in OPERATORS:
            raise ValueError(f"operator {node.operator} is not known here")
        sources = [values[source][output] for source, output in node.inputs]
        result = OPERATORS[node.operator](Parameters(node.attributes, is_train), *sources)
        values.append(tuple(result) if isinstance(result, (tuple, list)) else (result,))
    return [values[head][output] for head, output in graph.heads]


def build_module(graph: Graph, data: Mapping[str, Tensor], label: str) -> Any:
    """The network as one would write it by hand: library modules called in straight-line code.

    Takes the inputs in the order of `data` and returns the logits: the closing SoftmaxOutput is
    left to cross_entropy. Raises ValueError where PyTorch has no such module.
    """
    root = nn.Module()
    code = fx.Graph()
    values: dict[int, Any] = {}
    ranks: dict[int, int] = {}
    positions = {node.name: index for index, node in enumerate(graph.nodes)}
    for name, tensor in data.items():
        values[positions[name]] = code.placeholder(name)
        ranks[positions[name]] = tensor.dim()
    for index, node in enumerate(graph.nodes):
        if node.operator == "null" or node.operator == "SoftmaxOutput":
            continue
        source = node.inputs[0][0]
        if node.operator == "elemwise_add":
            values[index] = code.call_function(
                operator.add, (values[source], values[node.inputs[1][0]])
            )
            ranks[index] = ranks[source]
            continue
        module, ranks[index] = _module(node, ranks[source])
        root.add_module(node.name, module)
        values[index] = code.call_module(node.name, (values[source],))
    ((head, _),) = graph.heads
    closing = graph.nodes[head]
    if closing.operator != "SoftmaxOutput" or closing.inputs[1][0] != positions[label]:
        raise ValueError(f"the symbol must end in a SoftmaxOutput of {label!r}")
    code.output(values[closing.inputs[0][0]])
    network = fx.GraphModule(root, code)
    network(*data.values())  # Lazy modules take their input sizes from the first call.
    return network


def _module(node: Node, rank: int) -> tuple[Any, int]:
    """The library module of a node and the rank of its output."""
    parameters = Parameters(node.attributes)
    if node.operator == "FullyConnected":
        linear = nn.LazyLinear(
            int(parameters.number("num_hidden", 0)), bias=not parameters.flag("no_bias", False)
        )
        if not parameters.flag("flatten", True):
            return linear, rank
        # A reshape of what is flat already would be time that nobody's own code spends.
        return (linear if rank == _FLATTENED_RANK else nn.Sequential(nn.Flatten(), linear)), 2
    if node.operator == "Flatten":
        return nn.Flatten(), 2
    if node.operator == "Activation":
        modules = {
            "relu": nn.ReLU,
            "sigmoid": nn.Sigmoid,
            "tanh": nn.Tanh,
            "softrelu": nn.Softplus,
            "softsign": nn.Softsign,
        }
        return modules[parameters.text("act_type", "")](), rank
    if node.operator == "BatchNorm":
        return _batch_norm_module(parameters, rank - 2), rank
    if node.operator == "Convolution":
        return _convolution_module(parameters, rank - 2), rank
    if node.operator == "Pooling":
        return _pooling_module(parameters, rank - 2), rank
    raise ValueError(f"operator {node.operator} is not known as a module here")


def _convolution_module(parameters: Parameters, spatial: int) -> Any:
    module = {1: nn.LazyConv1d, 2: nn.LazyConv2d, 3: nn.LazyConv3d}[spatial]
    return module(
        int(parameters.number("num_filter", 0)),
        parameters.shape("kernel", ()),
        stride=parameters.shape("stride", (1,) * spatial),
        padding=parameters.shape("pad", (0,) * spatial),
        dilation=parameters.shape("dilate", (1,) * spatial),
        groups=int(parameters.number("num_group", 1)),
        bias=not parameters.flag("no_bias", False),
    )


def _batch_norm_module(parameters: Parameters, spatial: int) -> Any:
    """The library's; it keeps the unbiased variance, and scales where fix_gamma says not to."""
    names = {0: "LazyBatchNorm1d", 1: "LazyBatchNorm1d", 2: "LazyBatchNorm2d", 3: "LazyBatchNorm3d"}
    module = getattr(nn, names[spatial])
    return module(
        eps=parameters.number("eps", 1e-3), momentum=1 - parameters.number("momentum", 0.9)
    )


def _pooling_module(parameters: Parameters, spatial: int) -> Any:
    kind = parameters.text("pool_type", "max")
    ones, zeros = (1,) * spatial, (0,) * spatial
    if parameters.flag("global_pool", False):
        best = {"max": "AdaptiveMaxPool", "avg": "AdaptiveAvgPool"}
        if kind in best:
            return getattr(nn, f"{best[kind]}{spatial}d")(1)
    elif kind in ("max", "avg"):
        keywords: dict[str, Any] = {
            "stride": parameters.shape("stride", ones),
            "padding": parameters.shape("pad", zeros),
            "ceil_mode": parameters.text("pooling_convention", "valid") == "full",
        }
        if kind == "avg":
            keywords["count_include_pad"] = parameters.flag("count_include_pad", True)
        name = f"{'Max' if kind == 'max' else 'Avg'}Pool{spatial}d"
        return getattr(nn, name)(parameters.shape("kernel", ones), **keywords)
    raise ValueError(f"{kind} pooling is not known as a module here")


def as_tensors(arrays: Mapping[str, Any]) -> dict[str, Tensor]:
    """Tensors over the same memory."""
    return {name: torch.from_numpy(array) for name, array in arrays.items()}
