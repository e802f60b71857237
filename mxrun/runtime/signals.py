"""Handlers of signals for as long as a block runs."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from types import FrameType

from mxrun.base.errors import UserError
from mxrun.base.threads import start_thread

Handler = Callable[[int, "FrameType | None"], object]
# Reads the numbers of signals from a pipe, one byte each, until it is closed.
Watch = Callable[[int], None]


@contextmanager
def handled_signals(
    numbers: Sequence[int], handler: Handler, watch: Watch | None = None
) -> Iterator[None]:
    """Context manager that handles signals, and restores their handlers at its end.

    Signals that this process was started to ignore, as SIGHUP under `nohup`, remain ignored.
    Outside the main thread, where Python cannot install handlers, signals keep their meaning.

    watch: runs in a separate thread. Python runs handlers only between two instructions of the main
    thread, which may wait or take long for the next one, with locks held.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    with nullcontext() if watch is None else _watched(watch):
        heard = [each for each in numbers if signal.getsignal(each) is not signal.SIG_IGN]
        before = {number: signal.signal(number, handler) for number in heard}
        try:
            yield
        finally:
            for number, earlier in before.items():
                signal.signal(number, earlier)


@contextmanager
def _watched(watch: Watch) -> Iterator[None]:
    received, sent = os.pipe()
    os.set_blocking(sent, False)
    try:
        watcher = start_thread(watch, received, name="signals")
    except UserError:
        os.close(sent)
        os.close(received)
        raise
    before = signal.set_wakeup_fd(sent, warn_on_full_buffer=False)
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        os.close(sent)
        watcher.join()
        os.close(received)
