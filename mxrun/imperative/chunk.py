"""Chunks: memory of arrays with the engine variable that orders all access to it."""

from __future__ import annotations

from functools import cache, partial

from mxrun.base.context import Context
from mxrun.device.interface import Device
from mxrun.device.storage import device_of, storage_pools
from mxrun.operator.launch import Handle
from mxrun.runtime.engine.default import engine
from mxrun.runtime.engine.interface import Engine
from mxrun.runtime.storage import StorageBlock, StoragePool


class Chunk:
    """Memory that one or more arrays share (MXNet's NDArray::Chunk).

    nbytes: as asked for; the block may be larger. variable: named by every pushed function that
    uses the memory. engine: the one that knows the variable. The memory goes back to the pool after
    all functions pushed before the last reference to the chunk is gone.
    """

    __slots__ = (
        "__weakref__",
        "block",
        "context",
        "device",
        "engine",
        "nbytes",
        "pool",
        "variable",
    )

    def __init__(
        self,
        context: Context,
        device: Device,
        pool: StoragePool,
        owner: Engine,
        block: StorageBlock,
    ) -> None:
        self.context, self.device, self.pool, self.engine = context, device, pool, owner
        self.block, self.nbytes = block, block.nbytes
        self.variable = owner.new_variable()

    def __del__(self) -> None:
        self.engine.delete_variable(self.variable, partial(self.pool.free, self.block))

    @property
    def handle(self) -> Handle:
        """The first byte."""
        return Handle(self.block.memory, self.block.offset)

    def another(self, nbytes: int) -> Chunk:
        """Return a chunk of `nbytes` on the same device and engine, with undefined content."""
        block = self.pool.allocate(nbytes)
        return Chunk(self.context, self.device, self.pool, self.engine, block)


@cache
def _pool_of(context: Context) -> tuple[Device, StoragePool]:
    return device_of(context), storage_pools().of(context)


def allocate(context: Context, nbytes: int) -> Chunk:
    """Return a chunk of `nbytes` on a device, with undefined content.

    Raises UserError for an unknown kind of device, and if there is too little memory.
    """
    device, pool = _pool_of(context)
    return Chunk(context, device, pool, engine(), pool.allocate(nbytes))
