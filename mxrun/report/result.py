"""Results on standard output: JSON for machines, tables for people."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from mxrun.base.files import writing
from mxrun.report.streams import is_stream_error, silence
from mxrun.train.files import canonical_json

if TYPE_CHECKING:
    from rich.console import RenderableType

# What a shell reports of a program whose reader went away: 128 + SIGPIPE.
_READER_IS_GONE = 141


def write_json(value: Mapping[str, Any] | Sequence[Any]) -> None:
    """Write one line of JSON; raises UserError when it cannot be written."""
    with standard_output():
        sys.stdout.write(canonical_json(value))


def write_tables(parts: Sequence[RenderableType]) -> None:
    """Write tables and lines; raises UserError when they cannot be written."""
    from mxrun.report.console import stdout

    with standard_output():
        console = stdout()
        for part in parts:
            console.print(part)


def output_failed(error: OSError) -> NoReturn:
    """End what wrote to a standard stream in vain; a reader who went away (`| head`) needs no word.

    Raises SystemExit where a reader went away, UserError where something else is wrong with the
    stream, and the error itself where it is about no stream.
    """
    if not is_stream_error(error):
        raise error
    silence(sys.stdout)
    if isinstance(error, BrokenPipeError):
        raise SystemExit(_READER_IS_GONE) from None
    with writing(Path("standard output")):
        raise error


@contextmanager
def standard_output() -> Iterator[None]:
    """Everything is out when this ends."""
    try:
        yield
        sys.stdout.flush()
    except OSError as error:
        output_failed(error)
