"""Signal handling: a signal ends a run after the current step, with a checkpoint to resume from."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from contextlib import ExitStack
from types import FrameType, TracebackType

from typing_extensions import Self

from mxrun.runtime.signals import handled_signals

# SIGHUP: the terminal was closed.
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP)
_INTERRUPTED = 128 + signal.SIGINT


class WaitEnded(Exception):
    """A signal requested a stop while a batch was awaited that may never arrive."""


class Interruption:
    """Context manager that records the first of SIGINT, SIGTERM, SIGUSR1 and SIGHUP.

    Signals that the process was started to ignore are not recorded, and outside the main thread
    none is. A second signal that is SIGINT ends the process at once with exit code 130, even in the
    middle of a long step: a separate thread waits for it.

    ends_process: if false, a second SIGINT raises KeyboardInterrupt instead. before_end: called
    before a second SIGINT ends the process, in the separate thread.
    """

    def __init__(
        self, ends_process: bool = True, before_end: Callable[[], None] = lambda: None
    ) -> None:
        self.signal: str | None = None
        self.reason: str | None = None
        self._ends_process, self._before_end = ends_process, before_end
        self._handled = ExitStack()

    def __enter__(self) -> Self:
        watch = self._watch if self._ends_process else None
        self._handled.enter_context(handled_signals(_SIGNALS, self._handle, watch))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._handled.close()

    def request(self, reason: str) -> None:
        """Request the end of the run, as a signal does, for a reason of the caller's."""
        self.reason = self.reason or reason

    @property
    def requested(self) -> bool:
        """Whether a signal or a caller has requested the end of the run."""
        return self.signal is not None or self.reason is not None

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if not self._ends_process and self.signal is not None and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.signal = self.signal or signal.Signals(number).name

    def _watch(self, received: int) -> None:
        """End the process on a SIGINT after a signal; `received` has the numbers of signals."""
        stopping = False
        while number := os.read(received, 1):
            if stopping and number[0] == signal.SIGINT:
                self._before_end()
                os._exit(_INTERRUPTED)
            stopping |= number[0] in _SIGNALS
