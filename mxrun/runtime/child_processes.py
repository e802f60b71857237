"""Child processes that end with this process: on a signal all of them are ended first."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing_extensions import Self

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# Seconds that children have to end after SIGTERM before they are killed.
_GRACE_S = 5.0


class ChildProcesses:
    """Context manager that runs child processes and ends them on SIGINT, SIGTERM or SIGHUP.

    Each child leads a process group of its own, which receives SIGTERM on the first signal, and
    SIGKILL on a second one or five seconds later. No child starts after a signal. Signals that this
    process was started to ignore remain ignored. Outside the main thread, where Python cannot
    install handlers, signals keep their meaning.

    signal: number of the first signal, if there was one.
    """

    def __init__(self) -> None:
        self.signal: int | None = None
        self._lock = threading.Lock()
        self._groups: set[int] = set()
        self._before: dict[int, Any] = {}
        self._wakeup_before = -1
        self._pipe = -1
        self._watcher: threading.Thread | None = None

    def __enter__(self) -> Self:
        if threading.current_thread() is not threading.main_thread():
            return self
        # Python runs handlers in the main thread, which may be waiting with a lock held; a thread
        # that reads the wake-up pipe may take locks.
        received, self._pipe = os.pipe()
        os.set_blocking(self._pipe, False)
        self._watcher = threading.Thread(
            target=self._watch, args=(received,), name="signals", daemon=True
        )
        self._watcher.start()
        self._wakeup_before = signal.set_wakeup_fd(self._pipe, warn_on_full_buffer=False)
        heard = [each for each in _SIGNALS if signal.getsignal(each) is not signal.SIG_IGN]
        self._before = {number: signal.signal(number, lambda *_: None) for number in heard}
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

    def run(self, command: Sequence[str], folder: Path, output: IO[bytes]) -> int | None:
        """Run a command to its end and return its exit code, or minus the signal that killed it.

        Standard input is empty; standard output and standard error both go to `output`. Returns
        None if a signal came before the end. Raises OSError if the command cannot be started.
        """
        with self._lock:
            if self.signal is not None:
                return None
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=folder,
                start_new_session=True,
            )
            self._groups.add(process.pid)
        code = process.wait()
        with self._lock:
            self._groups.discard(process.pid)
            return None if self._is_ending() else code

    def _is_ending(self) -> bool:
        """Return whether a signal has come, which the watching thread notes."""
        return self.signal is not None

    def _watch(self, received: int) -> None:
        """End the children when the pipe has the number of a signal, until it is closed."""
        grace: float | None = None
        while True:
            ready, _, _ = select.select([received], [], [], grace)
            if not ready:
                self._send(signal.SIGKILL)
                grace = None
                continue
            number = os.read(received, 1)
            if not number:
                break
            if number[0] in self._before:
                is_first = self.signal is None
                self._send(signal.SIGTERM if is_first else signal.SIGKILL, number[0])
                grace = _GRACE_S if is_first else None
        os.close(received)

    def _send(self, sent: int, received: int | None = None) -> None:
        with self._lock:
            if self.signal is None:
                self.signal = received
            for group in self._groups:
                with suppress(ProcessLookupError):
                    os.killpg(group, sent)
