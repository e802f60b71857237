"""Rules by which failures travel along variables."""

from __future__ import annotations

from mxrun.base.errors import InternalError
from mxrun.runtime.engine.failure import Failure
from mxrun.runtime.engine.interface import EngineOperator, OnDone


def inherited(operator: EngineOperator) -> Failure | None:
    """Return the failure because of which an operator cannot run: the earliest of what it needs."""
    found: Failure | None = None
    for variable in operator.needs:
        failure = variable.failure
        if failure is not None and (found is None or failure.sequence < found.sequence):
            found = failure
    return found


def settle(operator: EngineOperator, failure: Failure | None) -> None:
    """Set the failure of everything that a complete operator changes; None makes it whole."""
    for variable in operator.changes:
        variable.failure = failure


def notify(on_done: OnDone, job: str, sequence: int, failure: Failure | None) -> Failure | None:
    """Call the `on_done` of a push; return its failure, which is that of `on_done` if it raises."""
    try:
        on_done(failure)
    except BaseException as error:  # noqa: BLE001 - raised again where somebody waits
        return failure or Failure(job, sequence, error)
    return failure


def require_usable(operator: EngineOperator) -> None:
    """Raise InternalError for a push of a deleted operator or one that names a deleted variable."""
    if operator.is_deleted:
        raise InternalError(f"{operator.name} is pushed although it was deleted")
    for variable in (*operator.reads, *operator.changes):
        if variable.deleted:
            raise InternalError(f"{operator.name} names {variable!r}, which was deleted")


def wait_inside(what: str) -> InternalError:
    """Return the error of a function that would have to wait."""
    return InternalError(
        f"a function of the engine waits for {what}, which may need the worker that waits: name "
        "the variable among what the function reads, or wait outside of it"
    )
