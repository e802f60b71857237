"""Pending functions of a threaded engine: counts, waits, deletions and due callbacks."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from functools import partial

from mxrun.base.dataclass import dataclass
from mxrun.base.errors import Diagnostic, UserError
from mxrun.runtime.engine.failure import Failure
from mxrun.runtime.engine.interface import Engine, EngineOperator, Variable
from mxrun.runtime.engine.propagation import wait_inside
from mxrun.runtime.engine.queues import Fence, request_fence

_IN_HANDLER = (
    "a signal handler must not use arrays or raise exceptions: let it set a flag, and look at that "
    "between operations"
)


@dataclass
class _WaitForAll:
    """Wait for what has a sequence up to `last`, of which `left` are pending."""

    last: int
    left: int


class PendingWork(Engine):
    """Part of the threaded engine that knows what is pending.

    A push is pending until its accesses are released, and a callback until it has returned. A push
    has a number in the order of pushing, its sequence, and a callback that of the last push before
    it, so that waits for everything so far do not wait for what comes later.
    """

    def __init__(self) -> None:
        self._reset()

    def _reset(self) -> None:
        """Begin with nothing pending."""
        # Re-entrant, so that a signal handler that interrupts its holder meets an error instead of
        # waiting for itself (`_in_handler`). Nothing else acquires it twice.
        self._lock = threading.RLock()
        self._is_held_here: Callable[[], bool] = self._lock._is_owned  # type: ignore[attr-defined]
        self._complete = threading.Condition(self._lock)
        self._sequence, self._pending = 0, 0
        self._waits: list[_WaitForAll] = []
        # Those that no wait has raised.
        self._failures: set[Failure] = set()
        # Deletions by the garbage collector, whose thread may hold the lock, for its next holder.
        self._deletions: deque[tuple[Variable, Callable[[], None] | None]] = deque()
        # Callbacks that are due, with their sequences. They run without the lock.
        self._due: deque[tuple[int, Callable[[], None]]] = deque()
        # Operators whose functions run, by thread, the innermost last; and the asynchronous ones
        # that have begun.
        self._inside: dict[int, list[EngineOperator]] = {}
        self._begun: set[EngineOperator] = set()
        # The exception that has left an operation half done.
        self._broken: BaseException | None = None

    # -- operations that exceptions end --------------------------------------------------------

    def _in_handler(self) -> UserError:
        """Return the error of a thread that begins an operation within one of this engine."""
        return UserError(
            Diagnostic(
                "a signal handler uses arrays while the engine works for the call that it "
                "interrupts",
                hint=_IN_HANDLER,
            )
        )

    def _break(self, error: BaseException) -> None:
        """Note that an exception has left an operation half done; lock not held."""
        self._broken = error
        with self._lock:
            self._complete.notify_all()

    def _require_whole(self) -> None:
        """Raise an error if an operation was left half done: waits might never end."""
        error = self._broken
        if isinstance(error, MemoryError):
            raise error
        if error is not None:
            raise UserError(
                Diagnostic(
                    "the engine cannot go on: an exception has ended one of its operations halfway",
                    got=f"{type(error).__name__}: {error}",
                    hint=_IN_HANDLER,
                )
            ) from error

    # -- waiting -------------------------------------------------------------------------------

    def _wait_until_complete(self, timeout: float | None = None) -> None:
        """Wait until all that is pending now is complete, or for `timeout` seconds; lock held."""
        if self._pending and threading.get_ident() in self._inside:
            raise wait_inside("all functions")
        self._delete_pending()
        if self._due:
            self._call_back_without_lock()
        if not self._pending:
            return
        wait = _WaitForAll(self._sequence, self._pending)
        self._waits.append(wait)
        try:
            self._complete.wait_for(lambda: not wait.left or self._broken, timeout)
        finally:
            self._waits.remove(wait)

    def _complete_one(self, sequence: int) -> None:
        """Count something as no longer pending; lock held."""
        self._pending -= 1
        for wait in self._waits:
            if sequence <= wait.last:
                wait.left -= 1
                if not wait.left:
                    self._complete.notify_all()

    # -- callbacks -----------------------------------------------------------------------------

    def _owe(self, sequence: int, callback: Callable[[], None]) -> None:
        """Let the next `_call_back` call this, for what has this sequence; lock held."""
        self._due.append((sequence, callback))
        self._pending += 1
        for wait in self._waits:
            if sequence <= wait.last:
                wait.left += 1

    def _call_back(self) -> None:
        """Call the callbacks that are due; lock not held."""
        while self._due:
            try:
                sequence, callback = self._due.popleft()
            except IndexError:
                # Another thread has taken the last one.
                return
            raised: BaseException | None = None
            try:
                callback()
            except BaseException as error:  # noqa: BLE001 - raised again where somebody waits
                raised = error
            with self._lock:
                if raised is not None:
                    self._failures.add(Failure("deletion", sequence, raised))
                self._complete_one(sequence)

    def _call_back_without_lock(self) -> None:
        """Call the callbacks that are due; lock held, but not meanwhile."""
        self._lock.release()
        try:
            self._call_back()
        finally:
            self._lock.acquire()

    # -- deleting ------------------------------------------------------------------------------

    def delete_variable(
        self, variable: Variable, on_delete: Callable[[], None] | None = None
    ) -> None:
        """Delete a variable after all functions pushed so far that use it."""
        variable.deleted = True
        self._deletions.append((variable, on_delete))
        if not self._is_held_here() and self._lock.acquire(blocking=False):
            try:
                self._delete_pending()
            finally:
                self._lock.release()
            self._call_back()

    def _delete_pending(self) -> None:
        """Delete all variables whose deletion was asked for; lock held."""
        while self._deletions:
            variable, on_delete = self._deletions.popleft()
            if on_delete is None:
                continue
            fence = Fence(variable, partial(self._owe, self._sequence, on_delete))
            if request_fence(fence):
                fence.reach()

    def delete_operator(
        self, operator: EngineOperator, on_delete: Callable[[], None] | None = None
    ) -> None:
        """Delete an operator after its pushes so far."""
        with self._lock:
            operator.is_deleted = True
            if operator.pending:
                operator.on_delete = on_delete
            elif on_delete is not None:
                self._owe(self._sequence, on_delete)
        self._call_back()

    # -- observation ---------------------------------------------------------------------------

    def unreported(self) -> tuple[Failure, ...]:
        """Return the failures that no wait has raised."""
        with self._lock:
            return tuple(sorted(self._failures, key=lambda failure: failure.sequence))
