"""Locks that a forked process can use, whatever the threads of its parent were doing."""

from __future__ import annotations

import os
import threading
import time
from importlib import _bootstrap
from weakref import WeakSet

# Seconds for which a fork waits for what other threads do for the first time.
_PATIENCE_S, _POLL_S = 30.0, 0.001
_locks: WeakSet[threading.RLock] = WeakSet()


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


def _wait_for_first_times() -> None:
    """Wait until no other thread compiles or imports: a child could never end that."""
    end = time.monotonic() + _PATIENCE_S
    FIRST_TIME.acquire(timeout=_PATIENCE_S)
    while _is_imported_elsewhere() and time.monotonic() < end:
        # An import may itself load a library.
        FIRST_TIME.release()
        time.sleep(_POLL_S)
        FIRST_TIME.acquire(timeout=_PATIENCE_S)


def _is_imported_elsewhere() -> bool:
    """Return whether another thread is importing a module."""
    references = list(vars(_bootstrap)["_module_locks"].values())
    locks = [reference() for reference in references]
    free = (None, threading.get_ident())
    return any(lock is not None and lock.owner not in free for lock in locks)


def _release_first_times() -> None:
    FIRST_TIME.release()


def _renew() -> None:
    # Python's own modules, such as logging, do so too.
    for lock in list(_locks):
        lock._at_fork_reinit()  # type: ignore[attr-defined]


os.register_at_fork(
    before=_wait_for_first_times, after_in_parent=_release_first_times, after_in_child=_renew
)
