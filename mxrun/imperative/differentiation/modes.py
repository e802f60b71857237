"""Modes of a thread: whether operators are recorded, and whether they run in training mode."""

from __future__ import annotations

from types import TracebackType

from mxrun.imperative.differentiation.tape import MODE, RECORD, TRAIN
from mxrun.runtime.engine.interrupts import uninterrupted


class ModeScope:
    """Context manager within which bits of this thread's mode are cleared and others set."""

    __slots__ = ("_before", "_clear", "_set")

    def __init__(self, clear: int, set_: int) -> None:
        self._clear, self._set = clear, set_
        self._before: list[int] = []

    def __enter__(self) -> None:
        before = MODE.value
        self._before.append(before)
        MODE.value = before & ~self._clear | self._set

    @uninterrupted
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        MODE.value = self._before.pop()


def record(train_mode: bool = True) -> ModeScope:
    """Context manager within which this thread records operators, in training mode by default."""
    return ModeScope(TRAIN | RECORD, RECORD | (TRAIN if train_mode else 0))


def pause(train_mode: bool = False) -> ModeScope:
    """Context manager within which this thread records nothing, in inference mode by default."""
    return ModeScope(TRAIN | RECORD, TRAIN if train_mode else 0)


def train_mode() -> ModeScope:
    """Context manager within which operators of this thread run in training mode."""
    return ModeScope(TRAIN, TRAIN)


def predict_mode() -> ModeScope:
    """Context manager within which operators of this thread run in inference mode."""
    return ModeScope(TRAIN, 0)


def is_recording() -> bool:
    """Return whether this thread records."""
    return bool(MODE.value & RECORD)


def is_training() -> bool:
    """Return whether operators of this thread run in training mode."""
    return bool(MODE.value & TRAIN)
