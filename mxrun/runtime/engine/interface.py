"""Interface of the dependency engine, after MXNet's.

A pushed function names the variables that it touches. Two functions run in the order in which they
were pushed if they share a variable that one of them writes; everything else may overlap. Each
variable is named in at most one of three ways:

    reads    the function needs the content, and other readers may run beside it
    writes   the function replaces the content, whatever it was
    updates  the function needs the content and changes it, as `x += 1` does

A function that raises leaves its writes and updates failed. A function that reads or updates a
failed variable does not run, and its own writes and updates fail with the same failure; a function
that writes a failed variable makes it whole again. Failures are raised where somebody waits.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any, Protocol, TypedDict

from mxrun.base.context import Context
from mxrun.base.dataclass import dataclass
from mxrun.base.errors import InternalError
from mxrun.runtime.engine.failure import Failure
from mxrun.runtime.profiler import Event

if TYPE_CHECKING:
    from typing_extensions import Unpack


class Pool(Enum):
    """Group of workers of one context; functions of different pools never wait for a worker of
    another.
    """

    COMPUTE = "compute"
    COPY = "copy"
    IO = "io"
    COMMUNICATION = "communication"


HOST = Context()


@dataclass(frozen=True)
class RunContext:
    """Surroundings of a running function (MXNet's RunContext).

    context: the device that the function was pushed for. worker: name of the thread's track in a
    trace. stream: queue of that device on which the function starts its work; None on the host,
    where work is done when a call returns.
    """

    context: Context
    worker: str
    stream: Any = None


class OnComplete(Protocol):
    """Callback of an asynchronous function, from any thread, exactly once."""

    def __call__(self, error: BaseException | None = None) -> None:
        """Complete the function, with the exception that it has failed with, if any.

        Raises InternalError if the function is already complete.
        """


class OperatorOptions(TypedDict, total=False):
    """Optional properties of an `EngineOperator`."""

    name: str
    context: Context
    pool: Pool
    priority: int


Function = Callable[[RunContext], object]
AsyncFunction = Callable[[RunContext, OnComplete], object]
OnDone = Callable[[Failure | None], None]
OnWait = Callable[[], object]
# Seconds between two calls of an `OnWait`.
POLL_S = 0.1


class Variable:
    """Something that functions read and write, known to one engine by identity.

    Its fields belong to the engine. readers: number of granted readers; is_written: whether a
    writer is granted; waiting: accesses not yet granted, in the order of pushing. failure: that of
    the last function that should have written it.
    """

    __slots__ = ("deleted", "failure", "is_written", "name", "readers", "waiting")

    def __init__(self, name: str = "") -> None:
        self.name = name
        self.readers = 0
        self.is_written = False
        self.waiting: Any = None
        self.failure: Failure | None = None
        self.deleted = False

    def __repr__(self) -> str:
        return f"<Variable {self.name or hex(id(self))}>"


class EngineOperator:
    """Function with its variables, checked once and pushed any number of times (MXNet's Opr).

    name: shown in traces and failures. priority: higher ones leave the queue of a pool earlier.
    changes: writes and updates. needs: reads and updates. The other fields belong to the engine:
    pending counts the pushes that are not complete, on_delete waits for them once `is_deleted`.
    """

    __slots__ = (
        "changes",
        "context",
        "function",
        "is_async",
        "is_deleted",
        "name",
        "needs",
        "on_delete",
        "pending",
        "pool",
        "priority",
        "reads",
    )

    def __init__(
        self,
        function: Function | AsyncFunction,
        reads: Sequence[Variable] = (),
        writes: Sequence[Variable] = (),
        updates: Sequence[Variable] = (),
        *,
        name: str = "function",
        context: Context = HOST,
        pool: Pool = Pool.COMPUTE,
        priority: int = 0,
        is_async: bool = False,
    ) -> None:
        self.function: Callable[..., object] = function
        self.reads: tuple[Variable, ...] = tuple(reads)
        self.changes: tuple[Variable, ...] = (*writes, *updates)
        self.needs: tuple[Variable, ...] = (*reads, *updates)
        self.name, self.context, self.pool = name, context, pool
        self.priority, self.is_async = priority, is_async
        self.pending, self.is_deleted = 0, False
        self.on_delete: Callable[[], None] | None = None
        count = len(self.reads) + len(self.changes)
        if count > 1 and len({*self.reads, *self.changes}) != count:
            raise InternalError(f"{name} names a variable twice: {self._named_twice()}")

    def set_variables(
        self,
        reads: Sequence[Variable],
        writes: Sequence[Variable],
        updates: Sequence[Variable] = (),
    ) -> None:
        """Replace the variables, which must be distinct; for operators that are not pending."""
        self.reads = self.needs = tuple(reads)
        self.changes = tuple(writes)
        if updates:
            self.changes, self.needs = (*writes, *updates), (*reads, *updates)

    def _named_twice(self) -> str:
        seen: set[Variable] = set()
        for variable in (*self.reads, *self.changes):
            if variable in seen:
                return repr(variable)
            seen.add(variable)
        return ""


class Engine(ABC):
    """Runs pushed functions in the order that their variables require.

    Every method may be called from any thread, from functions and from callbacks too. Only waits
    may not be called from a function where they would have to wait: they then raise InternalError,
    because the awaited function might need the worker that waits for it.
    """

    kind: str
    interrupted = False
    """Whether Ctrl-C came within an operation, at the end of which it is raised."""
    _sink: Callable[[Event], None] | None = None

    def _raise_interrupt(self) -> None:
        """Raise KeyboardInterrupt on the main thread."""
        if threading.current_thread() is threading.main_thread():
            self.interrupted = False
            raise KeyboardInterrupt

    # -- variables -----------------------------------------------------------------------------

    def new_variable(self, name: str = "") -> Variable:
        """Return a new variable, which costs no more than an object."""
        return Variable(name)

    @abstractmethod
    def delete_variable(
        self, variable: Variable, on_delete: Callable[[], None] | None = None
    ) -> None:
        """Delete a variable after all functions pushed so far that use it.

        on_delete: called then, once, from any thread; it must not wait, and its exception is a
        failure called `deletion`. A later push that names the variable raises InternalError. May be
        called by the garbage collector at any time.
        """

    # -- functions -----------------------------------------------------------------------------

    def new_operator(
        self,
        function: Function | AsyncFunction,
        reads: Sequence[Variable] = (),
        writes: Sequence[Variable] = (),
        updates: Sequence[Variable] = (),
        *,
        is_async: bool = False,
        **options: Unpack[OperatorOptions],
    ) -> EngineOperator:
        """Return an operator for repeated pushes; InternalError if a variable is named twice."""
        return EngineOperator(function, reads, writes, updates, is_async=is_async, **options)

    @abstractmethod
    def push(self, operator: EngineOperator, on_done: OnDone | None = None) -> None:
        """Push an operator and return at once; it runs on a worker of its context's pool.

        on_done: called once, after the function, with its failure or None; if it raises, that is
        the function's failure. Raises InternalError for a deleted variable or operator.
        """

    @abstractmethod
    def run_or_push(self, operator: EngineOperator) -> bool:
        """Run a short operator on the calling thread if its variables are idle, else push it.

        Returns whether it is complete. Its exception is a failure as of a pushed function and is
        not raised.
        """

    def call(self, operator: EngineOperator, run_context: RunContext) -> None:
        """Call the function of an operator within another function, and record its time span."""
        if self._sink is None:
            operator.function(run_context)
            return
        start = time.monotonic_ns()
        operator.function(run_context)
        self._sink(span_of(operator, run_context, start))

    @abstractmethod
    def delete_operator(
        self, operator: EngineOperator, on_delete: Callable[[], None] | None = None
    ) -> None:
        """Delete an operator after its pushes so far; on_delete as of `delete_variable`."""

    def push_sync(
        self,
        function: Function,
        reads: Sequence[Variable] = (),
        writes: Sequence[Variable] = (),
        updates: Sequence[Variable] = (),
        *,
        on_done: OnDone | None = None,
        **options: Unpack[OperatorOptions],
    ) -> None:
        """Push a function that is complete when it returns (MXNet's PushSync; it is not awaited).

        Raises InternalError if a variable is named twice or deleted.
        """
        operator = EngineOperator(function, reads, writes, updates, **options)
        self.push(operator, on_done)

    def push_async(
        self,
        function: AsyncFunction,
        reads: Sequence[Variable] = (),
        writes: Sequence[Variable] = (),
        updates: Sequence[Variable] = (),
        *,
        on_done: OnDone | None = None,
        **options: Unpack[OperatorOptions],
    ) -> None:
        """Push a function that returns early and is complete when it calls its callback.

        Its worker is free meanwhile. Raises InternalError if a variable is named twice or deleted.
        """
        operator = EngineOperator(function, reads, writes, updates, is_async=True, **options)
        self.push(operator, on_done)

    # -- waits ---------------------------------------------------------------------------------

    @abstractmethod
    def is_idle(self, variable: Variable) -> bool:
        """Return whether no pushed function uses a variable: a wait for it would return at once."""

    @abstractmethod
    def wait_for_variable(
        self, variable: Variable, writers_only: bool = False, on_wait: OnWait | None = None
    ) -> None:
        """Wait for all functions pushed so far that use a variable, or only those that change it.

        on_wait: called on the waiting thread every `POLL_S` seconds; an exception that it raises
        ends the wait. Raises JobError if the variable is failed then, at every call until it is
        written anew.
        """

    @abstractmethod
    def wait_for_all(self) -> None:
        """Wait for all functions pushed so far.

        Raises JobError with the failures that no wait has raised, in the order of pushing. Each
        failure is reported once; failed variables stay failed.
        """

    @abstractmethod
    def drain(self) -> bool:
        """Wait for all pushed so far, and raise no failure; return whether anything was pending.

        Within a function, which cannot wait, this returns False at once.
        """

    @abstractmethod
    def is_within(self) -> bool:
        """Return whether the calling thread runs a function, and so must not wait."""

    @abstractmethod
    def close(self, timeout: float | None = None) -> None:
        """Wait until nothing is pending and end the workers; later pushes raise InternalError.

        timeout: seconds after which functions that are still running are left alone; their threads
        do not keep the process alive. With a timeout it may be called by the garbage collector, on
        whichever thread that runs.
        """

    # -- forks ---------------------------------------------------------------------------------

    @abstractmethod
    def before_fork(self) -> None:
        """Wait for all functions pushed so far, and hold the engine until the process has forked.

        Other threads may go on pushing, and would keep a wait for nothing pending waiting for ever.
        """

    @abstractmethod
    def after_fork_in_parent(self) -> None:
        """Go on after a fork."""

    @abstractmethod
    def after_fork_in_child(self) -> None:
        """Give the engine the state of a new one, in a forked process without its workers.

        It stays the same object, which the parent's arrays refer to. What other threads had pending
        has failed.
        """

    # -- observation ---------------------------------------------------------------------------

    def record(self, sink: Callable[[Event], None] | None) -> None:
        """Pass the time span of every function from now on to `sink`; None ends that."""
        self._sink = sink

    @abstractmethod
    def unreported(self) -> tuple[Failure, ...]:
        """Return the failures that no wait has raised."""


def span_of(operator: EngineOperator, run_context: RunContext, start: int) -> Event:
    """Return the time span of a function that started at `start`, ns, and ends now."""
    duration = time.monotonic_ns() - start
    return Event(operator.name, operator.pool.value, run_context.worker, start, duration, {})
