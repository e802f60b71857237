"""Benchmark server of a helper process: holds the data, opens runners, runs timed rounds.

A runner runs the network in one mode, such as PyTorch's compiler with channels last.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from mxrun.peers.wire import Array, Handlers, Message, group, numbered, prefixed


@dataclass(frozen=True)
class Task:
    """Workload of a runner: one phase, train or infer, of a symbol in MXNet's JSON, in one mode.

    updates: for each trained parameter its update operator, the operator's parameters and number of
    states. rate: factor of their `lr`. max_norm: to which the norm of all rescaled gradients
    together is clipped, if any. batches: stacked along a first axis.
    """

    symbol: str
    phase: str
    mode: str
    updates: Mapping[str, Any]
    rate: float
    threads: int
    max_norm: float | None
    variables: Mapping[str, Array]
    batches: Mapping[str, Array]

    @property
    def steps(self) -> int:
        """Number of batches, after which they repeat."""
        return len(next(iter(self.batches.values())))


class Runner(ABC):
    """Network that runs steps, each on the next batch, which is copied from the host."""

    @abstractmethod
    def step(self) -> None:
        """Run one complete step; returns when all of its work is finished."""


class TrainingRunner(Runner):
    """Runner of forward, backward and the optimizer's update."""

    @abstractmethod
    def loss(self) -> float:
        """Return the last step's loss: a mean per loss, summed over the losses."""


class InferenceRunner(Runner):
    """Runner of forward alone."""

    @abstractmethod
    def outputs(self) -> list[Array]:
        """Return the last step's outputs."""


class BenchmarkServer:
    """Server for a comparison's arrays and the runners opened on them.

    `build` creates a runner; it raises the exceptions that the worker lists as rejections.
    """

    def __init__(self, build: Callable[[Task], Runner], version: str) -> None:
        self._build = build
        self._version = version
        self._arrays: Mapping[str, Array] = {}
        self._open: dict[str, Runner] = {}

    @property
    def handlers(self) -> Handlers:
        """Handlers by request name."""
        return {
            "version": self.version,
            "hold": self.hold,
            "open": self.open,
            "check": self.check,
            "measure": self.measure,
            "close": self.close,
        }

    def version(self, message: Message) -> Message:
        """Return the peer's version."""
        del message
        return Message({"version": self._version})

    def hold(self, message: Message) -> Message:
        """Store `variables/*` and `batches/*` for the runners opened later."""
        self._arrays = message.arrays
        return Message({})

    def open(self, message: Message) -> Message:
        """Create a runner, named `key`, with its own copy of the variables."""
        fields = dict(message.fields)
        variables = {name: a.copy() for name, a in group(self._arrays, "variables").items()}
        del fields["request"]
        key = fields.pop("key")
        task = Task(**fields, variables=variables, batches=group(self._arrays, "batches"))
        self._open[key] = self._build(task)
        return Message({})

    def check(self, message: Message) -> Message:
        """Run `steps` steps; return the loss of each in training, else the outputs of each."""
        runner = self._open[message.fields["key"]]
        losses, outputs = [], {}
        for index in range(message.fields["steps"]):
            runner.step()
            if isinstance(runner, TrainingRunner):
                losses.append(runner.loss())
            if isinstance(runner, InferenceRunner):
                outputs.update(prefixed(str(index), numbered(runner.outputs())))
        return Message({"losses": losses}, outputs)

    def measure(self, message: Message) -> Message:
        """Run one round: `lead` untimed and `steps` timed steps; return their milliseconds."""
        runner = self._open[message.fields["key"]]
        for _ in range(message.fields["lead"]):
            runner.step()
        milliseconds = []
        for _ in range(message.fields["steps"]):
            start = time.perf_counter()
            runner.step()
            milliseconds.append((time.perf_counter() - start) * 1e3)
        return Message({"milliseconds": milliseconds})

    def close(self, message: Message) -> Message:
        """Drop a runner."""
        del self._open[message.fields["key"]]
        return Message({})
