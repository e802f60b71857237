"""The values that were used last, made when they are first needed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from mxrun.base.locks import new_lock

K = TypeVar("K")
V = TypeVar("V")


class RecentlyUsed(Generic[K, V]):
    """Values by key, at most `limit`; a new one takes the place of the one unused for longest.

    Threads may share it: a value is made once, while the others wait.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._values: dict[K, V] = {}
        self._lock = new_lock()

    def get(self, key: K, make: Callable[[], V]) -> V:
        """Return the value of a key, which `make` returns if there is none."""
        with self._lock:
            if key in self._values:
                value = self._values.pop(key)
            else:
                if len(self._values) == self._limit:
                    del self._values[next(iter(self._values))]
                value = make()
            # Dictionaries keep the order of insertion.
            self._values[key] = value
            return value

    def clear(self) -> None:
        """Forget all values."""
        with self._lock:
            self._values.clear()
