"""Runner for ONNX runtimes, which differ only in the call that runs a model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from mxrun.peers.benchmark_server import InferenceRunner, Task
from mxrun.peers.wire import Array

# Name of the array that carries the model's bytes.
MODEL = "model"

Run = Callable[[Mapping[str, Array]], list[Any]]


class ONNXInference(InferenceRunner):
    """Runner of a loaded model on the host's batches; `run` returns all its outputs."""

    def __init__(self, task: Task, names: list[str], run: Run) -> None:
        self._batches = [
            {name: task.batches[name][index] for name in names} for index in range(task.steps)
        ]
        self._run = run
        self._steps = 0
        self._outputs: list[Any] = []

    def step(self) -> None:
        """Run one step."""
        self._outputs = self._run(self._batches[self._steps % len(self._batches)])
        self._steps += 1

    def outputs(self) -> list[Array]:
        """Return the last step's outputs."""
        return [output.copy() for output in self._outputs]


def model_of(task: Task) -> bytes:
    """Return the bytes of the task's model."""
    return task.variables[MODEL].tobytes()
