"""Benchmark server of a helper process: opens a runner, runs timed rounds.

A runner runs the network in one mode, such as PyTorch's compiler with channels last.
"""

from __future__ import annotations

import resource
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mxrun.peers.wire import Array, Handlers, Message, group, numbered, prefixed


@dataclass(frozen=True)
class Task:
    """Workload of a runner: one phase, train or infer, of a symbol in MXNet's JSON, in one mode.

    updates: for each trained parameter its update operator, the operator's parameters and number of
    states. rate: factor of their `lr`. max_norm: to which the norm of all rescaled gradients
    together is clipped, if any. batches: stacked along a first axis. device: cpu, or PyTorch's name
    of a card. The runner owns the arrays and may overwrite them.
    """

    symbol: str
    phase: str
    mode: str
    updates: Mapping[str, Any]
    rate: float
    threads: int
    max_norm: float | None
    device: str
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
    """Server for one runner of a comparison at a time.

    `build` creates a runner; it raises the exceptions that the worker lists as rejections.
    """

    def __init__(self, build: Callable[[Task], Runner], version: str) -> None:
        self._build = build
        self._version = version
        self._runner: Runner | None = None

    @property
    def handlers(self) -> Handlers:
        """Handlers by request name."""
        return {
            "version": self.version,
            "open": self.open,
            "check": self.check,
            "measure": self.measure,
            "memory": self.memory,
        }

    def version(self, message: Message) -> Message:
        """Return the peer's version."""
        del message
        return Message({"version": self._version})

    def open(self, message: Message) -> Message:
        """Drop the open runner and create one of `variables/*` and `batches/*`."""
        self._runner = None
        fields = {name: value for name, value in message.fields.items() if name != "request"}
        variables, batches = (group(message.arrays, prefix) for prefix in ("variables", "batches"))
        self._runner = self._build(Task(**fields, variables=variables, batches=batches))
        return Message({})

    def check(self, message: Message) -> Message:
        """Run `steps` steps; return the loss of each in training, else the outputs of each."""
        runner = self._opened()
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
        runner = self._opened()
        for _ in range(message.fields["lead"]):
            runner.step()
        milliseconds = []
        for _ in range(message.fields["steps"]):
            start = time.perf_counter()
            runner.step()
            milliseconds.append((time.perf_counter() - start) * 1e3)
        return Message({"milliseconds": milliseconds})

    def memory(self, message: Message) -> Message:
        """Return the peak resident size of this process in bytes."""
        del message
        return Message({"peak_bytes": _peak_resident_bytes()})

    def _opened(self) -> Runner:
        assert self._runner is not None
        return self._runner


def _peak_resident_bytes() -> int:
    """Return Linux's VmHWM; getrusage, the fallback, starts at the size of the parent process."""
    # Not `mxrun.runtime.memory_limits`: mxrun is not installed in a peer's environment.
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    (kilobytes,) = (line.split()[1] for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(kilobytes) * 1024
