"""Key-value stores within one process.

`local` keeps and reduces every value on the context of its initial value, `device` on the contexts
that push. The results have the same bits: gradients are added in the order in which the devices are
listed.
"""

from __future__ import annotations

from collections.abc import Sequence

from mxrun.base.context import Context
from mxrun.imperative.arrays.ndarray import NDArray
from mxrun.kvstore.base import KVStore
from mxrun.kvstore.keys import Key
from mxrun.kvstore.reduction import new_array, push_copy, push_sum


class LocalKVStore(KVStore):
    """Store that keeps and reduces every value where its initial value was."""

    @property
    def type(self) -> str:
        """`local`."""
        return "local"

    @property
    def rank(self) -> int:
        """0."""
        return 0

    @property
    def num_workers(self) -> int:
        """1."""
        return 1

    def barrier(self) -> None:
        """Return at once: there is no other worker."""

    def _store(self, key: Key, value: NDArray) -> None:
        self._values[key] = _copied(value, value.context, f"kvstore init {key}")

    def _reduce(self, key: Key, arrays: Sequence[NDArray], priority: int) -> NDArray:
        home = self._home(key, arrays)
        if len(arrays) == 1 and arrays[0].context == home:
            return arrays[0]
        total = new_array(arrays[0], home)
        push_sum(arrays, total, f"kvstore push {key}", priority)
        return total

    def _replace(self, key: Key, arrays: Sequence[NDArray], priority: int) -> None:
        self._home(key, arrays)
        push_sum(arrays, self._values[key], f"kvstore push {key}", priority)

    def _copy(self, key: Key, target: NDArray, priority: int) -> None:
        push_copy(self._values[key], target, f"kvstore pull {key}", priority)

    def _home(self, key: Key, arrays: Sequence[NDArray]) -> Context:
        """Return the context of a key's stored array; `arrays` are pushed to it."""
        return self._values[key].context


class DeviceKVStore(LocalKVStore):
    """Store that keeps and reduces values on the devices that push them.

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
            stored = self._values[key]
            home = min((each.context for each in arrays), key=lambda it: self._bytes.get(it, 0))
            self._bytes[home] = self._bytes.get(home, 0) + stored.nbytes
            if stored.context != home:
                self._values[key] = _copied(stored, home, f"kvstore move {key}")
        return self._values[key].context


def _copied(source: NDArray, context: Context, name: str) -> NDArray:
    found = new_array(source, context)
    push_copy(source, found, name, 0)
    return found
