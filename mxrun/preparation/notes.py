"""Notes for the user: the callback that receives them."""

from __future__ import annotations

from collections.abc import Callable

# Receives a note, such as how long a wait will be.
Notify = Callable[[str], None]


def ignore_note(text: str) -> None:
    """Ignore a note."""


def notify_once(notify: Notify) -> Notify:
    """Return a callback that passes on each text only once."""
    passed: set[str] = set()

    def pass_on(text: str) -> None:
        if text not in passed:
            passed.add(text)
            notify(text)

    return pass_on
