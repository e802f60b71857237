"""The process's engine, which arrays and runs share unless they are given another one."""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from mxrun.base.errors import UserError
from mxrun.base.locks import hold_while_forking, new_lock
from mxrun.runtime.engine.ended import EndedEngine
from mxrun.runtime.engine.interface import Engine
from mxrun.runtime.engine.interrupts import install
from mxrun.runtime.engine.naive import NaiveEngine
from mxrun.runtime.engine.threaded import ThreadedEngine

KINDS: dict[str, type[Engine]] = {"threaded": ThreadedEngine, "naive": NaiveEngine}

_guard = new_lock()
_engine: Engine | None = None
# The one that is held while the process forks.
_forking: Engine | None = None


def new_engine(kind: str) -> Engine:
    """Return a new engine, `threaded` or `naive`. Raises UserError for another kind."""
    if kind not in KINDS:
        raise UserError(f"there is no engine {kind!r}; the kinds are {', '.join(KINDS)}")
    return KINDS[kind]()


def engine_of(kind: str) -> Engine:
    """Return the process's engine if it is of this kind, else a new one.

    Raises UserError for another kind than `threaded` and `naive`.
    """
    current = engine()
    return current if current.kind == kind else new_engine(kind)


def engine() -> Engine:
    """Return the process's engine, made when it is first asked for.

    When the process ends, functions that are pending finish, and failures that no wait has raised
    are printed to standard error. What is pushed afterwards runs on the pushing thread. Ctrl-C
    leaves the engine whole (`interrupts.py`).
    """
    global _engine
    if _engine is not None:
        return _engine
    with _guard:
        if _engine is None:
            _engine = made = ThreadedEngine()
            atexit.register(_finish, made)
            hold_while_forking(_before_fork, _after_fork_in_parent)
            os.register_at_fork(after_in_child=_after_fork_in_child)
            install()
        return _engine


@contextmanager
def using_engine(other: Engine) -> Iterator[Engine]:
    """Context manager within which `other` is the process's engine.

    Arrays keep the engine with which they were made.
    """
    global _engine
    with _guard:
        before, _engine = _engine, other
    try:
        yield other
    finally:
        with _guard:
            _engine = before


def _before_fork() -> None:
    global _forking
    _forking = _engine
    if _forking is not None:
        _forking.before_fork()


def _after_fork_in_parent() -> None:
    if _forking is not None:
        _forking.after_fork_in_parent()


def _after_fork_in_child() -> None:
    if _forking is not None:
        _forking.after_fork_in_child()


def _finish(ended: ThreadedEngine) -> None:
    # Its arrays refer to the object. From now on it takes pushes without workers, too.
    ended.__class__ = EndedEngine
    ended.close()
    for failure in ended.unreported():
        print(f"mxrun: {failure}, and nothing waited for it", file=sys.stderr)
