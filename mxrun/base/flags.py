"""Environment variables, read in one place."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def debug() -> bool:
    """MXRUN_DEBUG=1: the graph is verified after every pass."""
    return os.environ.get("MXRUN_DEBUG", "") not in ("", "0")


def docstrings() -> bool:
    """Whether this process keeps docstrings; `python -OO` and PYTHONOPTIMIZE=2 strip them."""
    return sys.flags.optimize < 2


def onednn_library() -> str | None:
    """MXRUN_ONEDNN_LIBRARY: path of another oneDNN 3.x library than the installed package's."""
    return os.environ.get("MXRUN_ONEDNN_LIBRARY") or None


def cache_folder() -> Path | None:
    """Where compiled code is kept: `mxrun` in XDG_CACHE_HOME, by default in ~/.cache.

    None for a user without a home: code must not be loaded from a folder that others may write.
    """
    folder = Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"))
    return folder / "mxrun" if folder.is_absolute() else None
