"""PyTorch's side: runs, differentiates, trains and times MXNet symbols from their JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import torch
from torch.nn import functional

from mxrun.peers import pytorch_turns
from mxrun.peers.pytorch import OPERATORS
from mxrun.peers.pytorch.parameters import Tensor
from mxrun.peers.pytorch_symbol import Graph, as_tensors, build_module, read_symbol, run_graph
from mxrun.peers.timing import busy_thread, milliseconds_per_step
from mxrun.peers.wire import Message, group, numbered, prefixed

# PyTorch reports shapes and types that do not fit as RuntimeError.
REJECTIONS: tuple[type[Exception], ...] = (ValueError, RuntimeError)


def run_symbol(message: Message) -> Message:
    """Outputs, gradients of all floating arguments and auxiliary states after the run."""
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
    graph: Graph, parameters: Mapping[str, Tensor], sgd: Mapping[str, float]
) -> list[dict[str, Any]]:
    """One optimizer group per parameter, with MXNet's multipliers.

    SGD of MXNet 1.9.1 decays names ending in _weight or _gamma; `__wd_mult__` and `__lr_mult__`
    of the variable come before that.
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
    """Parameters and auxiliary states after one step per batch."""
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


class _TimedTraining:
    """A network, its optimizer and host batches, ready to be timed."""

    def __init__(self, message: Message) -> None:
        torch.manual_seed(0)
        fields = message.fields
        batches = as_tensors(group(message.arrays, "batches"))
        self.labels = batches.pop(fields["label"]).long()
        self.batches = batches
        # Preallocated, so that a fresh batch is one copy, as it is for everyone else.
        self.label = torch.empty_like(self.labels[0])
        self.data = {name: torch.empty_like(value[0]) for name, value in batches.items()}
        network = build_module(read_symbol(fields["symbol"]), self.data, fields["label"])
        if fields["channels_last"]:
            network = network.to(memory_format=torch.channels_last)
            self.data = {
                name: value.to(memory_format=torch.channels_last)
                for name, value in self.data.items()
            }

        def forward(label: Tensor, *data: Tensor) -> tuple[Tensor, Tensor]:
            logits = network.forward(*data)  # Past the traced module's wrapper for tracebacks.
            return logits, functional.cross_entropy(logits, label)

        self.forward = torch.compile(forward) if fields["compile"] else forward
        sgd = fields["sgd"]
        # Fused is the fastest of PyTorch's three ways on a CPU.
        self.optimizer = torch.optim.SGD(
            network.parameters(),
            lr=sgd["lr"],
            momentum=sgd["momentum"],
            weight_decay=sgd["wd"],
            fused=True,
        )
        self.steps = 0
        self.loss = torch.zeros(())
        self.correct = torch.zeros((), dtype=torch.int64)

    def step(self) -> None:
        """One step: copy, forward, loss, backward, update, metrics."""
        index = self.steps % len(self.labels)
        for name, buffer in self.data.items():
            buffer.copy_(self.batches[name][index])
        self.label.copy_(self.labels[index])
        self.optimizer.zero_grad(set_to_none=True)
        logits, loss = self.forward(self.label, *self.data.values())
        loss.backward()
        self.optimizer.step()
        self.loss += loss.detach()
        self.correct += (logits.detach().argmax(1) == self.label).sum()
        self.steps += 1


_timed: dict[str, _TimedTraining] = {}


def time_step(message: Message) -> Message:
    """Milliseconds per step; the first request for a training builds and warms it up."""
    fields = message.fields
    key = json.dumps([fields[n] for n in ("symbol", "sgd", "channels_last", "compile")])
    if key not in _timed:
        _timed[key] = _TimedTraining(message)
        milliseconds_per_step(_timed[key].step, fields["warm_up"])
    with busy_thread(fields["busy_thread"]):
        times = milliseconds_per_step(_timed[key].step, fields["steps"])
    return Message({"milliseconds": times})


def describe(message: Message) -> Message:
    """PyTorch's version and the operators known here."""
    del message
    return Message({"version": torch.__version__, "operators": sorted(OPERATORS)})


HANDLERS = {
    **pytorch_turns.HANDLERS,
    "describe": describe,
    "run_symbol": run_symbol,
    "time_step": time_step,
    "train": train,
}
