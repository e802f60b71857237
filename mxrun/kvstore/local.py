"""Exchanges within one process.

`local` keeps and reduces every value on the context of its initial value, `device` on the contexts
that push. The results have the same bits: gradients are added in the order in which the devices are
listed.
"""

from __future__ import annotations

from collections.abc import Sequence

from mxrun.base.context import Context
from mxrun.imperative.arrays.ndarray import NDArray
from mxrun.kvstore.exchange import GradientExchange
from mxrun.kvstore.keys import Key
from mxrun.kvstore.reduction import new_array, push_copy, push_sum, sum_everywhere
from mxrun.runtime.engine.interface import EngineOperator


class LocalExchange(GradientExchange):
    """Exchange that keeps and reduces every value where its initial value was."""

    @property
    def type(self) -> str:
        """`local`."""
        return "local"

    def init(self, key: Key, value: NDArray) -> None:
        """Store a copy on the value's context."""
        self.stored[key] = _copied(value, value.context, f"kvstore init {key}")

    def pull(self, key: Key, target: NDArray, priority: int) -> None:
        """Push a copy."""
        push_copy(self.stored[key], target, f"kvstore pull {key}", priority)

    def pushpull(self, key: Key, arrays: Sequence[NDArray], priority: int) -> EngineOperator:
        """Return the operation that sums on the context of one of the arrays."""
        home = self._choose(arrays)
        return sum_everywhere(arrays, home, f"push and pull {key}", priority)

    def _reduce(self, key: Key, arrays: Sequence[NDArray], priority: int) -> NDArray:
        home = self._home(key, arrays)
        if len(arrays) == 1 and arrays[0].context == home:
            return arrays[0]
        total = new_array(arrays[0], home)
        self._push_sum(arrays, total, f"kvstore push {key}", priority)
        return total

    def _replace(self, key: Key, arrays: Sequence[NDArray], priority: int) -> None:
        self._home(key, arrays)
        self._push_sum(arrays, self.stored[key], f"kvstore push {key}", priority)

    def _push_sum(
        self, arrays: Sequence[NDArray], total: NDArray, name: str, priority: int
    ) -> None:
        """Push the sum of the arrays of all devices."""
        push_sum(arrays, total, name, priority)

    def _home(self, key: Key, arrays: Sequence[NDArray]) -> Context:
        """Return the context of a key's stored array; `arrays` are pushed to it."""
        return self.stored[key].context

    def _choose(self, arrays: Sequence[NDArray]) -> NDArray:
        """Return the array on whose context arrays without a stored one are summed."""
        return arrays[0]


class DeviceExchange(LocalExchange):
    """Exchange that keeps and reduces values on the devices that push them.

    A key belongs to one of the contexts of its first push, that with the fewest bytes so far.
    """

    def __init__(self) -> None:
        super().__init__()
        self._placed: set[Key] = set()
        self._bytes: dict[Context, int] = {}

    @property
    def type(self) -> str:
        """`device`."""
        return "device"

    def _home(self, key: Key, arrays: Sequence[NDArray]) -> Context:
        if key not in self._placed:
            self._placed.add(key)
            stored, home = self.stored[key], self._choose(arrays).context
            if stored.context != home:
                self.stored[key] = _copied(stored, home, f"kvstore move {key}")
        return self.stored[key].context

    def _choose(self, arrays: Sequence[NDArray]) -> NDArray:
        chosen = min(arrays, key=lambda each: self._bytes.get(each.context, 0))
        home = chosen.context
        self._bytes[home] = self._bytes.get(home, 0) + chosen.nbytes
        return chosen


def _copied(source: NDArray, context: Context, name: str) -> NDArray:
    found = new_array(source, context)
    push_copy(source, found, name, 0)
    return found
