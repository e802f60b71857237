"""Locks that a forked process can use, whatever the threads of its parent were doing."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from importlib import _bootstrap
from weakref import WeakSet

# Seconds for which a fork waits for what other threads do for the first time.
_PATIENCE_S, _POLL_S = 30.0, 0.001
_locks: WeakSet[threading.RLock] = WeakSet()
# See `hold_while_forking`.
_holds: list[tuple[Callable[[], None], Callable[[], None]]] = []


def new_lock() -> threading.RLock:
    """Return a new lock, which is free in a forked process: the thread that held it is not there.

    Every lock of the product that guards state is one of these. It is re-entrant, because a
    finaliser or a signal handler may run on the thread that holds it.
    """
    lock = threading.RLock()
    _locks.add(lock)
    return lock


FIRST_TIME = new_lock()
"""Held by a thread that loads a library or compiles, and while the process forks.

Libraries have locks of their own, which stay locked in a child whose parent forks meanwhile.
"""


def hold_while_forking(hold: Callable[[], None], release: Callable[[], None]) -> None:
    """Call `hold` before the process forks, and `release` afterwards in the parent.

    Both may be called several times before one fork: what is held is released while the fork waits
    for what other threads do for the first time, because they may need it.
    """
    _holds.append((hold, release))


def _hold() -> None:
    """Hold everything once no other thread compiles or imports: a child could never end that."""
    end = time.monotonic() + _PATIENCE_S
    while True:
        for hold, _ in _holds:
            hold()
        is_held = FIRST_TIME.acquire(timeout=_POLL_S)
        if time.monotonic() > end or (is_held and not _is_imported_elsewhere()):
            return
        # A module that is imported may load libraries and use arrays.
        _release()
        time.sleep(_POLL_S)


def _release() -> None:
    if FIRST_TIME._is_owned():  # type: ignore[attr-defined]
        FIRST_TIME.release()
    for _, release in reversed(_holds):
        release()


def _is_imported_elsewhere() -> bool:
    """Return whether another thread is importing a module."""
    references = list(vars(_bootstrap)["_module_locks"].values())
    locks = [reference() for reference in references]
    free = (None, threading.get_ident())
    return any(lock is not None and lock.owner not in free for lock in locks)


def _renew() -> None:
    # Python's own modules, such as logging, do so too.
    for lock in list(_locks):
        lock._at_fork_reinit()  # type: ignore[attr-defined]


os.register_at_fork(before=_hold, after_in_parent=_release, after_in_child=_renew)
