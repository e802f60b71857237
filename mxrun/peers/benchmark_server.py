"""A comparison's requests, in a helper process: hold the data, open a way to run, take turns.

A way to run the network, such as PyTorch's compiler with channels last, is a `Contestant`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from mxrun.peers.wire import Array, Handlers, Message, group, numbered, prefixed


@dataclass(frozen=True)
class Task:
    """What is run: `phase` train or infer of a symbol in MXNet's JSON, one way.

    updates: of each trained parameter its operator, that operator's parameters and number of
    states; rate: what their `lr` multiplies. batches: stacked along a first axis.
    """

    symbol: str
    phase: str
    way: str
    updates: Mapping[str, Any]
    rate: float
    threads: int
    variables: Mapping[str, Array]
    batches: Mapping[str, Array]

    @property
    def steps(self) -> int:
        """After how many steps the batches come again."""
        return len(next(iter(self.batches.values())))


class Runner(Protocol):
    """A network that takes steps, each with the next batch, copied from the host."""

    def step(self) -> None:
        """One whole step; returns when all of it has happened."""

    def loss(self) -> float:
        """The last training step's loss, a mean over what counts, summed over the losses."""

    def outputs(self) -> list[Array]:
        """The last inference step's outputs."""


class BenchmarkServer:
    """Holds a comparison's arrays and the contestants opened on them.

    `build` makes a contestant; it raises what the worker names as rejections.
    """

    def __init__(self, build: Callable[[Task], Runner], version: str) -> None:
        self._build = build
        self._version = version
        self._arrays: Mapping[str, Array] = {}
        self._open: dict[str, Runner] = {}

    @property
    def handlers(self) -> Handlers:
        """By request."""
        return {
            "version": self.version,
            "hold": self.hold,
            "open": self.open,
            "check": self.check,
            "turn": self.turn,
            "close": self.close,
        }

    def version(self, message: Message) -> Message:
        """The peer's version."""
        del message
        return Message({"version": self._version})

    def hold(self, message: Message) -> Message:
        """Keep `variables/*` and `batches/*` for whatever is opened."""
        self._arrays = message.arrays
        return Message({})

    def open(self, message: Message) -> Message:
        """Make a contestant, called `key`, with variables of its own."""
        fields = dict(message.fields)
        variables = {name: a.copy() for name, a in group(self._arrays, "variables").items()}
        del fields["request"]
        key = fields.pop("key")
        task = Task(**fields, variables=variables, batches=group(self._arrays, "batches"))
        self._open[key] = self._build(task)
        return Message({})

    def check(self, message: Message) -> Message:
        """Take `steps` steps; the loss of each in training, else the outputs of each."""
        contestant = self._open[message.fields["key"]]
        losses, outputs = [], {}
        for index in range(message.fields["steps"]):
            contestant.step()
            if message.fields["phase"] == "train":
                losses.append(contestant.loss())
            else:
                outputs.update(prefixed(str(index), numbered(contestant.outputs())))
        return Message({"losses": losses}, outputs)

    def turn(self, message: Message) -> Message:
        """Milliseconds of each of `steps` steps, after `lead` others."""
        contestant = self._open[message.fields["key"]]
        for _ in range(message.fields["lead"]):
            contestant.step()
        milliseconds = []
        for _ in range(message.fields["steps"]):
            start = time.perf_counter()
            contestant.step()
            milliseconds.append((time.perf_counter() - start) * 1e3)
        return Message({"milliseconds": milliseconds})

    def close(self, message: Message) -> Message:
        """Forget a contestant."""
        del self._open[message.fields["key"]]
        return Message({})
