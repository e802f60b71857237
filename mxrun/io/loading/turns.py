"""Turns of threads that make small records.

A small image is read, decoded and moved by calls that take a few microseconds each, and release the
interpreter lock. Threads that do this side by side hand the lock over at every call, and each makes
less than a third of the records that one thread makes alone. So they take turns, a chunk of records
each, except for reads that wait for a disk.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from mxrun.base.locks import new_lock

# Bytes of a record as it is stored, and as a row, up to which threads take turns.
_SMALL_RECORD, _SMALL_ROW = 1 << 12, 1 << 16
# Reads wait for a disk if they have a core for less than this share of their time. Every so many
# chunks are then read in turn, to see whether they still wait.
_BUSY, _PROBED = 0.2, 16
# Seconds after which a thread no longer waits for its turn: a read may never end.
_PATIENCE_S = 0.25


class Turns:
    """Turns of a loader's threads; they decide when a chunk is made, not what it is."""

    def __init__(self, row_bytes: int, runs_python: bool, patience: float = _PATIENCE_S) -> None:
        """`runs_python`: whether users' own transforms run, which may take any time.

        patience: seconds after which a thread goes on without its turn.
        """
        self._patience = patience
        self._lock = new_lock()
        self._is_possible = row_bytes <= _SMALL_ROW and not runs_python
        self._are_small = self._is_possible
        self._wait, self._reads = False, 0

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Context manager in which a chunk is read."""
        self._reads += 1
        if not self._are_small or (self._wait and self._reads % _PROBED):
            yield
            return
        with self._turn():
            started, busy = time.perf_counter(), time.thread_time()
            yield
            seconds, busy = time.perf_counter() - started, time.thread_time() - busy
            self._wait = busy < _BUSY * seconds

    def note(self, records: int, size: int) -> None:
        """Note how many bytes the records of a chunk have."""
        self._are_small = self._is_possible and size <= _SMALL_RECORD * records

    @contextmanager
    def making(self) -> Iterator[None]:
        """Context manager in which the rows of a chunk are made."""
        if not self._are_small:
            yield
            return
        with self._turn():
            yield

    @contextmanager
    def _turn(self) -> Iterator[None]:
        has_turn = self._lock.acquire(timeout=self._patience)
        try:
            yield
        finally:
            if has_turn:
                self._lock.release()
