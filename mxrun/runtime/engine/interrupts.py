"""Ctrl-C between two operations of an engine, never within one.

Python raises KeyboardInterrupt at any instruction of the main thread. Within an engine that would
leave a push half done, and every later wait would hang, or an array half written. The handler
installed here raises it at once outside of engines and in their waits, and otherwise at the end of
the operation. A function that has not come to its end soon after is ended then.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any, TypeVar

from mxrun.base.threads import start_bare_thread
from mxrun.runtime.engine import calls, completion, naive, pending, propagation, queues, threaded
from mxrun.runtime.engine.interface import Engine
from mxrun.runtime.engine.naive import NaiveEngine
from mxrun.runtime.engine.threaded import ThreadedEngine

_DELAY_S, _PROTECTED_S = 0.05, 0.001
_MODULES = (calls, completion, naive, pending, propagation, queues, threaded)
_FILES = frozenset(str(module.__file__) for module in _MODULES)
# Methods that wait, and leave nothing half done.
_INTERRUPTED = frozenset(
    method.__code__
    for kind in (NaiveEngine, ThreadedEngine)
    for method in (kind.wait_for_variable, kind.wait_for_all, kind.close)
) | {
    ThreadedEngine._wait_until_complete.__code__,
    NaiveEngine._wait.__code__,
}

_protected: set[CodeType] = set()
# The engine that has not raised KeyboardInterrupt until the signal was sent again.
_overdue: Engine | None = None
AnyFunction = TypeVar("AnyFunction", bound=Callable[..., Any])


def uninterrupted(function: AnyFunction) -> AnyFunction:
    """Let Ctrl-C take effect after a short function beside the engine instead of within it."""
    _protected.add(function.__code__)
    return function


def install() -> None:
    """Install the handler of SIGINT in place of Python's own, but of no other.

    Outside the main thread, where Python cannot install handlers, it does nothing.
    """
    if (
        threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    ):
        signal.signal(signal.SIGINT, _interrupt)


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Raise KeyboardInterrupt, or let the engine raise it at the end of its operation."""
    if _is_protected(frame):
        if start_bare_thread(_send_later, number):
            return
        raise KeyboardInterrupt
    global _overdue
    engine = _engine_within(frame)
    was_sent_again, _overdue = _overdue is engine, None
    if engine is None or (was_sent_again and _is_in_function(frame)):
        raise KeyboardInterrupt
    engine.interrupted = True
    start_bare_thread(_send_again, engine, number)


def _is_in_function(frame: FrameType | None) -> bool:
    """Return whether the code of a frame is a function pushed, or called by one."""
    while frame is not None and frame.f_code.co_filename not in _FILES:
        frame = frame.f_back
    return frame is not None and frame.f_code is calls.run_function.__code__


def _is_protected(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code in _protected:
            return True
        frame = frame.f_back
    return False


def _send_later(number: int) -> None:
    """Send the signal once more, when a protected function has ended or soon will have."""
    time.sleep(_PROTECTED_S)
    main = threading.main_thread().ident
    if main is not None:
        signal.pthread_kill(main, number)


def _engine_within(frame: FrameType | None) -> Engine | None:
    """Return the engine that an exception would leave in the middle of an operation, if any."""
    is_within = False
    while frame is not None:
        code = frame.f_code
        if code.co_filename in _FILES:
            if not is_within and code in _INTERRUPTED:
                return None
            is_within = True
            engine = frame.f_locals.get("self")
            if isinstance(engine, Engine):
                return engine
        frame = frame.f_back
    return None


def _send_again(engine: Engine, number: int) -> None:
    """Send the signal again if the engine has not raised KeyboardInterrupt meanwhile.

    Some operations, such as deletions by the garbage collector, cannot raise it.
    """
    time.sleep(_DELAY_S)
    main = threading.main_thread().ident
    if engine.interrupted and main is not None:
        global _overdue
        engine.interrupted, _overdue = False, engine
        signal.pthread_kill(main, number)
