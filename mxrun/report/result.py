"""Results on standard output: JSON or tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from mxrun.base.files import report_write_errors
from mxrun.report.streams import is_stream_error, results, silence
from mxrun.train.files import canonical_json

if TYPE_CHECKING:
    from rich.console import RenderableType

# Exit code that a shell reports for a program killed by SIGPIPE: 128 + 13.
_SIGPIPE_EXIT_CODE = 141


def write_json(value: Mapping[str, Any] | Sequence[Any]) -> None:
    """Write one line of JSON. Raises UserError if it cannot be written."""
    with standard_output():
        results().write(canonical_json(value))


def write_text(text: str) -> None:
    """Write a text as it is. Raises UserError if it cannot be written."""
    with standard_output():
        results().write(text)


def write_tables(parts: Sequence[RenderableType]) -> None:
    """Write tables and lines. Raises UserError if they cannot be written."""
    from mxrun.report.console import stdout

    with standard_output():
        console = stdout()
        for part in parts:
            if console.is_terminal:
                console.print(part)
                continue
            # Tables fill their cells with blanks, also at the ends of lines.
            with console.capture() as printed:
                console.print(part)
            lines = printed.get().removesuffix("\n").split("\n")
            results().write("".join(f"{line.rstrip(' ')}\n" for line in lines))


def output_failed(error: OSError) -> NoReturn:
    """End a command after a failed write to a standard stream.

    Raises SystemExit without a message if the reader closed the pipe (`| head`), UserError for
    other errors of a stream, and `error` itself if it is not about a stream.
    """
    if not is_stream_error(error):
        raise error
    silence(results())
    if isinstance(error, BrokenPipeError):
        raise SystemExit(_SIGPIPE_EXIT_CODE) from None
    with report_write_errors(Path("standard output")):
        raise error


@contextmanager
def standard_output() -> Iterator[None]:
    """Context manager that flushes standard output at its end and handles failed writes."""
    try:
        yield
        results().flush()
    except OSError as error:
        output_failed(error)
