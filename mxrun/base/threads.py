"""Starts of threads, which a limit of the process or of its user may refuse."""

from __future__ import annotations

import _thread
import threading
from collections.abc import Callable
from typing import Any

from mxrun.base.errors import Diagnostic, UserError


def start_thread(
    function: Callable[..., object], *arguments: Any, name: str | None = None
) -> threading.Thread:
    """Start a daemon thread. Raises UserError if the system refuses it."""
    thread = threading.Thread(target=function, args=arguments, name=name, daemon=True)
    try:
        thread.start()
    except (RuntimeError, MemoryError) as error:
        raise UserError(
            Diagnostic(
                f"the thread {thread.name!r} cannot be started",
                got=str(error) or "out of memory",
                hint="allow the process more memory, or its user more processes and threads "
                "(ulimit -v, ulimit -u, the limits of the container)",
            )
        ) from error
    return thread


def start_bare_thread(function: Callable[..., object], *arguments: Any) -> bool:
    """Start a thread without the bookkeeping of `threading`; return whether the system allows it.

    For signal handlers: the thread that they interrupt may hold the locks of that bookkeeping.
    """
    try:
        _thread.start_new_thread(function, arguments)
    except RuntimeError:
        return False
    return True
