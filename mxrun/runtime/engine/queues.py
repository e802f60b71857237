"""Queues of accesses: which pushes may run, by the variables that they share.

Every variable has a queue of accesses. A push asks for all of its accesses at once; those that
nothing earlier forbids are granted, the others wait in the queues. A push without a missing access
is ready. When it is complete, its accesses are released, which grants the next ones (MXNet's
ThreadedVar). The engine's lock guards all of this.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable
from typing import TypeAlias

from mxrun.base.errors import UserError
from mxrun.runtime.engine.failure import Failure
from mxrun.runtime.engine.interface import EngineOperator, OnDone, Variable


class QueuedPush:
    """One push of an operator; `missing` counts the accesses that are not granted yet."""

    __slots__ = ("missing", "on_done", "operator", "sequence")

    def __init__(self, operator: EngineOperator, sequence: int, on_done: OnDone | None) -> None:
        self.operator, self.sequence, self.on_done = operator, sequence, on_done
        self.missing = 0


class Fence:
    """Place in the queue of one variable; `reach` is called, under the lock, when it is first."""

    __slots__ = ("missing", "reach", "variable", "writers_only")

    def __init__(
        self, variable: Variable, reach: Callable[[], object], writers_only: bool = False
    ) -> None:
        self.variable, self.reach, self.writers_only = variable, reach, writers_only
        self.missing = 0


# What waits for an access, and whether it changes the variable.
Access: TypeAlias = "tuple[QueuedPush | Fence, bool]"


def take_if_idle(operator: EngineOperator) -> bool:
    """Grant all accesses of an operator if nothing waits for or uses its variables.

    Returns whether they are granted; those of deleted or failed variables never are.
    """
    for variable in operator.reads:
        if variable.is_written or variable.waiting or variable.deleted or variable.failure:
            return False
    for variable in operator.changes:
        if (
            variable.is_written
            or variable.readers
            or variable.waiting
            or variable.deleted
            or variable.failure
        ):
            return False
    for variable in operator.reads:
        variable.readers += 1
    for variable in operator.changes:
        variable.is_written = True
    return True


def release_unawaited(operator: EngineOperator) -> bool:
    """Release all accesses of an operator if nothing waits for its variables.

    Returns whether they are released.
    """
    for variable in operator.reads:
        if variable.waiting:
            return False
    for variable in operator.changes:
        if variable.waiting:
            return False
    for variable in operator.reads:
        variable.readers -= 1
    for variable in operator.changes:
        variable.is_written = False
    return True


def request(push: QueuedPush) -> bool:
    """Ask for all accesses of a push; return whether all are granted."""
    missing = 0
    for variable in push.operator.reads:
        if variable.is_written or variable.waiting:
            _wait(variable, (push, False))
            missing += 1
        else:
            variable.readers += 1
    for variable in push.operator.changes:
        if variable.is_written or variable.readers or variable.waiting:
            _wait(variable, (push, True))
            missing += 1
        else:
            variable.is_written = True
    push.missing = missing
    return not missing


def request_fence(fence: Fence) -> bool:
    """Queue behind the users of a variable; return whether there are none."""
    variable = fence.variable
    if not (variable.is_written or variable.waiting) and (
        fence.writers_only or not variable.readers
    ):
        return True
    fence.missing = 1
    _wait(variable, (fence, not fence.writers_only))
    return False


def release(operator: EngineOperator) -> list[QueuedPush]:
    """Release all accesses of a complete operator; return the pushes that become ready.

    Fences that become the first are reached.
    """
    ready: list[QueuedPush] = []
    for variable in operator.reads:
        variable.readers -= 1
        if variable.waiting and not variable.readers:
            _grant(variable, ready)
    for variable in operator.changes:
        variable.is_written = False
        if variable.waiting:
            _grant(variable, ready)
    return ready


def _wait(variable: Variable, access: Access) -> None:
    if variable.waiting is None:
        variable.waiting = deque()
    variable.waiting.append(access)


def _grant(variable: Variable, ready: list[QueuedPush]) -> None:
    """Grant the next accesses of a variable that nobody changes; add pushes that became ready."""
    waiting = variable.waiting
    while waiting:
        push, is_change = waiting[0]
        if is_change and variable.readers:
            return
        waiting.popleft()
        if isinstance(push, Fence):
            # It holds the access only while it is reached.
            push.reach()
            continue
        push.missing -= 1
        if not push.missing:
            ready.append(push)
        if is_change:
            variable.is_written = True
            return
        variable.readers += 1


def queue_behind(
    variable: Variable, writers_only: bool
) -> tuple[threading.Lock, list[Failure | None]]:
    """Queue behind the users of a variable.

    Returns a lock that is released there, and a list that then has the failure of the variable.
    """
    reached = threading.Lock()
    reached.acquire()
    found: list[Failure | None] = []

    def reach() -> None:
        found.append(variable.failure)
        reached.release()

    if request_fence(Fence(variable, reach, writers_only)):
        reach()
    return reached, found


def abandon(pending: Iterable[EngineOperator], own: Iterable[EngineOperator]) -> None:
    """Release the accesses of operators, and of all that waits for them, which never complete.

    What they change has failed. own: those of them that go on.
    """
    lost = UserError("another thread was computing it when the process forked")
    found, variables = list(pending), set[Variable]()
    for operator in found:
        for variable in {*operator.reads, *operator.changes} - variables:
            variables.add(variable)
            waiting = variable.waiting or ()
            found += [push.operator for push, _ in waiting if isinstance(push, QueuedPush)]
            variable.waiting, variable.readers, variable.is_written = None, 0, False
    kept = list(own)
    for operator in found:
        if operator not in kept:
            operator.pending = 0
            for variable in operator.changes:
                variable.failure = Failure(operator.name, 0, lost)
    for operator in kept:
        for variable in operator.reads:
            variable.readers += 1
        for variable in operator.changes:
            variable.is_written = True
