"""Client of `command_server`: commands that run in forks of a server.

Only the standard library is imported, so that a program which does nothing else starts in
milliseconds.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import sys
from collections.abc import Mapping, Sequence

_NUMBER_BYTES = 64


class Running:
    """Process of a command that a server runs; its methods are those of `subprocess.Popen`.

    script: the program that runs instead of `mxrun`.
    """

    def __init__(
        self,
        server: str,
        arguments: Sequence[str],
        folder: str,
        environment: Mapping[str, str],
        streams: Sequence[int],
        script: str | None = None,
    ) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.connect(server)
        request = {
            "arguments": arguments,
            "folder": folder,
            "environment": {**environment},
            "ignores_hangup": signal.getsignal(signal.SIGHUP) is signal.SIG_IGN,
            "script": script,
        }
        socket.send_fds(self._socket, [json.dumps(request).encode()], [*streams])
        self.pid = int(self._socket.recv(_NUMBER_BYTES))
        self.returncode: int | None = None

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit code, negative for a signal; raises TimeoutError after `timeout`."""
        if self.returncode is None:
            self._socket.settimeout(timeout)
            self.returncode = int(self._socket.recv(_NUMBER_BYTES))
            self._socket.close()
        return self.returncode

    def poll(self) -> int | None:
        """Return the exit code, None while the process runs."""
        with contextlib.suppress(BlockingIOError):
            self.wait(0)
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal, unless the process has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill the process."""
        self.send_signal(signal.SIGKILL)


def main(server: str) -> int:
    """Run a command with this process's arguments, folder, environment and streams."""
    code = Running(server, sys.argv[1:], os.getcwd(), os.environ, (0, 1, 2)).wait()
    return code if code >= 0 else 128 - code
