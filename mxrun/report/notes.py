"""Notes to the user on standard error."""

from __future__ import annotations

from collections.abc import Sequence

from mxrun.report.printable import printable
from mxrun.report.status import write_lines


def write_note(text: str) -> None:
    """Write one note; see `write_notes`."""
    write_notes((text,))


def write_notes(notes: Sequence[str]) -> None:
    """Write one line per note; ignored if standard error cannot be written."""
    write_lines("".join(f"mxrun: {printable(note)}\n" for note in notes))
