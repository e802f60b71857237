"""Commands and scripts in real processes, with their streams and exit codes."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import pty
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, AnyStr, Literal

import command_servers
import pytest
from hang import HANG_S

MXRUN = (sys.executable, "-m", "mxrun")
CONFIGS = Path(__file__).parents[2] / "configs"


def mxrun(
    *arguments: str,
    cwd: Path | None = None,
    environment: Mapping[str, str] | None = None,
    standard_input: str | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a command without MXRUN_DEBUG; `environment` is added to this process's.

    Its process is a fork of one that has imported mxrun, unless a variable has an effect before
    that, or it reads standard input.
    """
    given = {**os.environ, "MXRUN_DEBUG": "0", **(environment or {})}
    if standard_input is None and command_servers.can_run(given):
        return command_servers.run(arguments, cwd, given, HANG_S)
    return subprocess.run(
        [*MXRUN, *arguments],
        capture_output=True,
        text=True,
        cwd=cwd,
        env=given,
        timeout=HANG_S,
        check=False,
        input=standard_input,
    )


def on_terminal(
    *arguments: str,
    stream: Literal["stdout", "stderr"] = "stdout",
    cwd: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> tuple[int, str]:
    """Run a command, one stream of which is a terminal, as `mxrun` does.

    Return its exit code and what the terminal got.
    """
    ours, theirs = pty.openpty()
    given = {**os.environ, "TERM": "xterm", "MXRUN_DEBUG": "0", **(environment or {})}
    streams = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, stream: theirs}
    with subprocess.Popen([*MXRUN, *arguments], cwd=cwd, env=given, **streams) as process:
        os.close(theirs)
        shown = b""
        # Linux reports EIO when the last writer has closed the terminal.
        with contextlib.suppress(OSError):
            while part := os.read(ours, 65536):
                shown += part
    os.close(ours)
    return process.returncode, shown.decode()


def succeeded(done: subprocess.CompletedProcess[AnyStr]) -> subprocess.CompletedProcess[AnyStr]:
    """Return a process that ended with exit code 0."""
    assert done.returncode == 0, done.stderr
    return done


def python_output(
    *arguments: str | Path, cwd: Path | None = None, env: Mapping[str, str] | None = None
) -> str:
    """Return the standard output of Python run with these arguments; it must succeed.

    `env` replaces the environment.
    """
    done = subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        cwd=cwd,
        env=env,
        timeout=HANG_S,
        check=False,
    )
    return succeeded(done).stdout


def result(
    *arguments: str, cwd: Path | None = None, environment: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Return the JSON result of a command that succeeds; standard output must have nothing else."""
    done = succeeded(mxrun(*arguments, "--json", cwd=cwd, environment=environment))
    value = json.loads(done.stdout)
    assert isinstance(value, dict)
    return value


def refused(*arguments: str, cwd: Path | None = None) -> str:
    """Return the message of a command that refuses its input: exit code 2 and no traceback."""
    done = mxrun(*arguments, cwd=cwd)
    assert done.returncode == 2, (done.returncode, done.stderr)
    if "--json" in arguments:
        assert json.loads(done.stdout)["exit_code"] == 2
    else:
        assert done.stdout == ""
    assert "Traceback" not in done.stderr
    return done.stderr


def digests(run: Path) -> dict[str, str]:
    """Return the SHA-256 of files shared by runs of one config: checkpoints, metrics, config."""
    return {
        str(path.relative_to(run)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(run.rglob("*"))
        if path.is_file() and path.name not in ("timing.jsonl", "summary.json")
    }


def mnist() -> Path:
    """Return the folder of MNIST's test files, or skip if MXRUN_TEST_DATA does not name it."""
    folder = os.environ.get("MXRUN_TEST_DATA")
    if folder is None:
        pytest.skip("MXRUN_TEST_DATA does not name a folder with MNIST's IDX files")
    return Path(folder)
