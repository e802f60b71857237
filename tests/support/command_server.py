"""Server process that runs each of mxrun's commands in a fork of itself.

A command imports a thousand modules, which takes longer than the work of most commands that tests
run. The server has imported them, except those of the command line, and then forks for every
command, which is therefore a process of its own, with its own arguments, environment, current
folder and standard streams, that can be killed, and ends as the interpreter ends.

`command_server.py SOCKET` listens on a Unix socket and ends with its standard input. A client sends
one packet, a JSON object of `arguments`, `folder`, `environment` and `script`, the program to run
instead of `mxrun` or null, with the descriptors of the three standard streams. It receives the
number of the process, and later its exit code, negative for a signal.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import pkgutil
import runpy
import selectors
import signal
import socket
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

# Maximum size of a request; environments have some kilobytes.
REQUEST_BYTES = 1 << 17
_STREAMS = 3
# Imported by the commands only when they are needed.
_LATER = (
    *("llvmlite.binding", "pydantic.type_adapter", "rich.console", "rich.table", "typer"),
    "mxrun.device.cpu.device",
)


def main() -> int:
    """Serve until standard input ends; returns in every fork too, after its command."""
    _import_commands()
    gc.collect()
    gc.freeze()
    request = _serve(Path(sys.argv[1]))
    if request is None:
        return 0
    script = request["script"]
    sys.argv = [script or "mxrun", *request["arguments"]]
    # What `python script` and `python -m mxrun` have there.
    sys.path[0] = str(Path(script).parent) if script else request["folder"]
    if script:
        runpy.run_path(script, run_name="__main__")
    else:
        runpy.run_module("mxrun", run_name="__main__", alter_sys=True)
    return 0


def _import_commands() -> None:
    """Import what commands import, except the modules of the command line.

    One of those reads the time at which its process started.
    """
    for name in _LATER:
        importlib.import_module(name)
    for package in ("mxrun.commands", "mxrun.ops", "mxrun.report"):
        folder = importlib.import_module(package).__path__
        for module in pkgutil.walk_packages(folder, f"{package}."):
            importlib.import_module(module.name)


def _serve(path: Path) -> dict[str, Any] | None:
    """Fork for every request: returns it in the fork, and None in the server at its end."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(path))
        listener.listen()
        print("ready", flush=True)
        with selectors.DefaultSelector() as events:
            events.register(0, selectors.EVENT_READ)
            events.register(listener, selectors.EVENT_READ)
            while True:
                for key, _ in events.select():
                    if key.fileobj == 0:
                        return None
                    if key.fileobj is listener:
                        request = _accepted(listener, events)
                        if request is not None:
                            return request
                    else:
                        _ended(key, events)


def _accepted(listener: socket.socket, events: selectors.BaseSelector) -> dict[str, Any] | None:
    """Fork for the next client; returns its request in the fork."""
    client, _ = listener.accept()
    packet, streams, _, _ = socket.recv_fds(client, REQUEST_BYTES, _STREAMS)
    child = os.fork()
    if child:
        for stream in streams:
            os.close(stream)
        _tell(client, child)
        events.register(os.pidfd_open(child), selectors.EVENT_READ, (child, client))
        return None
    for key in list(events.get_map().values()):
        if isinstance(key.data, tuple):
            os.close(key.fd)
            key.data[1].close()
    client.close()
    request: dict[str, Any] = json.loads(packet)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["folder"])
    ignored = request["ignores_hangup"]
    signal.signal(signal.SIGHUP, signal.SIG_IGN if ignored else signal.SIG_DFL)
    return request


def _ended(key: selectors.SelectorKey, events: selectors.BaseSelector) -> None:
    """Tell a client the exit code of its process."""
    child, client = key.data
    events.unregister(key.fileobj)
    os.close(key.fd)
    _, status = os.waitpid(child, 0)
    with client:
        _tell(client, os.waitstatus_to_exitcode(status))


def _tell(client: socket.socket, number: int) -> None:
    # A client that was killed does not wait.
    with suppress(OSError):
        client.send(str(number).encode())


if __name__ == "__main__":
    sys.exit(main())
