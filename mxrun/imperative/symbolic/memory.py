"""Memory of executors: one arena whose parts are arrays with engine variables of their own."""

from __future__ import annotations

from mxrun.imperative.arrays.chunk import Chunk
from mxrun.runtime.storage import SizeClass, StorageBlock


class ArenaChunk(Chunk):
    """Part of another chunk's memory with a variable of its own; it holds the other chunk."""

    __slots__ = ("arena",)

    def __init__(self, arena: Chunk, begin: int, nbytes: int) -> None:
        self.arena, whole = arena, arena.block
        block = StorageBlock(whole.memory, whole.offset + begin, SizeClass(nbytes))
        super().__init__(arena.context, arena.device, arena.pool, arena.engine, block)

    def __del__(self) -> None:
        """Do nothing: the memory is the arena's."""


class Region:
    """Reusable memory of executors that share it.

    holder: token of the forward pass in training that has left there what its backward pass reads;
    None after any other pass.
    """

    def __init__(self, chunk: Chunk) -> None:
        self.chunk = chunk
        self.holder: object = None
