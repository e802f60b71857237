"""Status line on a terminal while a command prepares its work: what it does, and for how long.

It needs no import that takes time, so that it appears at once.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from mxrun.base.errors import UserError
from mxrun.base.locks import new_lock
from mxrun.base.threads import start_thread
from mxrun.report.printable import printable_line
from mxrun.report.streams import optional_stderr

_CLEAR = "\r\x1b[2K"
_TICK_S = 1.0


class Status:
    """Line at the bottom of the terminal that counts seconds until it is stopped."""

    def __init__(self, text: str) -> None:
        self._text, self._started = printable_line(text), time.monotonic()
        self._lock, self._ended = new_lock(), threading.Event()
        self._write(self._line())
        # Without the thread the line stands still.
        with suppress(UserError):
            start_thread(self._count)

    def stop(self) -> None:
        """Remove the line; nothing happens if it is removed already."""
        with self._lock:
            if not self._ended.is_set():
                self._ended.set()
                self._write(_CLEAR)

    def above(self, lines: str) -> None:
        """Write complete lines above the status line."""
        with self._lock:
            self._write(f"{_CLEAR}{lines}{'' if self._ended.is_set() else self._line()}")

    def _line(self) -> str:
        seconds = int(time.monotonic() - self._started)
        # Half of a narrow terminal: a line that wraps could not be removed.
        return f"mxrun: {self._text[:60]} ...{f' {seconds} s' if seconds else ''}"

    def _count(self) -> None:
        while not self._ended.wait(_TICK_S):
            with self._lock:
                if not self._ended.is_set():
                    self._write(_CLEAR + self._line())

    def _write(self, text: str) -> None:
        with optional_stderr():
            sys.stderr.write(text)
            sys.stderr.flush()


_shown: list[Status] = []


@contextmanager
def status(text: str) -> Iterator[None]:
    """Context manager that shows what a command does, on a terminal only.

    Nested contexts show the outer one.
    """
    if _shown or not sys.stderr.isatty():
        yield
        return
    _shown.append(Status(text))
    try:
        yield
    finally:
        stop_status()


def stop_status() -> None:
    """Remove the status line before other output."""
    while _shown:
        _shown.pop().stop()


def write_lines(lines: str) -> None:
    """Write complete lines to standard error, above the status line if there is one."""
    if _shown:
        _shown[0].above(lines)
        return
    with optional_stderr():
        sys.stderr.write(lines)
        sys.stderr.flush()
