"""Notes to the user on standard error."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from mxrun.report.printable import printable
from mxrun.report.streams import optional_stderr


def write_note(text: str) -> None:
    """Write one note; see `write_notes`."""
    write_notes((text,))


def write_notes(notes: Sequence[str]) -> None:
    """Write one line per note; ignored if standard error cannot be written."""
    with optional_stderr():
        for note in notes:
            sys.stderr.write(f"mxrun: {printable(note)}\n")
        sys.stderr.flush()
