"""Client of `command_server`: commands that run in forks of a server.

Only the standard library is imported, so that a program which does nothing else starts in
milliseconds.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Mapping, Sequence


class Running:
    """Command that a server runs, from its start on."""

    def __init__(
        self,
        server: str,
        arguments: Sequence[str],
        folder: str,
        environment: Mapping[str, str],
        streams: Sequence[int],
    ) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.connect(server)
        request = {"arguments": arguments, "folder": folder, "environment": {**environment}}
        socket.send_fds(self._socket, [json.dumps(request).encode()], [*streams])
        self.process = int(self._socket.recv(64))

    def wait(self) -> int:
        """Return the exit code, negative for a signal."""
        with self._socket:
            return int(self._socket.recv(64))


def main(server: str) -> int:
    """Run a command with this process's arguments, folder, environment and streams."""
    code = Running(server, sys.argv[1:], os.getcwd(), os.environ, (0, 1, 2)).wait()
    return code if code >= 0 else 128 - code
