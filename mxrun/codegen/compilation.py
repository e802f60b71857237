"""Notes about compilations that make the user wait."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

NOTE = "compiling loops for this processor; later runs find them in the cache"
# One function takes up to half a second, so that the note appears within a second.
_NOTE_AFTER_S = 0.4


class _Compilations:
    """Time spent on compilations since a listener was set, and that listener."""

    def __init__(self) -> None:
        self.notify: Callable[[str], None] | None = None
        self.seconds = 0.0


_COMPILATIONS = _Compilations()


@contextmanager
def noted_compilations(notify: Callable[[str], None]) -> Iterator[None]:
    """Within the context, call `notify` once if compilations take longer than a moment."""
    before, _COMPILATIONS.notify = _COMPILATIONS.notify, notify
    _COMPILATIONS.seconds = 0.0
    try:
        yield
    finally:
        _COMPILATIONS.notify = before


@contextmanager
def compilation() -> Iterator[None]:
    """Context of one compilation."""
    if _COMPILATIONS.seconds > _NOTE_AFTER_S and _COMPILATIONS.notify is not None:
        _COMPILATIONS.notify(NOTE)
        _COMPILATIONS.notify = None
    start = time.perf_counter()
    yield
    _COMPILATIONS.seconds += time.perf_counter() - start
