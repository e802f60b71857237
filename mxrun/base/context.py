"""Context: the device, by kind and number, that an array lives on or that an operation uses."""

from __future__ import annotations

from dataclasses import dataclass

from mxrun.base.device import CPU


@dataclass(frozen=True, order=True)
class Context:
    """MXNet's Context: `kind` names a kind of device, `index` one of its devices.

    A context says where something shall happen; the stream of a device on which it then happens is
    part of the engine's RunContext.
    """

    kind: str = CPU
    index: int = 0

    def __str__(self) -> str:
        return f"{self.kind}:{self.index}"


def cpu(index: int = 0) -> Context:
    """Return the context of the processor; several indices are several teams of its threads."""
    return Context(CPU, index)
