"""Commands and programs on several ranks, in processes that mpirun starts."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from commands import MXRUN
from hang import HANG_S

MPIRUN = Path(sys.executable).with_name("mpirun")
FAULTY = Path(__file__).with_name("faulty_rank.py")
_PYTHON = (sys.executable,)


def rank_words(*groups: tuple[int, Sequence[str | Path]]) -> list[str]:
    """Return the command line that starts groups of ranks, each of a size and with a command."""
    words: list[str] = [str(MPIRUN)]
    for number, (count, command) in enumerate(groups):
        words += [*([":"] if number else []), "-n", str(count), *map(str, command)]
    return words


def on_ranks(
    *groups: tuple[int, Sequence[str | Path]], cwd: Path | None = None, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run groups of ranks to their end."""
    return subprocess.run(
        rank_words(*groups),
        capture_output=True,
        text=True,
        cwd=cwd,
        env={**os.environ, "MXRUN_DEBUG": "0", **environment},
        timeout=HANG_S,
        check=False,
        stdin=subprocess.DEVNULL,
    )


def mxrun_on(
    ranks: int, *arguments: str, cwd: Path | None = None, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run a command of mxrun on several ranks."""
    return on_ranks((ranks, [*MXRUN, *arguments]), cwd=cwd, **environment)


def python_on(ranks: int, file: Path | str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a Python program on several ranks."""
    return on_ranks((ranks, [*_PYTHON, file, *arguments]))
