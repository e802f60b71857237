"""Signal handling: a signal ends a run after the current step, with a checkpoint to resume from."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any

from typing_extensions import Self

# SIGHUP: the terminal was closed.
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP)
_INTERRUPTED = 128 + signal.SIGINT


class Interruption:
    """Context manager that records the first of SIGINT, SIGTERM, SIGUSR1 and SIGHUP.

    Signals that the process was started to ignore, as SIGHUP under `nohup`, remain ignored. A
    second signal that is SIGINT ends the process at once with exit code 130. Python runs signal
    handlers only between two instructions of the main thread, and the next may be a long step away;
    so a separate thread waits for that SIGINT. Outside the main thread, where Python cannot install
    handlers, no signal is recorded.

    ends_process: if false, a second SIGINT raises KeyboardInterrupt instead. before_end: called
    before a second SIGINT ends the process, in the separate thread.
    """

    def __init__(
        self, ends_process: bool = True, before_end: Callable[[], None] = lambda: None
    ) -> None:
        self.signal: str | None = None
        self.reason: str | None = None
        self._ends_process, self._before_end = ends_process, before_end
        self._before: dict[int, Any] = {}
        self._wakeup_before = -1
        self._pipe = -1
        self._watcher: threading.Thread | None = None

    def __enter__(self) -> Self:
        if threading.current_thread() is not threading.main_thread():
            return self
        if self._ends_process:
            received, self._pipe = os.pipe()
            os.set_blocking(self._pipe, False)
            arguments = (received, self._before_end)
            self._watcher = threading.Thread(target=_watch, args=arguments, daemon=True)
            self._watcher.start()
            self._wakeup_before = signal.set_wakeup_fd(self._pipe, warn_on_full_buffer=False)
        heard = [each for each in _SIGNALS if signal.getsignal(each) is not signal.SIG_IGN]
        self._before = {number: signal.signal(number, self._handle) for number in heard}
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        if self._watcher is not None:
            signal.set_wakeup_fd(self._wakeup_before)
            os.close(self._pipe)
            self._watcher.join()

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


def _watch(received: int, before_end: Callable[[], None]) -> None:
    """Read signal numbers from the wake-up pipe; end the process on a SIGINT after a signal."""
    stopping = False
    # `read` returns nothing once the writing end is closed.
    while number := os.read(received, 1):
        if stopping and number[0] == signal.SIGINT:
            before_end()
            os._exit(_INTERRUPTED)
        stopping |= number[0] in _SIGNALS
    os.close(received)
