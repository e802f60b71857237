"""Notes for the user: the callback that receives them, and notes about this machine."""

from __future__ import annotations

from collections.abc import Callable

from mxrun.backend.onednn import library as onednn

# Receives a note, such as how long a wait will be.
Notify = Callable[[str], None]


def ignore_note(text: str) -> None:
    """Ignore a note."""


def note_missing_library(notify: Notify) -> None:
    """Notify if oneDNN is missing on this machine."""
    why = onednn.reason()
    if why:
        notify(f"{why}; the layers run on NumPy, which is slower")
