"""Transforms of a user's own, which Python applies to one record at a time."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from mxrun.base.errors import InternalError, UserError
from mxrun.base.locks import new_lock
from mxrun.base.threads import start_thread
from mxrun.io.transforms.base import Record
from mxrun.io.transforms.draws import Draws
from mxrun.io.transforms.pipeline import TransformStep

THREAD, PROCESS = "thread", "process"
# Number of times that a record is tried.
TRIES = 3
# Records with which threads are timed, and the least time of a record for which processes, which
# take a tenth of a millisecond to hand it over, may be worth while.
_TIMED, _LEAST_S = 8, 0.0005
# Threads scale that take less than this share of the sum of their times on a core.
_SCALES = 0.75
# NumPy's kinds of real numbers: bool, integers and floats.
_REAL = "biuf"

Steps = Sequence[TransformStep]
Result = Record | UserError


class TransformRunner(Protocol):
    """Interface for applying a user's own transforms to the records of a chunk.

    kind: `thread` or `process`; empty before the first records.
    """

    kind: str

    def run(
        self, steps: Steps, field: str, records: Sequence[Record], draws: Sequence[Draws]
    ) -> list[Result]:
        """Return the transformed records of `field`, or the error of each that fails.

        The same records and draws give the same bits. May be called by several threads.
        """

    def close(self) -> None:
        """Release the resources; a second call does nothing."""


def transformed(steps: Steps, record: Record, draws: Draws) -> Result:
    """Return the record after all steps, or its error.

    A transform that raises anything but UserError is tried again, `TRIES` times in all.
    """
    for attempt in range(TRIES):
        result = _attempted(steps, record, draws)
        if not isinstance(result, _RaisedError) or attempt == TRIES - 1:
            break
    return result


class _RaisedError(UserError):
    """Error for a transform that has raised another exception than UserError."""


def _attempted(steps: Steps, record: Record, draws: Draws) -> Result:
    """Return the record after all steps, tried once; _RaisedError for an unexpected exception."""
    # A transform may change its record in place: the next attempt begins with the same one.
    record = record.copy()
    for step in steps:
        try:
            step.transform.output(record.shape)
            record = step.transform.apply(record, draws.at(step.position))
        except UserError as error:
            return step.locate(error)
        except InternalError:
            raise
        except (Exception, SystemExit) as error:  # noqa: BLE001 - the transform is the user's code
            return _RaisedError(step.locate(UserError(described(error))).diagnostics)
        try:
            record = plain_array(record, "it")
        except UserError as error:
            return step.locate(error)
    return record


def plain_array(result: Any, what: str) -> Record:
    """Return what a user's code has returned as an array without a subclass.

    Processes hand over such arrays, and threads give the same. Raises UserError, which begins with
    `what`, for another object and for an array that is not of real numbers.
    """
    if not isinstance(result, np.ndarray):
        raise UserError(f"{what} returned {type(result).__name__}, not an array")
    if result.dtype.kind not in _REAL:
        raise UserError(f"{what} returned an array of {result.dtype}, not of numbers")
    return np.asarray(result)


def described(error: Exception | SystemExit) -> str:
    """Return an exception in one line, with the place in the file that raised it."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    message = " ".join(str(error).split())
    kind = type(error).__name__
    return f"{kind}{': ' * bool(message)}{message} ({frame.filename}, line {frame.lineno})"


class ThreadTransforms:
    """Transforms applied on the calling thread."""

    def __init__(self) -> None:
        self.kind = ""

    def run(
        self, steps: Steps, field: str, records: Sequence[Record], draws: Sequence[Draws]
    ) -> list[Result]:
        """Return the transformed records, or their errors."""
        del field
        self.kind = THREAD
        return [
            transformed(steps, record, draw) for record, draw in zip(records, draws, strict=True)
        ]

    def close(self) -> None:
        """Do nothing."""


class TimedTransforms:
    """Transforms applied on threads or in processes: what is faster by timing the first records.

    Threads are slower than processes if the transforms hold the interpreter lock. kind: `thread` or
    `process`; empty before the first records. Results do not depend on it.
    """

    def __init__(self, open_processes: Callable[[], TransformRunner]) -> None:
        """`open_processes`: returns the transforms that run in processes."""
        self.kind = ""
        self._open_processes = open_processes
        self._chosen: TransformRunner = ThreadTransforms()
        self._lock = new_lock()

    def run(
        self, steps: Steps, field: str, records: Sequence[Record], draws: Sequence[Draws]
    ) -> list[Result]:
        """Return the transformed records, or their errors."""
        if not records:
            # All of the chunk are bad, so that there is nothing to be timed.
            return []
        if not self.kind:
            with self._lock:
                if not self.kind:
                    self._choose(steps, records[:_TIMED], draws[:_TIMED])
        return self._chosen.run(steps, field, records, draws)

    def close(self) -> None:
        """End the processes, if there are any."""
        self._chosen.close()

    def _choose(self, steps: Steps, records: Sequence[Record], draws: Sequence[Draws]) -> None:
        """Choose by two threads that transform the same records side by side.

        If transforms hold the interpreter lock, the threads take at least as long as the sum of
        their times on a core. That is so too if other processes occupy the cores; then processes
        do no harm.
        """
        busy: list[float] = []

        def work() -> None:
            started = time.thread_time()
            self._chosen.run(steps, "", records, draws)
            busy.append(time.thread_time() - started)

        # Once before, for what the first call alone does.
        work()
        busy.clear()
        started = time.perf_counter()
        other = start_thread(work)
        work()
        other.join()
        seconds = time.perf_counter() - started
        if sum(busy) < _LEAST_S * len(records) * 2 or seconds < _SCALES * sum(busy):
            self.kind = THREAD
        else:
            self._chosen = self._open_processes()
            self.kind = PROCESS
