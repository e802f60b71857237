"""Interface of gradient exchanges: sums over the devices of a process, and over processes.

The training loop gives the gradients of its contexts to one, as parts of their arenas, and a
`KVStore` those of a program.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TypeAlias

from mxrun.base.context import Context
from mxrun.device.interface import DeviceTensor
from mxrun.imperative.arrays.chunk import BorrowedChunk
from mxrun.imperative.arrays.ndarray import NDArray
from mxrun.imperative.optimizer import ImperativeOptimizer, get_updater
from mxrun.kvstore.keys import Key
from mxrun.runtime.engine.interface import Engine, EngineOperator, Variable
from mxrun.runtime.ranks import OneRank, RankGroup
from mxrun.runtime.storage import StoragePool

UpdaterFunction: TypeAlias = Callable[[Key, NDArray, NDArray], object]


class GradientExchange(ABC):
    """Stored arrays by key, to which the devices of all processes push gradients.

    Every sum is folded from left to right in the order of the arrays, whatever is ready first, and
    then in the order of the processes. All operations are pushed to the engine of their arrays and
    return at once.

    ranks: the processes. stored: the stored array of each key. updater: changes the stored value by
    the pushed sum; None if the sum replaces it.
    """

    def __init__(self) -> None:
        self.ranks: RankGroup = OneRank()
        self.stored: dict[Key, NDArray] = {}
        self.updater: UpdaterFunction | None = None

    @property
    @abstractmethod
    def type(self) -> str:
        """Name under which the kind of exchange is registered."""

    @property
    def wires(self) -> Sequence[Variable]:
        """Variables that keep the messages between ranks in the order of pushing."""
        return ()

    @property
    def rank(self) -> int:
        """Number of this process, from 0."""
        return self.ranks.rank

    @property
    def size(self) -> int:
        """Number of processes that push."""
        return self.ranks.size

    def barrier(self) -> None:
        """Wait until every process has called this."""
        self.ranks.barrier()

    @abstractmethod
    def init(self, key: Key, value: NDArray) -> None:
        """Set a key's stored array to a copy of its initial value."""

    def push(self, key: Key, arrays: Sequence[NDArray], priority: int) -> None:
        """Replace a key's stored value by the sum of the arrays, or update it by the sum.

        priority: of the operations; those with higher ones run earlier. Raises whatever the updater
        raises, which is called in the calling thread.
        """
        if self.updater is None:
            self._replace(key, arrays, priority)
        else:
            total = self._reduce(key, arrays, priority)
            self.updater(key, total, self.stored[key])

    @abstractmethod
    def pull(self, key: Key, target: NDArray, priority: int) -> None:
        """Copy a key's stored value to an array on any device."""

    @abstractmethod
    def pushpull(self, key: Key, arrays: Sequence[NDArray], priority: int) -> EngineOperator:
        """Return the operation that replaces all arrays by their sum, for repeated pushes.

        It stores nothing, and allocates nothing when it runs. Raises InternalError for arrays that
        no device can use together.
        """

    def set_optimizer(self, optimizer: ImperativeOptimizer) -> None:
        """Update the stored values by an optimizer: pushed values are gradients, stored weights."""
        self.updater = get_updater(optimizer)

    @abstractmethod
    def _reduce(self, key: Key, arrays: Sequence[NDArray], priority: int) -> NDArray:
        """Return the sum of a key's arrays of all devices and processes, beside its stored array.

        The result may be the only array itself.
        """

    @abstractmethod
    def _replace(self, key: Key, arrays: Sequence[NDArray], priority: int) -> None:
        """Replace a key's stored value by the sum of the arrays of all devices and processes."""


def borrowed_array(engine: Engine, context: Context, tensor: DeviceTensor, name: str) -> NDArray:
    """Return a tensor in memory that has an owner as an array, with a new variable named `name`."""
    device, spec = tensor.device, tensor.spec
    pool = StoragePool(context, device.allocate)
    chunk = BorrowedChunk(context, device, pool, engine, tensor.handle, spec.nbytes, None)
    chunk.name = name
    return NDArray(chunk, spec.shape, spec.dtype)
