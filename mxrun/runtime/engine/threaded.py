"""Threaded engine: pushed functions run on worker threads as soon as their variables allow it.

A push that is ready (`queues.py`) enters the heap of its pool, from which a worker takes it. One
lock guards queues and heaps: beside the interpreter's own lock, finer ones would gain nothing.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from functools import partial
from heapq import heappop, heappush

from mxrun.base.context import Context
from mxrun.base.errors import InternalError, UserError
from mxrun.base.threads import start_thread
from mxrun.runtime.engine.calls import call
from mxrun.runtime.engine.completion import Completion
from mxrun.runtime.engine.failure import Failure, JobError
from mxrun.runtime.engine.interface import (
    HOST,
    POLL_S,
    EngineOperator,
    OnDone,
    OnWait,
    Pool,
    RunContext,
    Variable,
    span_of,
)
from mxrun.runtime.engine.pending import PendingWork
from mxrun.runtime.engine.propagation import (
    inherited,
    notify,
    require_usable,
    settle,
    wait_inside,
)
from mxrun.runtime.engine.queues import (
    QueuedPush,
    abandon,
    queue_behind,
    release,
    release_unawaited,
    request,
    take_if_idle,
)
from mxrun.runtime.engine.workers import DEFAULT_WORKERS, Workers


class ThreadedEngine(PendingWork):
    """Engine with worker threads.

    workers: their number in each pool of a context. name: begins the names of their tracks in
    traces, for an engine beside the process's.
    """

    kind = "threaded"

    def __init__(self, workers: Mapping[Pool, int] | int | None = None, name: str = "") -> None:
        sizes = dict(DEFAULT_WORKERS)
        if isinstance(workers, int):
            sizes = dict.fromkeys(Pool, workers)
        elif workers is not None:
            sizes.update(workers)
        if min(sizes.values()) < 1:
            raise InternalError(f"{sizes}: each pool needs a worker")
        self._sizes, self._name = sizes, name
        super().__init__()

    def _reset(self) -> None:
        super()._reset()
        self._workers: dict[tuple[Context, Pool], Workers] = {}
        # The workers that were needed last.
        self._recent = self._workers_of(HOST, Pool.COMPUTE)
        self._closed = False
        self._surroundings: dict[Context, RunContext] = {}
        self._host = RunContext(HOST, f"{HOST} caller")

    # -- pushing -------------------------------------------------------------------------------

    def push(self, operator: EngineOperator, on_done: OnDone | None = None) -> None:
        """Push an operator and return at once; it runs on a worker of its context's pool."""
        if self._is_held_here():
            raise self._in_handler()
        try:
            with self._lock:
                self._admit(operator)
                self._push(operator, on_done)
        except InternalError:
            raise
        except BaseException as error:
            self._break(error)
            raise
        if self._due:
            self._call_back()
        if self.interrupted:
            self._raise_interrupt()

    def run_or_push(self, operator: EngineOperator) -> bool:
        """Run a short operator on the calling thread if its variables are idle, else push it."""
        if self._is_held_here():
            raise self._in_handler()
        failure: Failure | None = None
        try:
            with self._lock:
                if self._closed or self._deletions or operator.is_deleted:
                    self._admit(operator)
                here = not operator.is_async and take_if_idle(operator)
                if here:
                    self._sequence = sequence = self._sequence + 1
                    self._pending += 1
                    operator.pending += 1
                    thread = threading.get_ident()
                    outer = self._inside.get(thread)
                    self._inside[thread] = [*outer, operator] if outer else [operator]
                else:
                    require_usable(operator)
                    self._push(operator, None)
            if here:
                # The hash of a context takes as long as an engine's lock.
                run_context = (
                    self._host if operator.context is HOST else self._here(operator.context)
                )
                failure = call(operator, sequence, operator.function, run_context, self._sink)
                with self._lock:
                    if outer is None:
                        del self._inside[thread]
                    else:
                        self._inside[thread] = outer
                    # The usual case, without a call of `_finish`.
                    if (
                        failure is None
                        and not operator.is_deleted
                        and not self._waits
                        and release_unawaited(operator)
                    ):
                        operator.pending -= 1
                        self._pending -= 1
                    else:
                        self._finish(operator, sequence, failure)
        except InternalError:
            raise
        except BaseException as error:
            self._break(error)
            raise
        if failure is not None and isinstance(failure.error, KeyboardInterrupt):
            # It is meant for the caller, so that no wait reports it again.
            self._failures.discard(failure)
            raise failure.error
        if self._due:
            self._call_back()
        if self.interrupted:
            self._raise_interrupt()
        return here

    def _admit(self, operator: EngineOperator) -> None:
        """Raise InternalError unless an operator may be pushed; lock held."""
        if self._closed:
            raise InternalError(f"{operator.name} is pushed on a closed engine")
        require_usable(operator)
        if self._deletions:
            self._delete_pending()

    def _push(self, operator: EngineOperator, on_done: OnDone | None) -> None:
        self._sequence += 1
        self._pending += 1
        operator.pending += 1
        push = QueuedPush(operator, self._sequence, on_done)
        if request(push):
            self._summon(self._enqueue(push))

    def _enqueue(self, push: QueuedPush) -> Workers:
        """Put a push into the heap of its pool, which is returned. Lock held."""
        operator = push.operator
        workers = self._recent
        if operator.pool is not workers.pool or operator.context is not workers.context:
            # Hashing a context and a pool takes as long as the rest of a push.
            workers = self._workers_of(operator.context, operator.pool)
        heappush(workers.ready, (-operator.priority, push.sequence, push))
        return workers

    def _workers_of(self, context: Context, pool: Pool) -> Workers:
        workers = self._workers.get((context, pool))
        if workers is None:
            workers = Workers(self._name, context, pool, self._sizes[pool])
            self._workers[context, pool] = workers
        self._recent = workers
        return workers

    def _summon(self, workers: Workers) -> None:
        """Wake or start a worker for a push that has become ready. Lock held."""
        if workers.asleep:
            # Taken from the list here, so that the next push finds another worker or starts one.
            workers.asleep.pop().release()
        elif len(workers.threads) < workers.size:
            number = len(workers.threads)
            name = f"{workers.name} {number}" if workers.size > 1 else workers.name
            try:
                thread = start_thread(self._serve, workers, name, name=f"mxrun {name}")
            except UserError as error:
                # Fewer workers are slower; without any nothing would ever run the pushes.
                while workers.ready and not workers.threads:
                    push = heappop(workers.ready)[2]
                    self._owe(push.sequence, partial(self._refuse, push, error))
            else:
                workers.threads.append(thread)

    def _refuse(self, push: QueuedPush, error: UserError) -> None:
        """Complete a push that no worker can run; lock not held."""
        operator, sequence = push.operator, push.sequence
        failure = inherited(operator) or Failure(operator.name, sequence, error)
        if push.on_done is not None:
            failure = notify(push.on_done, operator.name, sequence, failure) or failure
        with self._lock:
            self._finish(operator, sequence, failure)

    # -- running -------------------------------------------------------------------------------

    def _serve(self, workers: Workers, name: str) -> None:
        """Work until the engine is closed; body of a worker thread."""
        try:
            self._work(workers, name)
        except BaseException as error:  # noqa: BLE001 - raised again where somebody waits
            self._break(error)

    def _work(self, workers: Workers, name: str) -> None:
        """Run ready pushes until the engine is closed and nothing is ready."""
        run_context = RunContext(workers.context, name)
        thread = threading.get_ident()
        outer = self._inside.get(thread)
        ready, lock, wake = workers.ready, self._lock, threading.Lock()
        wake.acquire()
        is_asleep = False
        done: QueuedPush | None = None
        failure: Failure | None = None
        while True:
            push: QueuedPush | None = None
            with lock:
                self._inside[thread] = outer or []
                if done is not None:
                    self._finish(done.operator, done.sequence, failure, workers)
                    done = failure = None
                if self._deletions:
                    self._delete_pending()
                if ready:
                    push = heappop(ready)[2]
                    self._inside[thread] = [*(outer or ()), push.operator]
                elif self._closed:
                    if outer is None:
                        del self._inside[thread]
                    return
                elif not self._due:
                    workers.asleep.append(wake)
                    is_asleep = True
            if is_asleep:
                wake.acquire()
                is_asleep = False
                continue
            if self._due:
                self._call_back()
            if push is None:
                continue
            if push.operator.is_async:
                self._start(push, run_context)
                continue
            failure = self._run(push.operator, push.sequence, run_context)
            if push.on_done is not None:
                failure = notify(push.on_done, push.operator.name, push.sequence, failure)
            done = push

    def _run(
        self, operator: EngineOperator, sequence: int, run_context: RunContext
    ) -> Failure | None:
        """Run a function whose accesses are granted; return its failure or the one it inherits."""
        failure = inherited(operator)
        if failure is not None:
            return failure
        return call(operator, sequence, operator.function, run_context, self._sink)

    def _start(self, push: QueuedPush, run_context: RunContext) -> None:
        """Start an asynchronous function; its callback completes the push."""
        operator, sequence = push.operator, push.sequence
        start = time.monotonic_ns()

        def end(failure: Failure | None) -> None:
            if self._sink is not None:
                self._sink(span_of(operator, run_context, start))
            if push.on_done is not None:
                failure = notify(push.on_done, operator.name, sequence, failure)
            with self._lock:
                self._begun.discard(operator)
                self._finish(operator, sequence, failure)
            self._call_back()

        completion = Completion(operator.name, sequence, end)
        self._begun.add(operator)
        failure = inherited(operator)
        if failure is not None:
            completion.complete(failure)
        else:

            def begin(run_context: RunContext) -> None:
                operator.function(run_context, completion)

            failure = call(operator, sequence, begin, run_context, None)
            if failure is not None and not completion.complete(failure):
                with self._lock:
                    self._failures.add(failure)

    def _finish(
        self,
        operator: EngineOperator,
        sequence: int,
        failure: Failure | None,
        own: Workers | None = None,
    ) -> None:
        """Release the accesses of a complete push; lock held.

        own: the pool of the worker that calls this, and then takes what is ready.
        """
        if failure is not None:
            if failure.sequence == sequence:
                self._failures.add(failure)
            settle(operator, failure)
        else:
            for variable in operator.changes:
                if variable.failure is not None:
                    variable.failure = None
        for push in release(operator):
            workers = self._enqueue(push)
            if workers is own:
                # The worker that finishes takes one of them itself.
                own = None
            else:
                self._summon(workers)
        operator.pending -= 1
        if operator.is_deleted and not operator.pending and operator.on_delete is not None:
            self._owe(sequence, operator.on_delete)
            operator.on_delete = None
        self._complete_one(sequence)

    def _here(self, context: Context) -> RunContext:
        """Return the surroundings of a function that runs on the pushing thread."""
        if context not in self._surroundings:
            self._surroundings[context] = RunContext(context, f"{context} caller")
        return self._surroundings[context]

    # -- waiting -------------------------------------------------------------------------------

    def is_idle(self, variable: Variable) -> bool:
        """Return whether no pushed function uses a variable."""
        with self._lock:
            return not (variable.readers or variable.is_written or variable.waiting)

    def wait_for_variable(
        self, variable: Variable, writers_only: bool = False, on_wait: OnWait | None = None
    ) -> None:
        """Wait for all functions pushed so far that use a variable, or only those that change it.

        Raises JobError if the variable is failed then, and what `on_wait` raises.
        """
        if self._is_whole(variable):
            return
        if self._is_held_here():
            raise self._in_handler()
        with self._lock:
            reached, failures = queue_behind(variable, writers_only)
            if not failures and threading.get_ident() in self._inside:
                raise wait_inside(repr(variable))
        while not reached.acquire(timeout=POLL_S):
            self._require_whole()
            if on_wait is not None:
                on_wait()
        failure = failures[0]
        if failure is not None:
            with self._lock:
                self._failures.discard(failure)
            raise JobError([failure])

    def _is_whole(self, variable: Variable) -> bool:
        """Return whether a variable is idle and not failed, as after a function that ran here."""
        with self._lock:
            return (
                variable.failure is None
                and not variable.waiting
                and not variable.is_written
                and not variable.readers
            )

    def wait_for_all(self) -> None:
        """Wait for all pushed so far; raises JobError with the failures that no wait has raised."""
        if self._is_held_here():
            raise self._in_handler()
        with self._lock:
            self._wait_until_complete()
            if self._pending:
                self._require_whole()
            failures = sorted(self._failures, key=lambda failure: failure.sequence)
            self._failures.clear()
        if failures:
            raise JobError(failures)

    def drain(self) -> bool:
        """Wait for all pushed so far, and raise no failure; return whether anything was pending."""
        with self._lock:
            if not self._pending or threading.get_ident() in self._inside:
                return False
            self._wait_until_complete()
        return True

    def is_within(self) -> bool:
        """Return whether the calling thread runs a function."""
        return threading.get_ident() in self._inside

    def _wait_to_close(self, timeout: float | None) -> None:
        """Wait until nothing is pending, or for `timeout` seconds; lock held."""
        end = None if timeout is None else time.monotonic() + timeout
        while self._pending and not self._broken and (end is None or time.monotonic() < end):
            self._wait_until_complete(None if end is None else max(0.0, end - time.monotonic()))

    def close(self, timeout: float | None = None) -> None:
        """Wait until nothing is pending, or for `timeout` seconds, and end the workers."""
        end = None if timeout is None else time.monotonic() + timeout
        if timeout is not None and threading.get_ident() in self._inside:
            # The garbage collector runs in a function of this engine, which cannot wait for itself.
            end = timeout = 0.0
        # Or it runs in a thread that holds the lock: then the workers stay, idle.
        if self._is_held_here() or not self._lock.acquire(
            timeout=-1 if timeout is None else timeout
        ):
            return
        try:
            if timeout != 0:
                self._wait_to_close(timeout)
            self._closed = True
            for workers in self._workers.values():
                while workers.asleep:
                    workers.asleep.pop().release()
        finally:
            self._lock.release()
        self._call_back()
        threads = {thread for workers in self._workers.values() for thread in workers.threads}
        for thread in threads - {threading.current_thread()}:
            thread.join(None if end is None else max(0.0, end - time.monotonic()))

    # -- forks ---------------------------------------------------------------------------------

    def before_fork(self) -> None:
        """Wait for all pushed so far, and hold the engine."""
        try:
            self.drain()
        finally:
            self._lock.acquire()

    def after_fork_in_parent(self) -> None:
        """Go on."""
        self._lock.release()

    def after_fork_in_child(self) -> None:
        """Begin anew, with workers of its own; what other threads had pending has failed."""
        own = self._inside.get(threading.get_ident(), [])
        pending = [each for running in self._inside.values() for each in running]
        pending += self._begun
        pending += [push.operator for each in self._workers.values() for _, _, push in each.ready]
        self._reset()
        abandon(pending, own)
        if own:
            self._inside[threading.get_ident()] = own
            self._pending = len(own)
