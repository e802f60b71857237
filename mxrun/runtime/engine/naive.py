"""Naive engine: every pushed function runs on the pushing thread before the push returns.

Functions run in the order of pushing, one at a time, so that an error in the order of the threaded
engine shows as a difference. A function pushed from within another one, or by a thread while
another thread's function runs, runs after that one.
"""

from __future__ import annotations

import itertools
import threading
from collections import deque
from collections.abc import Callable

from mxrun.base.dataclass import dataclass
from mxrun.base.errors import InternalError
from mxrun.runtime.engine.calls import call
from mxrun.runtime.engine.completion import Completion
from mxrun.runtime.engine.failure import Failure, JobError
from mxrun.runtime.engine.interface import (
    Engine,
    EngineOperator,
    OnDone,
    OnWait,
    RunContext,
    Variable,
)
from mxrun.runtime.engine.propagation import (
    inherited,
    notify,
    require_usable,
    settle,
    wait_inside,
)


@dataclass(frozen=True, eq=False)
class _OrderedPush:
    operator: EngineOperator
    sequence: int
    on_done: OnDone | None

    def uses(self, variable: Variable) -> bool:
        return variable in self.operator.reads or variable in self.operator.changes

    def changes(self, variable: Variable) -> bool:
        return variable in self.operator.changes


class NaiveEngine(Engine):
    """Engine without workers, for debugging."""

    kind = "naive"

    def __init__(self) -> None:
        self._reset()

    def _reset(self) -> None:
        """Begin with nothing pending."""
        # Pushes, and callbacks of deletions, in order. Whoever holds `_busy` works on them.
        self._queue: deque[_OrderedPush | Callable[[], None]] = deque()
        self._busy = threading.Lock()
        self._runner: int | None = None
        self._running: _OrderedPush | None = None
        self._numbers = itertools.count(1)
        # Those that no wait has raised.
        self._failures: set[Failure] = set()
        self._closed = False

    # -- running -------------------------------------------------------------------------------

    def push(self, operator: EngineOperator, on_done: OnDone | None = None) -> None:
        """Run an operator, or leave it to the thread that runs one."""
        if self._closed:
            raise InternalError(f"{operator.name} is pushed on a closed engine")
        require_usable(operator)
        operator.pending += 1
        self._queue.append(_OrderedPush(operator, next(self._numbers), on_done))
        self._work()
        if self.interrupted:
            self._raise_interrupt()

    def run_or_push(self, operator: EngineOperator) -> bool:
        """Run an operator, or leave it to the thread that runs one."""
        self.push(operator)
        # Another thread may have begun to run functions, and run this one later.
        return not operator.pending

    def _work(self) -> None:
        """Work until the queue is empty, unless a thread does so already."""
        while self._queue and self._busy.acquire(blocking=False):
            try:
                self._drain()
            finally:
                self._busy.release()

    def _drain(self) -> None:
        """Run everything in the queue; the caller holds `_busy`."""
        self._runner = threading.get_ident()
        try:
            while self._queue:
                job = self._queue.popleft()
                if isinstance(job, _OrderedPush):
                    self._running = job
                    self._run(job)
                    self._running = None
                else:
                    self._call_back(job)
        finally:
            self._runner = self._running = None

    def _run(self, push: _OrderedPush) -> None:
        operator = push.operator
        failure = inherited(operator)
        interrupt: KeyboardInterrupt | None = None
        if failure is None:
            failure = self._call(push)
            if failure is not None and isinstance(failure.error, KeyboardInterrupt):
                interrupt = failure.error
        if push.on_done is not None:
            failure = notify(push.on_done, operator.name, push.sequence, failure)
        if failure is not None and failure.sequence == push.sequence:
            self._failures.add(failure)
        settle(operator, failure)
        operator.pending -= 1
        if operator.is_deleted and not operator.pending and operator.on_delete is not None:
            self._queue.append(operator.on_delete)
            operator.on_delete = None
        if interrupt is not None:
            # It is meant for the caller, so that no wait reports it again.
            if failure is not None:
                self._failures.discard(failure)
            raise interrupt

    def _call(self, push: _OrderedPush) -> Failure | None:
        """Call a function until it is complete; return its failure."""
        operator, sequence, sink = push.operator, push.sequence, self._sink
        run_context = RunContext(operator.context, f"{operator.context} caller")
        if not operator.is_async:
            return call(operator, sequence, operator.function, run_context, sink)
        complete, ends = threading.Event(), list[Failure | None]()

        def end(failure: Failure | None) -> None:
            ends.append(failure)
            complete.set()

        completion = Completion(operator.name, sequence, end)

        def complete_function(run_context: RunContext) -> None:
            operator.function(run_context, completion)
            complete.wait()

        raised = call(operator, sequence, complete_function, run_context, sink)
        return ends[0] if raised is None else raised

    def _call_back(self, on_delete: Callable[[], None]) -> None:
        try:
            on_delete()
        except BaseException as error:  # noqa: BLE001 - raised again where somebody waits
            self._failures.add(Failure("deletion", next(self._numbers), error))

    # -- deleting ------------------------------------------------------------------------------

    def delete_variable(
        self, variable: Variable, on_delete: Callable[[], None] | None = None
    ) -> None:
        """Delete a variable after all functions pushed so far that use it."""
        variable.deleted = True
        if on_delete is not None:
            self._queue.append(on_delete)
            self._work()

    def delete_operator(
        self, operator: EngineOperator, on_delete: Callable[[], None] | None = None
    ) -> None:
        """Delete an operator after its pushes so far."""
        operator.is_deleted = True
        if on_delete is not None:
            if operator.pending:
                operator.on_delete = on_delete
            else:
                self._queue.append(on_delete)
        self._work()

    # -- waiting -------------------------------------------------------------------------------

    def is_idle(self, variable: Variable) -> bool:
        """Return whether no pushed function uses a variable."""
        jobs = [job for job in [*self._queue, self._running] if isinstance(job, _OrderedPush)]
        return not any(job.uses(variable) for job in jobs)

    def wait_for_variable(
        self, variable: Variable, writers_only: bool = False, on_wait: OnWait | None = None
    ) -> None:
        """Return once no pushed function uses a variable; raises JobError if it is failed.

        `on_wait` is not called: the functions run on this thread.
        """
        if self._runner == threading.get_ident():
            jobs = [job for job in [*self._queue, self._running] if isinstance(job, _OrderedPush)]
            if any(job.changes(variable) if writers_only else job.uses(variable) for job in jobs):
                raise wait_inside(repr(variable))
        else:
            self._wait()
        failure = variable.failure
        if failure is not None:
            self._failures.discard(failure)
            raise JobError([failure])

    def wait_for_all(self) -> None:
        """Wait until nothing is pending; raises JobError with the failures no wait has raised."""
        if self._runner == threading.get_ident():
            raise wait_inside("all functions")
        self._wait()
        failures = self.unreported()
        self._failures.clear()
        if failures:
            raise JobError(failures)

    def drain(self) -> bool:
        """Wait for the thread that runs functions, if it is another one."""
        is_pending = self._busy.locked() and self._runner != threading.get_ident()
        if is_pending:
            self._wait()
        return is_pending

    def is_within(self) -> bool:
        """Return whether the calling thread runs a function."""
        return self._runner == threading.get_ident()

    def _wait(self) -> None:
        """Wait for the thread that runs functions, and run what it has left."""
        with self._busy:
            self._drain()

    def close(self, timeout: float | None = None) -> None:
        """Wait until nothing is pending; later pushes raise InternalError."""
        if timeout is not None and self._busy.locked():
            # A function that runs is left alone.
            self._closed = True
            return
        if self._runner == threading.get_ident():
            raise wait_inside("all functions")
        self._wait()
        self._closed = True

    # -- forks ---------------------------------------------------------------------------------

    def before_fork(self) -> None:
        """Wait for the thread that runs functions, if it is another one, and hold the engine."""
        if not self.is_within():
            self._busy.acquire()

    def after_fork_in_parent(self) -> None:
        """Go on."""
        if not self.is_within():
            self._busy.release()

    def after_fork_in_child(self) -> None:
        """Begin anew; what other threads have pushed runs in the parent alone."""
        if not self.is_within():
            self._reset()

    # -- observation ---------------------------------------------------------------------------

    def unreported(self) -> tuple[Failure, ...]:
        """Return the failures that no wait has raised."""
        return tuple(sorted(self._failures, key=lambda failure: failure.sequence))
