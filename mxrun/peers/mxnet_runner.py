"""MXNet runners: a bound executor and its optimizer operators."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import mxnet as mx
import numpy as np

from mxrun.peers.benchmark_server import InferenceRunner, Runner, Task, TrainingRunner
from mxrun.peers.losses import mean_loss
from mxrun.peers.mxnet_symbol import bind
from mxrun.peers.wire import Array

# Parameters of mxrun's update operators that MXNet's do not have.
_OURS = ("scheduled", "scaled")


class BoundSymbol:
    """Bound symbol and its batches on the host."""

    def __init__(self, task: Task) -> None:
        self.symbol = mx.sym.load_json(task.symbol)
        self.batches = [
            {n: value[i].astype(np.float32) for n, value in task.batches.items()}
            for i in range(task.steps)
        ]
        self.inputs = {n: mx.nd.array(value) for n, value in self.batches[0].items()}
        self.variables = {n: mx.nd.array(value) for n, value in task.variables.items()}
        self.gradients = {n: mx.nd.zeros_like(self.variables[n]) for n in task.updates}
        self._bound = bind(self.symbol, {**self.variables, **self.inputs}, self.gradients)
        self.steps = 0
        self.results: list[Any] = []

    def forward(self, is_train: bool) -> None:
        """Copy the next batch to the inputs and run forward."""
        for name, value in self.batch.items():
            self.inputs[name][:] = value
        self.results = self._bound.forward(is_train=is_train)
        self.steps += 1

    def backward(self) -> None:
        """Compute all gradients."""
        self._bound.backward()

    @property
    def batch(self) -> Mapping[str, Array]:
        """Batch of the next step."""
        return self.batches[self.steps % len(self.batches)]


class MXNetTraining(TrainingRunner):
    """Runner of forward, backward and one update operator per parameter."""

    def __init__(self, task: Task) -> None:
        self._executor = executor = BoundSymbol(task)
        self._heads = _heads(task.symbol)
        self._max_norm, self._updates = task.max_norm, []
        for name, rule in task.updates.items():
            update = getattr(mx.nd, rule["operator"], None)
            if update is None:
                raise ValueError(f"update {rule['operator']} is not supported")
            keywords = {k: v for k, v in rule["parameters"].items() if k not in _OURS}
            keywords["lr"] = task.rate * keywords["lr"]
            weight = executor.variables[name]
            states = [mx.nd.zeros_like(weight) for _ in range(rule["states"])]
            tensors = (weight, executor.gradients[name], *states)
            self._updates.append((update, tensors, keywords, rule["operator"] == "adam_update"))
        self._batch: Mapping[str, Array] = {}

    def step(self) -> None:
        """Run one step and wait for all of its writes."""
        self._batch = self._executor.batch
        self._executor.forward(is_train=True)
        self._executor.backward()
        if self._max_norm is not None:
            gradients = [gradient for _, (_, gradient, *_), _, _ in self._updates]
            factor = self._updates[0][2]["rescale_grad"]
            mx.gluon.utils.clip_global_norm(gradients, self._max_norm / factor, False)
        # Direct calls of the operators: the optimizer classes take 0.25 ms more for six arrays.
        for update, tensors, keywords, corrected in self._updates:
            rate = keywords["lr"] * (self._correction(keywords) if corrected else 1.0)
            update(*tensors, out=tensors[0], **{**keywords, "lr": rate})
        mx.nd.waitall()

    def _correction(self, keywords: Mapping[str, Any]) -> float:
        """Return Adam's bias correction, a factor of the rate in MXNet's optimizer."""
        steps = self._executor.steps
        second = 1 - keywords["beta2"] ** steps
        return float(second**0.5 / (1 - keywords["beta1"] ** steps))

    def loss(self) -> float:
        """Return the last step's loss."""
        total = 0.0
        for result, (operator, attributes, label) in zip(
            self._executor.results, self._heads, strict=True
        ):
            labels = self._batch[label] if label else result.asnumpy()
            total += mean_loss(operator, attributes, result.asnumpy(), labels)
        return total


class MXNetInference(InferenceRunner):
    """Runner of forward alone."""

    def __init__(self, task: Task) -> None:
        self._executor = BoundSymbol(task)

    def step(self) -> None:
        """Run one step and wait for its outputs."""
        self._executor.forward(is_train=False)
        mx.nd.waitall()

    def outputs(self) -> list[Array]:
        """Return the last step's outputs."""
        return [result.asnumpy() for result in self._executor.results]


def _heads(symbol: str) -> list[tuple[str, Mapping[str, str], str]]:
    """Return operator, parameters and label of each output."""
    content = json.loads(symbol)
    nodes = content["nodes"]
    heads = []
    for index, *_ in content["heads"]:
        node = nodes[index]
        labels = [nodes[source[0]]["name"] for source in node["inputs"][1:]]
        heads.append((node["op"], node.get("attrs", {}), labels[0] if labels else ""))
    return heads


def open_runner(task: Task) -> Runner:
    """Create the runner of a task; raises ValueError for unsupported operators."""
    return MXNetTraining(task) if task.phase == "train" else MXNetInference(task)
