"""States of batch parts that one executor computes one after the other."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from mxrun.executor.executor import Executor
from mxrun.graph.graph import MemoryClass
from mxrun.runtime.ranks import RankGroup
from mxrun.train.host_arrays import HostArrays, pinned

Array = npt.NDArray[Any]


class AuxiliaryStates:
    """Auxiliary states of a plan, which only the first part of a batch changes."""

    def __init__(self, executor: Executor) -> None:
        self._states = HostArrays(executor, pinned(executor, MemoryClass.AUXILIARY))
        self._arrays = [*self._states.arrays.values()]
        self._before = [array.copy() for array in self._arrays]

    def begin_part(self) -> None:
        """Copy the states."""
        if self._arrays:
            self._states.load()
            for array, before in zip(self._arrays, self._before, strict=True):
                before[...] = array

    def end_part(self, number: int) -> None:
        """Restore the states, unless the part has number 0 of all parts of the batch."""
        if self._arrays and number:
            for array, before in zip(self._arrays, self._before, strict=True):
                array[...] = before
            self._states.store()

    def broadcast(self, ranks: RankGroup) -> None:
        """Replace the states by those of the first rank."""
        self._states.load()
        for array in self._arrays:
            ranks.broadcast(array)
        self._states.store()


class CarriedStates:
    """States that a phase carries from batch to batch, of each part on all ranks.

    arrays: by name, those of all batch parts, [parts, ...]; those of other ranks are there once
    they are gathered.
    """

    def __init__(self, executor: Executor, phase: str, ranks: RankGroup, parts: int) -> None:
        """`parts`: number of those of each rank."""
        self._ranks, own = ranks, slice(ranks.rank * parts, (ranks.rank + 1) * parts)
        self.arrays: dict[str, Array] = {}
        self._states = []
        for name, tensor in executor.carried(phase).items():
            mirror = tensor.mirror()
            shape = (ranks.size * parts, *mirror.array.shape)
            self.arrays[name] = np.zeros(shape, mirror.array.dtype)
            self._states.append((mirror, self.arrays[name][own]))

    def begin_part(self, part: int) -> None:
        """Give the executor the states of part number `part` of this rank."""
        for mirror, own in self._states:
            mirror.array[...] = own[part]
            mirror.store()

    def end_part(self, part: int) -> None:
        """Take the states of a part from the executor."""
        for mirror, own in self._states:
            mirror.load()
            own[part] = mirror.array

    def clear(self) -> None:
        """Set all states to zero."""
        for array in self.arrays.values():
            array.fill(0)

    def gather(self) -> None:
        """Take the states of all parts from the ranks that compute them."""
        for array, (_, own) in zip(self.arrays.values(), self._states, strict=True):
            array[...] = self._ranks.gather(own).reshape(array.shape)

    def broadcast(self) -> None:
        """Replace the states of all parts by those that the first rank has."""
        for array in self.arrays.values():
            self._ranks.broadcast(array)
