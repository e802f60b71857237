"""PyTorch oracle: runs, differentiates and trains MXNet symbols from their JSON.

Every operator is its reference function of `mxrun.peers.pytorch`. `mxrun/peers/worker.py` runs this
file in a helper process.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from mxrun.peers.pytorch import OPERATORS
from mxrun.peers.pytorch.parameters import MXNetParameters, Tensor
from mxrun.peers.pytorch_symbol import SymbolGraph, as_tensors, read_symbol
from mxrun.peers.wire import Message, group, numbered, prefixed

# PyTorch reports mismatched shapes and types as RuntimeError.
REJECTIONS: tuple[type[Exception], ...] = (ValueError, RuntimeError)


def run_graph(
    graph: SymbolGraph, arrays: Mapping[str, Tensor], is_train: bool = True
) -> list[Tensor]:
    """Return the outputs; raises ValueError for a missing array or an unsupported operator."""
    values: list[tuple[Tensor, ...]] = []
    for node in graph.nodes:
        if node.operator == "null":
            if node.name not in arrays:
                raise ValueError(f"no array for {node.name}")
            values.append((arrays[node.name],))
            continue
        if node.operator not in OPERATORS:
            raise ValueError(f"operator {node.operator} is not supported")
        sources = [values[source][output] for source, output in node.inputs]
        result = OPERATORS[node.operator](MXNetParameters(node.attributes, is_train), *sources)
        values.append(tuple(result) if isinstance(result, (tuple, list)) else (result,))
    return [values[head][output] for head, output in graph.heads]


def run_symbol(message: Message) -> Message:
    """Run a symbol; return outputs, gradients of floating arguments, auxiliary states."""
    graph = read_symbol(message.fields["symbol"])
    tensors = as_tensors(group(message.arrays, "inputs"))
    differentiated = {
        name: tensor.requires_grad_()
        for name, tensor in tensors.items()
        if message.fields["gradients"]
        and name not in graph.auxiliary
        and tensor.is_floating_point()
    }
    outputs = run_graph(graph, tensors, message.fields["is_train"])
    if differentiated:
        heads = list(as_tensors(group(message.arrays, "out_gradients")).values())
        torch.autograd.backward(outputs, heads or [torch.ones_like(output) for output in outputs])
    gradients = {
        name: torch.zeros_like(tensor) if tensor.grad is None else tensor.grad
        for name, tensor in differentiated.items()
    }
    return Message(
        {},
        {
            **prefixed("outputs", numbered([o.detach().numpy() for o in outputs])),
            **prefixed("gradients", {name: g.numpy() for name, g in gradients.items()}),
            **prefixed("auxiliary", {n: tensors[n].numpy() for n in sorted(graph.auxiliary)}),
        },
    )


def _groups(
    graph: SymbolGraph, parameters: Mapping[str, Tensor], sgd: Mapping[str, float]
) -> list[dict[str, Any]]:
    """Return one optimizer group per parameter, with MXNet's multipliers.

    SGD of MXNet 1.9.1 decays names ending in _weight or _gamma; the variable's `__wd_mult__` and
    `__lr_mult__` override that.
    """
    attributes = {node.name: node.attributes for node in graph.nodes}
    groups = []
    for name, parameter in parameters.items():
        decays = name.endswith(("_weight", "_gamma"))
        weight_multiplier = float(attributes[name].get("__wd_mult__", decays))
        rate_multiplier = float(attributes[name].get("__lr_mult__", 1))
        groups.append(
            {
                "params": [parameter],
                "lr": sgd["lr"] * rate_multiplier,
                "weight_decay": sgd["wd"] * weight_multiplier,
            }
        )
    return groups


def train(message: Message) -> Message:
    """Train one step per batch; return parameters and auxiliary states."""
    graph = read_symbol(message.fields["symbol"])
    sgd = message.fields["sgd"]
    variables = as_tensors(group(message.arrays, "parameters"))
    parameters = {
        name: tensor.requires_grad_()
        for name, tensor in variables.items()
        if name not in graph.auxiliary
    }
    batches = as_tensors(group(message.arrays, "batches"))
    optimizer = torch.optim.SGD(
        _groups(graph, parameters, sgd), lr=sgd["lr"], momentum=sgd["momentum"]
    )
    for index in range(message.fields["steps"]):
        optimizer.zero_grad()
        batch = {name: value[index] for name, value in batches.items()}
        outputs = run_graph(graph, {**variables, **batch})
        torch.autograd.backward(outputs, [torch.ones_like(output) for output in outputs])
        for parameter in parameters.values():
            if parameter.grad is not None:
                parameter.grad *= sgd["rescale_grad"]
        optimizer.step()
    trained = {name: tensor.detach().numpy() for name, tensor in variables.items()}
    return Message({}, prefixed("parameters", trained))


def operators(message: Message) -> Message:
    """Return the names of the supported operators."""
    del message
    return Message({"operators": sorted(OPERATORS)})


def version(message: Message) -> Message:
    """Return the peer's version."""
    del message
    return Message({"version": torch.__version__})


HANDLERS = {
    "operators": operators,
    "run_symbol": run_symbol,
    "train": train,
    "version": version,
}
