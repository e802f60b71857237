"""Client side of a helper process: start, messages, end."""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from typing_extensions import Self

from mxrun.base.child_python import run_script
from mxrun.base.errors import Diagnostic, InternalError, UserError
from mxrun.peers.wire import Array, Message, read, write

_WORKER = Path(__file__).with_name("worker.py")
_FAREWELL_SECONDS = 10.0
_STDERR_BYTES = 4000


def worker_command(interpreter: str, module: Path) -> list[str]:
    """Return the command that serves a module's HANDLERS and reports its REJECTIONS.

    The module may import NumPy, the peer and worker modules of `mxrun.peers`; mxrun itself is not
    installed in the peer's environment. A module of another folder needs a name of its own there.
    """
    return run_script(_WORKER, str(module), python=interpreter)


class HelperProcess:
    """A peer in a separate process, with its own interpreter and libraries.

    command: starts a program that answers messages (see `wire.serve`). name: the process's name in
    errors. environment: variables to set, or to remove if None. The process ends with `close`, with
    the `with` block, or when this process ends.
    """

    def __init__(
        self, name: str, command: Sequence[str], environment: Mapping[str, str | None]
    ) -> None:
        self.name = f"{name} ({command[0]})"
        self._last_words = ""
        merged = {**os.environ, **environment}
        with contextlib.ExitStack() as on_failure:
            try:
                # A file, not a pipe, which would have to be drained during a long request.
                self._stderr = on_failure.enter_context(tempfile.TemporaryFile())
                self._process = subprocess.Popen(
                    command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=self._stderr,
                    env={name: value for name, value in merged.items() if value is not None},
                )
            except OSError as error:
                raise UserError(
                    Diagnostic(f"cannot start the peer {self.name}", got=str(error))
                ) from error
            on_failure.pop_all()

    def request(self, name: str, fields: Mapping[str, Any], arrays: Mapping[str, Array]) -> Message:
        """Send a request and wait for its reply.

        Raises UserError with the peer's message if it rejects the request, and InternalError with
        the end of its standard error if the process ends without a reply.
        """
        stdin, stdout = self._process.stdin, self._process.stdout
        if stdin is None or stdout is None or stdin.closed:
            raise InternalError(f"{self.name} has been closed")
        try:
            write(stdin, Message({**fields, "request": name}, arrays))
            reply = read(stdout)
        except (BrokenPipeError, EOFError):
            reply = None
        if reply is None:
            raise InternalError(self._obituary(name))
        if "rejected" in reply.fields:
            raise UserError(
                Diagnostic(f"{self.name} rejects {name!r}", got=reply.fields["rejected"])
            )
        return reply

    def _obituary(self, request: str) -> str:
        """Close the process and return a message with its exit status and standard error."""
        self.close()
        return (
            f"{self.name} ended with status {self._process.returncode} during {request!r}:\n"
            f"{self._last_words}"
        )

    def close(self) -> int:
        """End the process by closing its standard input; return the exit status. Idempotent."""
        if self._process.stdin is not None and not self._process.stdin.closed:
            # The process may have ended without reading all bytes; closing the pipe then fails.
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()
        try:
            status = self._process.wait(_FAREWELL_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            status = self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
        if not self._stderr.closed:
            self._stderr.seek(0)
            words = self._stderr.read()[-_STDERR_BYTES:]
            self._last_words = words.decode(errors="replace").strip()
            self._stderr.close()
        return status

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
