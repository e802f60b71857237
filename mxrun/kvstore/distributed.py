"""Exchanges between ranks: `dist_sync`, and `dist_device_sync`, which first sums on the devices.

A rank adds up the arrays of its own devices, then the sums of the ranks are added, both in the
order of `fold_tree`. All ranks get the same bits, so that each may update values of its own; and
they are those of any other number of ranks that share out the same arrays, if both numbers are
powers of two.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import cache
from types import TracebackType

import numpy as np

from mxrun.base.context import Context, cpu
from mxrun.base.errors import Diagnostic, UserError
from mxrun.base.tensor import TensorSpec
from mxrun.device.interface import Mirror
from mxrun.imperative.arrays.ndarray import NDArray
from mxrun.kvstore.keys import Key
from mxrun.kvstore.local import DeviceExchange, LocalExchange
from mxrun.kvstore.reduction import new_array, push_copy, push_tree_sum
from mxrun.runtime.engine.default import engine
from mxrun.runtime.engine.interface import EngineOperator, Pool, RunContext, Variable
from mxrun.runtime.engine.wait import wait_for
from mxrun.runtime.mpi import all_ranks
from mxrun.runtime.ranks import BETWEEN_RANKS, slice_elements
from mxrun.runtime.ranks import Array as HostArray

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
        name, broadcast = f"kvstore init {key}", self.ranks.broadcast
        stored.chunk.engine.push(self._change(stored, self._flat(stored), name, 0, broadcast))

    def barrier(self) -> None:
        """Wait until every rank has called this, and for all messages before."""
        messages = engine()
        messages.push(self._message(lambda _: self.ranks.barrier(), cpu(0), "kvstore barrier", 0))
        wait_for(messages, self._wire)

    def pushpull(self, key: Key, arrays: Sequence[NDArray], priority: int) -> EngineOperator:
        """Return the operation that sums the arrays of all ranks, each of which has one."""
        (array,) = arrays
        return self._summation(array, f"sum {key}{BETWEEN_RANKS}", priority, self.ranks.sum)

    def sum_slices(self, key: Key, array: NDArray, priority: int) -> EngineOperator:
        """Return the operation that replaces each rank's slice of an array by that of the sum."""
        return self._summation(
            array, f"sum slices of {key}{BETWEEN_RANKS}", priority, self.ranks.sum_slices
        )

    def share_slices(self, key: Key, array: NDArray, priority: int) -> EngineOperator:
        """Return the operation that gives all ranks each other's slices of an array."""
        mirror = self._flat(array)
        bounds = slice_elements(mirror.array, self.ranks.size)
        name = f"share slices of {key}{BETWEEN_RANKS}"
        share = self.ranks.share_slices
        return self._change(array, mirror, name, priority, lambda here: share(here, bounds))

    def _reduce(self, key: Key, arrays: Sequence[NDArray], priority: int) -> NDArray:
        total = super()._reduce(key, arrays, priority)
        if total is arrays[0]:
            total = new_array(total, total.context)
            push_copy(arrays[0], total, f"kvstore push {key}", priority)
        self._push_message(key, total, priority)
        return total

    def _replace(self, key: Key, arrays: Sequence[NDArray], priority: int) -> None:
        super()._replace(key, arrays, priority)
        self._push_message(key, self.stored[key], priority)

    def _push_sum(
        self, arrays: Sequence[NDArray], total: NDArray, name: str, priority: int
    ) -> None:
        push_tree_sum(arrays, total, name, priority)

    def _push_message(self, key: Key, array: NDArray, priority: int) -> None:
        name = f"kvstore push {key}{BETWEEN_RANKS}"
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
        return self._change(array, mirror, name, priority, lambda here: summed(here, received))

    def _change(
        self,
        array: NDArray,
        mirror: Mirror,
        name: str,
        priority: int,
        change: Callable[[HostArray], object],
    ) -> EngineOperator:
        """Return the operation that changes an array in the host's memory, its mirror."""

        def run(_: RunContext) -> None:
            mirror.load()
            change(mirror.array)
            mirror.store()

        return self._message(run, array.context, name, priority, [array.chunk.variable])

    def _flat(self, array: NDArray) -> Mirror:
        """Return an array in the host's memory, 1-d."""
        flat = TensorSpec((array.spec.elements,), array.spec.dtype)
        return array.chunk.device.mirror(array.handle, flat)

    def _message(
        self,
        run: Callable[[RunContext], object],
        context: Context,
        name: str,
        priority: int,
        changed: Sequence[Variable] = (),
    ) -> EngineOperator:
        return EngineOperator(
            run,
            updates=[*changed, self._wire],
            name=name,
            context=context,
            pool=Pool.COMMUNICATION,
            priority=priority,
        )


class DeviceRankExchange(RankExchange, DeviceExchange):
    """Exchange between ranks, each of which sums on the devices that push."""

    @property
    def type(self) -> str:
        """`dist_device_sync`."""
        return "dist_device_sync"


@cache
def end_all_on_exception() -> None:
    """Let an exception that ends this process end all ranks, which would wait for it for ever."""
    ranks, report = all_ranks(), sys.excepthook

    def end(kind: type[BaseException], error: BaseException, where: TracebackType | None) -> None:
        report(kind, error, where)
        who = f"rank {ranks.rank} of {ranks.size}"
        sys.stderr.write(f"{kind.__name__} on {who}, which ends all ranks\n")
        ranks.abort(1)

    if ranks.size > 1:
        sys.excepthook = end
