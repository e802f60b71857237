"""Memory of executors: one arena whose parts are arrays with engine variables of their own."""

from __future__ import annotations

from functools import partial
from typing import Any

from mxrun.imperative.chunk import Chunk


class ArenaChunk(Chunk):
    """Part of another chunk's memory that is ordered by a variable of its own.

    The other chunk lives until all functions that use the part have run.
    """

    __slots__ = ("arena",)

    def __init__(self, arena: Chunk, begin: int, nbytes: int) -> None:
        self.context, self.device, self.pool = arena.context, arena.device, arena.pool
        self.engine, self.arena, self.nbytes = arena.engine, arena, nbytes
        # A place, which belongs to the arena's block.
        place: Any = arena.handle + begin
        self.block = place
        self.variable = self.engine.new_variable()

    def __del__(self) -> None:
        self.engine.delete_variable(self.variable, partial(_keep, self.arena))


class Region:
    """Reusable memory of executors that share it.

    holder: the programs whose last forward pass in training has left there what their backward pass
    reads; None after any other pass.
    """

    def __init__(self, chunk: Chunk) -> None:
        self.chunk = chunk
        self.holder: object = None


def _keep(arena: Chunk) -> None:
    """Do nothing; the callback that is bound to the arena keeps it alive until it is called."""
