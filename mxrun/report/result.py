"""Results on standard output: JSON for machines, tables for people."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mxrun.train.files import canonical_json, writing

if TYPE_CHECKING:
    from rich.console import RenderableType

# What a shell reports of a program whose reader went away: 128 + SIGPIPE.
_READER_IS_GONE = 141


def write_json(value: Mapping[str, Any]) -> None:
    """Write one line of JSON; raises UserError when it cannot be written."""
    with _standard_output():
        sys.stdout.write(canonical_json(value))


def write_tables(parts: Sequence[RenderableType]) -> None:
    """Write tables and lines; raises UserError when they cannot be written."""
    from mxrun.report.console import stdout

    with _standard_output():
        console = stdout()
        for part in parts:
            console.print(part)


@contextmanager
def _standard_output() -> Iterator[None]:
    """Everything is out when this ends; a reader who went away (`| head`) ends the program."""
    with writing(Path("standard output")):
        try:
            yield
            sys.stdout.flush()
        except OSError as error:
            # What is left in the buffer would fail again when the interpreter exits.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            if isinstance(error, BrokenPipeError):
                raise SystemExit(_READER_IS_GONE) from None
            raise
