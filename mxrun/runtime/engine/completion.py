"""Completion of an asynchronous function, which its callback announces once."""

from __future__ import annotations

import threading
from collections.abc import Callable

from mxrun.base.errors import InternalError
from mxrun.runtime.engine.failure import Failure


class Completion:
    """Callback of one push of an asynchronous function (`OnComplete`).

    end: called once, with the failure or None, on the thread that completes the function.
    """

    def __init__(self, job: str, sequence: int, end: Callable[[Failure | None], None]) -> None:
        self._job, self._sequence, self._end = job, sequence, end
        # Held from the completion on.
        self._is_complete = threading.Lock()

    def __call__(self, error: BaseException | None = None) -> None:
        """Complete the function; raises InternalError if it is complete already."""
        failure = None if error is None else Failure(self._job, self._sequence, error)
        if not self.complete(failure):
            raise InternalError(f"{self._job} is completed twice")

    def complete(self, failure: Failure | None) -> bool:
        """Complete the function; return False if it is complete already."""
        if not self._is_complete.acquire(blocking=False):
            return False
        self._end(failure)
        return True
