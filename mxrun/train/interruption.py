"""Signals that ask a run to stop: it saves after the step in hand and can be resumed."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any

from typing_extensions import Self

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)


class Interruption:
    """Remembers the first of SIGINT, SIGTERM and SIGUSR1 while it is entered.

    From then on SIGINT has the system's own effect: a second one ends the process at once, even in
    the middle of a kernel. Outside the main thread, where Python sets no handlers, nothing is
    remembered.
    """

    def __init__(self) -> None:
        self.signal: str | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._handle) for number in _SIGNALS}
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self.signal = self.signal or signal.Signals(number).name
        signal.signal(signal.SIGINT, signal.SIG_DFL)
