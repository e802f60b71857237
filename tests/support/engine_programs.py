"""Random programs of pushes, deletions and waits, what they must do, and their runs on an engine.

`expected` runs a program one push after another by the rules in `interface.py`, with none of the
engine's code; `run` does the same on an engine and returns what was observed.
"""

from __future__ import annotations

import queue
import random
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from mxrun.base.errors import InternalError
from mxrun.runtime.engine.failure import Failure, JobError
from mxrun.runtime.engine.interface import (
    Engine,
    EngineOperator,
    OnComplete,
    OnDone,
    Pool,
    RunContext,
)

Cause: TypeAlias = "tuple[str, int] | None"
"""Name and number of the push that has failed."""


@dataclass(frozen=True)
class Function:
    """Function with its variables by number.

    failing: the executions, counted from 0, that raise. is_async: completes from another thread,
    if `is_late`, else before it returns. pushed: runs of it, more than one only for an operator.
    """

    name: str
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    updates: tuple[int, ...]
    failing: frozenset[int] = frozenset()
    is_async: bool = False
    is_late: bool = False
    priority: int = 0
    pool: Pool = Pool.COMPUTE
    spin: int = 0

    @property
    def needs(self) -> tuple[int, ...]:
        return (*self.reads, *self.updates)

    @property
    def changes(self) -> tuple[int, ...]:
        return (*self.writes, *self.updates)

    @property
    def uses(self) -> tuple[int, ...]:
        return (*self.reads, *self.changes)


@dataclass(frozen=True)
class Push:
    """Push of a function; `how` is push, run_or_push, or operator for one made before."""

    function: Function
    how: str = "push"


@dataclass(frozen=True)
class Delete:
    variable: int


@dataclass(frozen=True)
class Wait:
    variable: int
    writers_only: bool


@dataclass(frozen=True)
class WaitAll:
    pass


Step: TypeAlias = "Push | Delete | Wait | WaitAll"


@dataclass(frozen=True)
class Program:
    """Steps that one thread takes; the last one waits for all."""

    variables: int
    steps: tuple[Step, ...]


@dataclass
class Observed:
    """What a program did.

    values: content by variable, without the failed ones. ran: what each execution of a function has
    seen. ends: the failures given to `on_done`, by push. waits: what each wait raised. refused:
    numbers of the steps that were refused. deleted: the variables for which the callback came.
    failed: the failure of each variable at the end.
    """

    values: dict[int, int] = field(default_factory=dict)
    ran: dict[str, list[tuple[int, ...]]] = field(default_factory=dict)
    ends: dict[int, list[Cause]] = field(default_factory=dict)
    waits: list[tuple[Cause, ...]] = field(default_factory=list)
    refused: list[int] = field(default_factory=list)
    deleted: list[int] = field(default_factory=list)
    failed: dict[int, Cause] = field(default_factory=dict)

    def settled(self) -> Observed:
        """Return it with what may happen in any order in one order."""
        self.deleted.sort()
        self.values = {
            variable: value for variable, value in self.values.items() if not self.failed[variable]
        }
        return self


def random_program(seed: int, failures: bool = True) -> Program:
    """Return a program of up to 60 steps on up to 8 variables.

    failures: whether functions may raise, variables may be deleted, and waits are among the steps.
    """
    chance = random.Random(seed)
    variables = chance.randint(1, 8)
    operators = [_function(chance, f"operator {n}", variables, failures, True) for n in range(3)]
    steps: list[Step] = []
    for number in range(chance.randint(1, 60)):
        what = chance.random()
        if failures and what < 0.03:
            steps.append(Delete(chance.randrange(variables)))
        elif failures and what < 0.10:
            steps.append(Wait(chance.randrange(variables), chance.random() < 0.5))
        elif failures and what < 0.12:
            steps.append(WaitAll())
        elif what < 0.35:
            steps.append(Push(chance.choice(operators), "operator"))
        else:
            function = _function(chance, f"push {number}", variables, failures, False)
            steps.append(Push(function, "run_or_push" if chance.random() < 0.2 else "push"))
    return Program(variables, (*steps, WaitAll()))


def _function(
    chance: random.Random, name: str, variables: int, failures: bool, is_operator: bool
) -> Function:
    """Return a function; an operator's executions are ordered by a variable that it changes."""
    used = chance.sample(range(variables), chance.randint(1, min(4, variables)))
    uses: tuple[list[int], list[int], list[int]] = ([], [], [])
    for number, variable in enumerate(used):
        first = is_operator and number == 0
        uses[chance.choice((1, 2)) if first else chance.choice((0, 0, 1, 2))].append(variable)
    often = range(20) if is_operator else range(1)
    failing = {each for each in often if failures and chance.random() < 0.12}
    is_async = chance.random() < 0.25
    return Function(
        name,
        *(tuple(each) for each in uses),
        failing=frozenset(failing),
        is_async=is_async,
        is_late=is_async and chance.random() < 0.7,
        priority=chance.choice((0, 0, 0, -3, 5)),
        pool=chance.choice((Pool.COMPUTE, Pool.COMPUTE, Pool.IO)),
        spin=chance.choice((0, 0, 0, 50, 500)),
    )


def _content(name: str, seen: Sequence[int], variable: int) -> int:
    return hash((name, *seen, variable))


def expected(program: Program) -> Observed:
    """Return what a program must do, by running its functions one after another."""
    seen = Observed(
        values=dict.fromkeys(range(program.variables), 0),
        failed=dict.fromkeys(range(program.variables)),
    )
    deleted: set[int] = set()
    new_failures: list[Cause] = []
    sequence = 0
    for number, step in enumerate(program.steps):
        if isinstance(step, Delete):
            if step.variable not in deleted:
                deleted.add(step.variable)
                seen.deleted.append(step.variable)
        elif isinstance(step, Wait):
            cause = seen.failed[step.variable]
            seen.waits.append((cause,) if cause else ())
            # A later wait for all does not raise it once more.
            new_failures[:] = [each for each in new_failures if each != cause]
        elif isinstance(step, WaitAll):
            seen.waits.append(tuple(new_failures))
            new_failures.clear()
        elif deleted.intersection(step.function.uses):
            seen.refused.append(number)
        else:
            sequence += 1
            cause = _execute(step.function, seen, sequence)
            if cause == (step.function.name, sequence):
                new_failures.append(cause)
            if step.how != "run_or_push":
                seen.ends[sequence] = [cause]
    return seen.settled()


def _execute(function: Function, state: Observed, sequence: int) -> Cause:
    """Execute a function in the model; return the failure of what it changes."""
    inherited = [cause for each in function.needs if (cause := state.failed[each])]
    cause = min(inherited, key=lambda cause: cause[1], default=None)
    if cause is None:
        seen = tuple(state.values[each] for each in function.needs)
        runs = state.ran.setdefault(function.name, [])
        runs.append(seen)
        if len(runs) - 1 in function.failing:
            cause = (function.name, sequence)
        else:
            for each in function.changes:
                state.values[each] = _content(function.name, seen, each)
    for each in function.changes:
        state.failed[each] = cause
    return cause


class Completer:
    """Thread that completes asynchronous functions, a few at a time in another order."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, daemon=True)

    def __enter__(self) -> Completer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._queue.put(None)
        self._thread.join()

    def complete(self, work: Callable[[], None]) -> None:
        """Call `work` on the thread."""
        self._queue.put(work)

    def _work(self) -> None:
        while (work := self._queue.get()) is not None:
            batch = [work]
            while not self._queue.empty() and (more := self._queue.get()) is not None:
                batch.append(more)
            for each in reversed(batch):
                each()


class InjectedError(Exception):
    """Exception of a function that a program lets fail."""


class _Runner:
    """Run of one program on an engine."""

    def __init__(self, program: Program, engine: Engine, completer: Completer, before: int) -> None:
        self._program, self._engine, self._completer = program, engine, completer
        self._before = before
        self._variables = [engine.new_variable(str(each)) for each in range(program.variables)]
        self.seen = Observed(values=dict.fromkeys(range(program.variables), 0))
        self._operators: dict[str, EngineOperator] = {}
        self._problems: list[str] = []
        # Users of each variable that have not ended, by which deletions are checked.
        self._using: dict[int, set[int]] = {each: set() for each in range(program.variables)}
        self._guard = threading.Lock()

    def run(self) -> Observed:
        deleted: set[int] = set()
        sequence = 0
        for number, step in enumerate(self._program.steps):
            if isinstance(step, Delete):
                if step.variable not in deleted:
                    deleted.add(step.variable)
                    self._delete(step.variable)
            elif isinstance(step, Wait):
                variable, only = self._variables[step.variable], step.writers_only
                self._wait(lambda v=variable, o=only: self._engine.wait_for_variable(v, o))
            elif isinstance(step, WaitAll):
                self._wait(self._engine.wait_for_all)
            else:
                try:
                    self._push(step, sequence + 1)
                    sequence += 1
                except InternalError:
                    self.seen.refused.append(number)
        assert not self._problems, self._problems
        assert not self._engine.unreported()
        self.seen.failed = {
            number: self._cause(variable.failure) for number, variable in enumerate(self._variables)
        }
        return self.seen.settled()

    def _delete(self, number: int) -> None:
        before = frozenset(self._using[number])

        def on_delete() -> None:
            with self._guard:
                if before & self._using[number]:
                    self._problems.append(f"{number} is deleted before its users end")
                self.seen.deleted.append(number)

        self._engine.delete_variable(self._variables[number], on_delete)

    def _wait(self, wait: Callable[[], None]) -> None:
        try:
            wait()
        except JobError as error:
            self.seen.waits.append(tuple(map(self._cause, error.failures)))
            if error.__cause__ is not error.failures[0].error:
                self._problems.append(f"{error} is raised from {error.__cause__!r}")
        else:
            self.seen.waits.append(())

    def _cause(self, failure: Failure | None) -> Cause:
        """Return a failure with its number within this program."""
        if failure is None:
            return None
        assert isinstance(failure.error, InjectedError), failure
        return failure.job, failure.sequence - self._before

    def _push(self, step: Push, sequence: int) -> None:
        function = step.function
        operator = self._operators.get(function.name)
        if operator is None:
            operator = self._operator(function)
            if step.how == "operator":
                self._operators[function.name] = operator
        if step.how == "run_or_push":
            self._engine.run_or_push(operator)
            return
        with self._guard:
            for each in function.uses:
                self._using[each].add(sequence)
        try:
            self._engine.push(operator, self._on_done(function, sequence))
        except InternalError:
            with self._guard:
                for each in function.uses:
                    self._using[each].discard(sequence)
            raise

    def _on_done(self, function: Function, sequence: int) -> OnDone:
        def on_done(failure: Failure | None) -> None:
            with self._guard:
                self.seen.ends.setdefault(sequence, []).append(self._cause(failure))
                for each in function.uses:
                    self._using[each].discard(sequence)

        return on_done

    def _operator(self, function: Function) -> EngineOperator:
        variables = self._variables

        def execute() -> BaseException | None:
            for _ in range(function.spin):
                pass
            seen = tuple(self.seen.values[each] for each in function.needs)
            with self._guard:
                runs = self.seen.ran.setdefault(function.name, [])
                runs.append(seen)
            if len(runs) - 1 in function.failing:
                return InjectedError(function.name)
            for each in function.changes:
                self.seen.values[each] = _content(function.name, seen, each)
            return None

        def run(context: RunContext) -> None:
            assert context.worker
            error = execute()
            if error is not None:
                raise error

        def start(context: RunContext, on_complete: OnComplete) -> None:
            if not function.is_late:
                on_complete(execute())
                return
            self._completer.complete(lambda: on_complete(execute()))

        return self._engine.new_operator(
            start if function.is_async else run,
            [variables[each] for each in function.reads],
            [variables[each] for each in function.writes],
            [variables[each] for each in function.updates],
            name=function.name,
            pool=function.pool,
            priority=function.priority,
            is_async=function.is_async,
        )


def run(program: Program, engine: Engine, completer: Completer, before: int) -> Observed:
    """Run a program on an engine with nothing pending; `before` pushes were made on it so far."""
    return _Runner(program, engine, completer, before).run()


def accepted(program: Program) -> int:
    """Return the number of a program's pushes that are not refused."""
    pushes = sum(isinstance(step, Push) for step in program.steps)
    return pushes - len(expected(program).refused)


def guarded(body: Callable[[], Any], seconds: float = 300.0) -> None:
    """Run `body` on a thread; AssertionError if it hangs, and its exception if it raises one."""
    raised: list[BaseException] = []

    def run_body() -> None:
        try:
            body()
        except BaseException as error:  # noqa: BLE001 - raised below
            raised.append(error)

    thread = threading.Thread(target=run_body, daemon=True)
    thread.start()
    thread.join(seconds)
    assert not thread.is_alive(), f"still running after {seconds} s"
    if raised:
        raise raised[0]
