"""Resources of engine functions: temporary space and random numbers (MXNet's resource manager)."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from mxrun.base.context import Context
from mxrun.runtime.engine.interface import Engine, RunContext
from mxrun.runtime.engine.interrupts import uninterrupted
from mxrun.runtime.random import key_of
from mxrun.runtime.storage import StorageBlock, StoragePool


class TempSpace:
    """Temporary space of the functions that run on a context, shared from one to the next.

    There are as many blocks as functions have used at once, at most one for each worker, unless
    functions run within others. A block grows to the largest request and is freed only when the
    pool is trimmed. Space that no function uses is not part of the pool's bytes in use.
    """

    def __init__(self, pool: StoragePool) -> None:
        self._pool = pool
        # Appending to a list and popping from it are atomic.
        self._idle: list[StorageBlock] = []
        pool.idle.append(self._idle)

    @uninterrupted
    def acquire(self, nbytes: int) -> StorageBlock:
        """Return a block of at least `nbytes`, contents undefined, until it is released.

        Raises UserError if there is too little memory.
        """
        try:
            block = self._idle.pop()
        except IndexError:
            return self._pool.allocate(nbytes)
        if block.capacity >= nbytes:
            return block
        self._pool.free(block)
        return self._pool.allocate(nbytes)

    @uninterrupted
    def release(self, block: StorageBlock) -> None:
        """Give a block back at the end of the function."""
        self._idle.append(block)


class RandomState(Protocol):
    """Host array of a tensor int64 [3]: key, step and part, as random operators read them."""

    @property
    def array(self) -> npt.NDArray[np.int64]:
        """The array, which may be changed."""

    def store(self) -> None:
        """Copy the array to the tensor."""


class RandomResource:
    """Random numbers of a context: a stream that functions continue in the order of pushing.

    A function that draws names `variable` among its updates and calls `advance` before it reads the
    state, so that every function has a step of its own. place: of the state, the int64 [3] tensor
    `random:state` of programs.
    """

    def __init__(
        self, engine: Engine, context: Context, seed: int, state: RandomState, place: Any
    ) -> None:
        self.place = place
        self.variable = engine.new_variable(f"random numbers of {context}")
        self._engine, self._context, self._state = engine, context, state
        self.seed(seed)

    def seed(self, seed: int) -> None:
        """Begin a new stream for the functions that are pushed from now on.

        It depends on the seed and the context alone.
        """
        key = key_of(f"{seed}/{self._context}")

        def restart(_: RunContext) -> None:
            self._state.array[:] = key, 0, 0
            self._state.store()

        self._engine.push_sync(restart, writes=(self.variable,), name="seed", context=self._context)

    def advance(self) -> None:
        """Move the state to the next step; for functions that update `variable` only."""
        self._state.array[1] += 1
        self._state.store()
