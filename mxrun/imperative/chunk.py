"""Chunks: memory of arrays with the engine variable that orders all access to it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from mxrun.base.context import Context
from mxrun.base.tensor import align
from mxrun.device.interface import Device
from mxrun.device.registry import device_kind
from mxrun.operator.launch import Handle, Memory
from mxrun.runtime.engine.default import engine
from mxrun.runtime.engine.interface import Engine


@cache
def device_of(context: Context) -> Device:
    """Return the device of a context, opened with a team on all its cores.

    Raises UserError for an unknown kind of device.
    """
    kind = device_kind(context.kind)
    return kind(kind.describe(context.index, kind.cores()))


@dataclass(frozen=True)
class StorageBlock:
    """Part of a device's memory."""

    memory: Memory
    offset: int
    nbytes: int


class Chunk:
    """Memory that one or more arrays share (MXNet's NDArray::Chunk).

    nbytes: as asked for; the block may be larger. handle: the first byte. variable: named by every
    pushed function that uses the memory. engine: the one that knows the variable. The memory is
    freed after all functions pushed before the last reference to the chunk is gone.
    """

    __slots__ = (
        "__weakref__",
        "block",
        "context",
        "device",
        "engine",
        "handle",
        "nbytes",
        "variable",
    )

    def __init__(
        self, context: Context, device: Device, block: StorageBlock, nbytes: int, owner: Engine
    ) -> None:
        self.context, self.device, self.block, self.nbytes = context, device, block, nbytes
        self.engine, self.variable = owner, owner.new_variable()
        self.handle = Handle(block.memory, block.offset)

    def __del__(self) -> None:
        self.engine.delete_variable(self.variable)


def allocate(context: Context, nbytes: int) -> Chunk:
    """Return a chunk of at least `nbytes` on a device, with undefined content."""
    device = device_of(context)
    size = align(max(nbytes, 1))
    return Chunk(context, device, StorageBlock(device.allocate(size), 0, size), nbytes, engine())
