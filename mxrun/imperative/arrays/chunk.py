"""Chunks: memory of arrays, each the engine variable that orders all access to it."""

from __future__ import annotations

from functools import cache

from mxrun.base.context import Context
from mxrun.base.errors import UserError
from mxrun.base.tensor import Layout
from mxrun.device.interface import Device
from mxrun.device.storage import device_of, storage_pools
from mxrun.operator.launch import Handle
from mxrun.runtime.engine.default import engine
from mxrun.runtime.engine.interface import Engine, Variable
from mxrun.runtime.engine.interrupts import uninterrupted
from mxrun.runtime.storage import SizeClass, StorageBlock, StoragePool


class Chunk(Variable):
    """Memory that one or more arrays share (MXNet's NDArray::Chunk).

    nbytes: as asked for; the block may be larger. engine: the one that knows the variable. layout:
    the one in which an operator has left the elements; None for plain. A pushed function that uses
    the memory names the chunk, and so holds it until it is complete: the memory goes back to the
    pool with the last reference.
    """

    __slots__ = (
        "__weakref__",
        "block",
        "context",
        "device",
        "engine",
        "layout",
        "nbytes",
        "pool",
    )

    @uninterrupted
    def __init__(
        self,
        context: Context,
        device: Device,
        pool: StoragePool,
        owner: Engine,
        block: StorageBlock,
        layout: Layout | None = None,
    ) -> None:
        super().__init__()
        self.context, self.device, self.pool, self.engine = context, device, pool, owner
        self.block, self.nbytes, self.layout = block, block.nbytes, layout

    @uninterrupted
    def __del__(self) -> None:
        self.pool.free(self.block)

    @property
    def variable(self) -> Variable:
        """The chunk itself: what a function that uses the memory names."""
        return self

    @property
    def handle(self) -> Handle:
        """The first byte."""
        return Handle(self.block.memory, self.block.offset)

    def another(self, nbytes: int, layout: Layout | None = None) -> Chunk:
        """Return a chunk of `nbytes` on the same device and engine, with undefined content."""
        try:
            return _new_chunk(self.context, self.device, self.pool, self.engine, nbytes, layout)
        except UserError:
            # A program that calls operators faster than they run is slowed down, not refused.
            self.engine.drain()
        return _new_chunk(self.context, self.device, self.pool, self.engine, nbytes, layout)


class BorrowedChunk(Chunk):
    """Memory that something else owns, with a variable of its own.

    lender: what must not be freed before the chunk; None if that is the memory itself.
    """

    __slots__ = ("lender",)

    def __init__(
        self,
        context: Context,
        device: Device,
        pool: StoragePool,
        owner: Engine,
        place: Handle,
        nbytes: int,
        lender: object,
    ) -> None:
        self.lender = lender
        block = StorageBlock(place.memory, place.offset, SizeClass(nbytes))
        super().__init__(context, device, pool, owner, block)

    def __del__(self) -> None:
        """Do nothing: the memory is the owner's."""

    @classmethod
    def part(cls, arena: Chunk, begin: int, nbytes: int) -> BorrowedChunk:
        """Return a part of another chunk, which it holds."""
        place = arena.handle + begin
        return cls(arena.context, arena.device, arena.pool, arena.engine, place, nbytes, arena)


@cache
def _pool_of(context: Context) -> tuple[Device, StoragePool]:
    if not isinstance(context, Context):
        got = type(context).__name__
        raise TypeError(f"expected a context, such as mxrun.cpu(0), got {got}")
    return device_of(context), storage_pools().of(context)


def allocate(context: Context, nbytes: int) -> Chunk:
    """Return a chunk of `nbytes` on a device, with undefined content.

    If there is too little memory, this waits for the pending functions, which hold some. Raises
    UserError for an unknown kind of device, and if there is too little memory then.
    """
    (device, pool), owner = _pool_of(context), engine()
    try:
        return _new_chunk(context, device, pool, owner, nbytes)
    except UserError:
        owner.drain()
    return _new_chunk(context, device, pool, owner, nbytes)


@uninterrupted
def _new_chunk(
    context: Context,
    device: Device,
    pool: StoragePool,
    owner: Engine,
    nbytes: int,
    layout: Layout | None = None,
) -> Chunk:
    """Return a chunk; an exception between the two calls would lose a block that none holds."""
    return Chunk(context, device, pool, owner, pool.allocate(nbytes), layout)
