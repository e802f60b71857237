"""Runtimes of ONNX as contestants: what differs is how they are asked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from mxrun.peers.benchmark_server import Task
from mxrun.peers.wire import Array

# The model's bytes travel as an array of this name.
MODEL = "model"

Run = Callable[[Mapping[str, Array]], list[Any]]


class InferenceRunner:
    """A loaded model on the next of the host's batches; `run` gives all its outputs."""

    def __init__(self, task: Task, names: list[str], run: Run) -> None:
        self._batches = [
            {name: task.batches[name][index] for name in names} for index in range(task.steps)
        ]
        self._run = run
        self._steps = 0
        self._outputs: list[Any] = []

    def step(self) -> None:
        """One step."""
        self._outputs = self._run(self._batches[self._steps % len(self._batches)])
        self._steps += 1

    def loss(self) -> float:
        """Inference has none."""
        return 0.0

    def outputs(self) -> list[Array]:
        """The last step's."""
        return [output.copy() for output in self._outputs]


def model_of(task: Task) -> bytes:
    """The model."""
    return task.variables[MODEL].tobytes()
