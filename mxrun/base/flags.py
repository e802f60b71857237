"""Environment variables and interpreter flags."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from mxrun.base.errors import Diagnostic, UserError

PROCESSOR_KINDS = ("x86-64", "avx2", "avx512", "amx")
"""Kinds of processors for which code can be generated, each with all instructions of the last."""


def debug() -> bool:
    """Return whether MXRUN_DEBUG is set.

    The graph is then verified after every pass; freed storage is poisoned and leaks are reported;
    checks of an operator print each case before they run it.
    """
    return os.environ.get("MXRUN_DEBUG", "") not in ("", "0")


def docstrings() -> bool:
    """Return whether this process has docstrings; `python -OO` and PYTHONOPTIMIZE=2 strip them."""
    return sys.flags.optimize < 2


def onednn_library() -> str | None:
    """Return MXRUN_ONEDNN_LIBRARY: path of a oneDNN 3.x library to use instead of the package's."""
    return os.environ.get("MXRUN_ONEDNN_LIBRARY") or None


def processor() -> str | None:
    """Return MXRUN_PROCESSOR: kind of processor to generate code for, by default this one.

    Raises UserError if it names none of `PROCESSOR_KINDS`.
    """
    name = os.environ.get("MXRUN_PROCESSOR") or None
    if name is not None and name not in PROCESSOR_KINDS:
        problem = "MXRUN_PROCESSOR names no kind of processor"
        raise UserError(Diagnostic(problem, expected=", ".join(PROCESSOR_KINDS), got=name))
    return name


def runs_folder() -> Path:
    """Return the folder of runs: MXRUN_RUNS, or else `runs`."""
    return Path(os.environ.get("MXRUN_RUNS") or "runs")


def cache_folder() -> Path | None:
    """Return the cache folder: `mxrun` in XDG_CACHE_HOME, by default in ~/.cache.

    None for a user without a home: code must not be loaded from a folder that others may write.
    """
    folder = Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"))
    return folder / "mxrun" if folder.is_absolute() else None
