"""Limit of the results that calls of operators have promised and the engine has not computed yet.

A program that calls operators faster than they run would otherwise allocate the memory of all its
results before the first one is used, and none of them would still be in a cache when it is.
"""

from __future__ import annotations

import os
import threading
from collections import deque

from mxrun.base.locks import new_lock
from mxrun.runtime.engine.failure import Failure
from mxrun.runtime.engine.interface import Engine, EngineOperator
from mxrun.runtime.engine.interrupts import uninterrupted

_MAX_BYTES = 64 << 20
# Seconds after which a call waits no longer: what is pending may itself wait for the caller.
_PATIENCE_S = 1.0


class _PendingCall:
    """Call with results of `nbytes`; event: set when it is complete; None if nobody waits."""

    __slots__ = ("event", "is_complete", "nbytes")

    def __init__(self, nbytes: int) -> None:
        self.nbytes, self.is_complete = nbytes, False
        self.event: threading.Event | None = None

    def complete(self, failure: Failure | None) -> None:
        """Note that the call is complete, whether or not it has failed."""
        self.is_complete = True
        event = self.event
        if event is not None:
            event.set()

    def wait(self, seconds: float) -> None:
        """Wait until the call is complete, or for so many seconds; several threads may do so."""
        event = self.event
        if event is not None and not self.is_complete:
            event.wait(seconds)


class PendingResults:
    """Calls that are pushed and not complete, oldest first, and the bytes of their results.

    max_bytes: a call that exceeds it waits until older ones have left half of it, or for `patience`
    seconds.
    """

    def __init__(self, max_bytes: int = _MAX_BYTES, patience: float = _PATIENCE_S) -> None:
        self._max_bytes, self._patience = max_bytes, patience
        self.clear()

    def push(self, engine: Engine, operator: EngineOperator, nbytes: int) -> None:
        """Push a call with new results of `nbytes`, first waiting for older ones if they are too
        many.

        Within a function of the engine, for which older ones may have to wait, this does not wait,
        nor does it for a call without new results.
        """
        if nbytes and self._nbytes + nbytes > self._max_bytes and not engine.is_within():
            last = self._last_awaited(self._max_bytes // 2)
            if last is not None:
                last.wait(self._patience)
        call = _PendingCall(nbytes)
        engine.push(operator, call.complete)
        self._add(call)

    def clear(self) -> None:
        """Forget all calls, as in a forked process, where no other thread goes on with anything."""
        self._calls: deque[_PendingCall] = deque()
        self._nbytes = 0
        # Reentrant, because a finaliser may call operators.
        self._lock = new_lock()

    @uninterrupted
    def _add(self, call: _PendingCall) -> None:
        with self._lock:
            self._calls.append(call)
            self._nbytes += call.nbytes
            while self._calls and self._calls[0].is_complete:
                self._nbytes -= self._calls.popleft().nbytes

    @uninterrupted
    def _last_awaited(self, nbytes: int) -> _PendingCall | None:
        """Return the first call after whose completion at most `nbytes` are pending, if any."""
        with self._lock:
            pending = [call for call in self._calls if not call.is_complete]
            self._calls = deque(pending)
            self._nbytes = left = sum(call.nbytes for call in pending)
            last = None
            for call in pending:
                if left <= nbytes:
                    break
                left, last = left - call.nbytes, call
            if last is not None and last.event is None:
                last.event = threading.Event()
            return last


PENDING = PendingResults()
"""Those of the process."""

os.register_at_fork(after_in_child=PENDING.clear)
