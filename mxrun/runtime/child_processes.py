"""Child processes that end with this process: on a signal all of them are ended first."""

from __future__ import annotations

import os
import select
import signal
import subprocess
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import IO, TYPE_CHECKING

from mxrun.base.locks import new_lock
from mxrun.runtime.signals import handled_signals

if TYPE_CHECKING:
    from typing_extensions import Self

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# Seconds that children have to end after SIGTERM before they are killed.
_GRACE_S = 5.0


class ChildProcesses:
    """Context manager that runs child processes and ends them on SIGINT, SIGTERM or SIGHUP.

    Each child leads a process group of its own, which receives SIGTERM on the first signal, and
    SIGKILL on a second one or five seconds later. No child starts after a signal.

    signal: number of the first signal, if there was one.
    """

    def __init__(self) -> None:
        self.signal: int | None = None
        self._lock = new_lock()
        self._groups: set[int] = set()
        self._handled = ExitStack()

    def __enter__(self) -> Self:
        self._handled.enter_context(handled_signals(_SIGNALS, lambda *_: None, self._watch))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._handled.close()

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
            if number[0] in _SIGNALS:
                is_first = self.signal is None
                self._send(signal.SIGTERM if is_first else signal.SIGKILL, number[0])
                grace = _GRACE_S if is_first else None

    def _send(self, sent: int, received: int | None = None) -> None:
        with self._lock:
            if self.signal is None:
                self.signal = received
            for group in self._groups:
                with suppress(ProcessLookupError):
                    os.killpg(group, sent)
