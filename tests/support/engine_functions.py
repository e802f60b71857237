"""Functions that tests push to engines, and the failures that waits raise."""

from __future__ import annotations

import threading
from collections.abc import Callable

from commands import HANG_S

from mxrun.runtime.engine.failure import Failure, JobError
from mxrun.runtime.engine.interface import RunContext


def fail(context: RunContext) -> None:
    raise ValueError("broken")


def nothing(context: RunContext) -> None:
    pass


class Gate:
    """Function that waits until the gate is opened."""

    def __init__(self) -> None:
        self.entered, self._open = threading.Event(), threading.Event()

    def __call__(self, context: RunContext) -> None:
        self.entered.set()
        assert self._open.wait(HANG_S)

    def open(self) -> None:
        self._open.set()


def waited(wait: Callable[[], None]) -> tuple[Failure, ...]:
    """Return the failures that a wait raises."""
    try:
        wait()
    except JobError as error:
        return error.failures
    return ()
