"""Caches that several threads may fill at once, and that a forked process can go on filling."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

from mxrun.base.locks import FIRST_TIME

Result = TypeVar("Result")


def once(function: Callable[..., Result]) -> Callable[..., Result]:
    """Return `function` with a cache of its results, each of which is made once.

    `functools.cache` may call the function once for each of several threads, and then drops all
    results but one. That is wrong where results own something or are compared by identity.
    """
    made = cache(function)

    def make(*arguments: Hashable) -> Result:
        with FIRST_TIME:
            return made(*arguments)

    make.__doc__, make.__name__ = function.__doc__, function.__name__
    # The outer cache answers known arguments without the lock.
    return cache(make)


if TYPE_CHECKING:
    from functools import cached_property as cached_property  # noqa: PLC0414 - exported
else:

    class cached_property(functools.cached_property):  # noqa: N801 - a name of Python's own
        """`functools.cached_property` without the lock that it has before Python 3.12.

        A forked process would find it locked for ever if a thread of its parent held it. Several
        threads may compute a value; all of them get the first one that is stored.
        """

        def __get__(self, instance: Any, owner: Any = None) -> Any:
            """Return the attribute's value, computed if it is not stored."""
            if instance is None:
                return self
            return instance.__dict__.setdefault(self.attrname, self.func(instance))
