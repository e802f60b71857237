"""Servers of this process that run commands in forks of themselves."""

from __future__ import annotations

import atexit
import itertools
import os
import selectors
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from command_client import Running

# Hashes of texts, and with them the order of sets, differ from process to process, but not from
# fork to fork: commands are given to the servers in turn, so that one that depends on them differs
# from the one before it.
_SERVERS = 2
_TURNS = itertools.count()
# Variables with these beginnings have an effect while Python and NumPy start.
_AT_START = ("PYTHON", "LD_", "LC_", "LANG", "OMP_", "OPENBLAS_", "MALLOC_")
_ENVIRONMENT = dict(os.environ)
_CHUNK = 1 << 16
# A program that hands its arguments and streams to a server.
_SCRIPT = """#!{python} -IS
import sys
sys.path.insert(0, {folder!r})
from command_client import main
sys.exit(main({server!r}))
"""


def can_run(environment: Mapping[str, str]) -> bool:
    """Return whether a server's fork would be what a new process with `environment` is."""
    return hasattr(os, "pidfd_open") and _at_start(environment) == _at_start(_ENVIRONMENT)


def write_program(path: Path) -> None:
    """Write the program `mxrun`, whose commands a server runs."""
    support = str(Path(__file__).parent)
    program = _SCRIPT.format(python=sys.executable, folder=support, server=_next_server())
    path.write_text(program)
    path.chmod(0o755)


def start(
    arguments: Sequence[str],
    folder: str,
    environment: Mapping[str, str],
    streams: Sequence[int],
    script: str | None = None,
) -> Running:
    """Start a command, or a script in its place, with the descriptors of its three streams."""
    return Running(_next_server(), arguments, folder, environment, streams, script)


def run(
    arguments: Sequence[str], folder: Path | None, environment: Mapping[str, str], seconds: float
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, with standard input closed; raises TimeoutExpired."""
    pipes = [os.pipe() for _ in range(2)]
    with open(os.devnull, "rb") as nothing:
        streams = (nothing.fileno(), *(writer for _, writer in pipes))
        where = str(Path.cwd() / (folder or ""))
        command = start(arguments, where, environment, streams)
    for _, writer in pipes:
        os.close(writer)
    try:
        texts = _read_all([reader for reader, _ in pipes], time.monotonic() + seconds)
    except TimeoutError:
        command.kill()
        command.wait()
        raise subprocess.TimeoutExpired([*arguments], seconds) from None
    finally:
        for reader, _ in pipes:
            os.close(reader)
    return subprocess.CompletedProcess(["mxrun", *arguments], command.wait(), *texts)


def _read_all(readers: Sequence[int], until: float) -> list[str]:
    """Return what is written to several pipes; raises TimeoutError."""
    parts: dict[int, list[bytes]] = {reader: [] for reader in readers}
    with selectors.DefaultSelector() as events:
        for reader in readers:
            events.register(reader, selectors.EVENT_READ)
        while events.get_map():
            ready = events.select(until - time.monotonic())
            if not ready:
                raise TimeoutError
            for key, _ in ready:
                part = os.read(key.fd, _CHUNK)
                parts[key.fd].append(part)
                if not part:
                    events.unregister(key.fd)
    texts = (b"".join(parts[reader]).decode() for reader in readers)
    return [text.replace("\r\n", "\n").replace("\r", "\n") for text in texts]


def _next_server() -> str:
    """Return the socket of one of the servers, another one at every call."""
    return _server(next(_TURNS) % _SERVERS)


@cache
def _server(number: int) -> str:
    """Start a server and return its socket."""
    folder = tempfile.mkdtemp(prefix="mxrun-commands-")
    path = f"{folder}/{number}"
    process = subprocess.Popen(
        [sys.executable, Path(__file__).with_name("command_server.py"), path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=_ENVIRONMENT,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"

    def stop() -> None:
        process.communicate()
        shutil.rmtree(folder)

    atexit.register(stop)
    return path


def _at_start(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name.startswith(_AT_START)}
