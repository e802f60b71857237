"""Environment variables, read in one place."""

from __future__ import annotations

import os


def debug() -> bool:
    """MXRUN_DEBUG=1: the graph is verified after every pass."""
    return os.environ.get("MXRUN_DEBUG", "") not in ("", "0")


def onednn_library() -> str | None:
    """MXRUN_ONEDNN_LIBRARY: path of another oneDNN 3.x library than the installed package's."""
    return os.environ.get("MXRUN_ONEDNN_LIBRARY") or None
