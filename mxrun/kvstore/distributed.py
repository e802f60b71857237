"""Exchanges between ranks: `dist_sync`, and `dist_device_sync`, which first sums on the devices.

A rank adds up the arrays of its own devices, then the sums of the ranks are added in the order of
`fold_tree`. All ranks get the same bits, so that each may update values of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from mxrun.base.errors import Diagnostic, UserError
from mxrun.base.tensor import TensorSpec
from mxrun.device.interface import Mirror
from mxrun.imperative.arrays.ndarray import NDArray
from mxrun.kvstore.keys import Key
from mxrun.kvstore.local import DeviceExchange, LocalExchange
from mxrun.kvstore.reduction import new_array, push_copy
from mxrun.runtime.engine.interface import EngineOperator, Pool, RunContext, Variable
from mxrun.runtime.mpi import all_ranks
from mxrun.runtime.ranks import Array as HostArray
from mxrun.runtime.ranks import slice_elements

_SUMMED = ("float32", "float64", "int32", "int64")


class RankExchange(LocalExchange):
    """Exchange between the processes that mpirun has started.

    Values are initialised with those of rank 0. All messages are in the order of pushing, which
    must be the same on every rank.
    """

    def __init__(self) -> None:
        super().__init__()
        self.ranks = all_ranks().duplicate()
        self._wire = Variable("messages between ranks")

    @property
    def wires(self) -> Sequence[Variable]:
        """The variable that all messages update."""
        return (self._wire,)

    @property
    def type(self) -> str:
        """`dist_sync`."""
        return "dist_sync"

    def init(self, key: Key, value: NDArray) -> None:
        """Store a copy of rank 0's value."""
        if value.dtype not in _SUMMED:
            problem = f"values of {value.dtype} cannot be summed over processes"
            raise UserError(Diagnostic(problem, expected=f"one of {', '.join(_SUMMED)}"))
        super().init(key, value)
        stored = self.stored[key]
        mirror = stored.chunk.device.mirror(stored.handle, stored.spec)

        def run(_: RunContext) -> None:
            mirror.load()
            self.ranks.broadcast(mirror.array)
            mirror.store()

        stored.chunk.engine.push(self._message(run, stored, f"kvstore init {key}", 0))

    def pushpull(self, key: Key, arrays: Sequence[NDArray], priority: int) -> EngineOperator:
        """Return the operation that sums the arrays of all ranks, each of which has one."""
        (array,) = arrays
        return self._summation(array, f"push and pull {key}", priority, self.ranks.sum)

    def sum_slices(self, key: Key, array: NDArray, priority: int) -> EngineOperator:
        """Return the operation that replaces each rank's slice of an array by that of the sum."""
        return self._summation(array, f"push {key}", priority, self.ranks.sum_slices)

    def share_slices(self, key: Key, array: NDArray, priority: int) -> EngineOperator:
        """Return the operation that gives all ranks each other's slices of an array."""
        mirror, ranks = self._flat(array), self.ranks
        bounds = slice_elements(mirror.array, ranks.size)

        def run(_: RunContext) -> None:
            mirror.load()
            ranks.share_slices(mirror.array, bounds)
            mirror.store()

        return self._message(run, array, f"pull {key}", priority)

    def _reduce(self, key: Key, arrays: Sequence[NDArray], priority: int) -> NDArray:
        total = super()._reduce(key, arrays, priority)
        if total is arrays[0]:
            total = new_array(total, total.context)
            push_copy(arrays[0], total, f"kvstore push {key}", priority)
        self._push_sum(key, total, priority)
        return total

    def _replace(self, key: Key, arrays: Sequence[NDArray], priority: int) -> None:
        super()._replace(key, arrays, priority)
        self._push_sum(key, self.stored[key], priority)

    def _push_sum(self, key: Key, array: NDArray, priority: int) -> None:
        name = f"kvstore push {key} over {self.size} ranks"
        array.chunk.engine.push(self._summation(array, name, priority, self.ranks.sum))

    def _summation(
        self,
        array: NDArray,
        name: str,
        priority: int,
        summed: Callable[[HostArray, HostArray], object],
    ) -> EngineOperator:
        """Return the operation that replaces an array by what `summed` makes of it."""
        mirror = self._flat(array)
        received = np.empty(self.ranks.received_elements(mirror.array), mirror.array.dtype)

        def run(_: RunContext) -> None:
            mirror.load()
            summed(mirror.array, received)
            mirror.store()

        return self._message(run, array, name, priority)

    def _flat(self, array: NDArray) -> Mirror:
        """Return an array in the host's memory, 1-d."""
        flat = TensorSpec((array.spec.elements,), array.spec.dtype)
        return array.chunk.device.mirror(array.handle, flat)

    def _message(
        self, run: Callable[[RunContext], object], array: NDArray, name: str, priority: int
    ) -> EngineOperator:
        return EngineOperator(
            run,
            updates=[array.chunk.variable, self._wire],
            name=name,
            context=array.context,
            pool=Pool.COMMUNICATION,
            priority=priority,
        )


class DeviceRankExchange(RankExchange, DeviceExchange):
    """Exchange between ranks, each of which sums on the devices that push."""

    @property
    def type(self) -> str:
        """`dist_device_sync`."""
        return "dist_device_sync"
