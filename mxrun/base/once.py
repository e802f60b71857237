"""Caches that several threads may fill at once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from functools import cache
from typing import TypeVar

Result = TypeVar("Result")


def once(function: Callable[..., Result]) -> Callable[..., Result]:
    """Return `function` with a cache of its results, each of which is made once.

    `functools.cache` may call the function once for each of several threads, and then drops all
    results but one. That is wrong where results own something or are compared by identity.
    """
    made = cache(function)
    lock = threading.RLock()

    def make(*arguments: Hashable) -> Result:
        with lock:
            return made(*arguments)

    make.__doc__, make.__name__ = function.__doc__, function.__name__
    # The outer cache answers known arguments without the lock.
    return cache(make)
