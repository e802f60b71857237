"""Waits that raise the exception of a failed function itself."""

from __future__ import annotations

from mxrun.runtime.engine.failure import JobError
from mxrun.runtime.engine.interface import Engine, OnWait, Variable


def wait_for(engine: Engine, variable: Variable, on_wait: OnWait | None = None) -> None:
    """Wait for all functions pushed so far that use a variable.

    Where `Engine.wait_for_variable` raises JobError, this raises the exception of the function that
    failed first, unchanged, as if the caller had called it.
    """
    try:
        engine.wait_for_variable(variable, on_wait=on_wait)
    except JobError as failed:
        error = failed.failures[0].error
    else:
        return
    raise error
