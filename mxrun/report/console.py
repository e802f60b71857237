"""Consoles: standard output for results, standard error for progress and errors."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from mxrun.base.errors import MxrunError, Stopped, UserError, shown
from mxrun.report.printable import printable
from mxrun.report.streams import escape_unencodable, optional_stderr, results

# Files and pipes have no width: lines are not wrapped, and drawings have this one.
_WIDTH_OF_FILES = 200


class PrintableConsole(Console):
    """Console that escapes control characters of texts: only its styles control the terminal."""

    def on_broken_pipe(self) -> None:
        """Raise BrokenPipeError for the caller to handle; rich would exit with code 1."""
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterator[Segment]:
        """Yield the segments of a renderable with the control characters of their texts escaped."""
        for segment in super().render(renderable, options):
            text, style, control = segment
            yield segment if control else Segment(printable(text), style)


def stdout() -> Console:
    """Return the console for results. It escapes characters that the stream's encoding lacks."""
    stream = results()
    escape_unencodable(stream)
    if stream.isatty():
        return PrintableConsole(file=stream, highlight=False)
    return PrintableConsole(file=stream, width=_WIDTH_OF_FILES, soft_wrap=True, highlight=False)


def stderr() -> Console:
    """Return the console for progress and errors."""
    width = None if sys.stderr.isatty() else _WIDTH_OF_FILES
    return PrintableConsole(stderr=True, width=width, highlight=False)


def print_error(error: MxrunError) -> None:
    """Print an error in full to standard error, with styles on a terminal only.

    If standard error cannot be written, the exit code alone reports the error.
    """
    with optional_stderr():
        for problem in problems(error):
            _print_problem(printable(problem))
        sys.stderr.flush()


def _print_problem(problem: str) -> None:
    if sys.stderr.isatty():
        first, _, rest = problem.partition("\n")
        text = Text.assemble((first, "bold red"), f"\n{rest}" if rest else "")
        stderr().print(text, soft_wrap=True)
    else:
        sys.stderr.write(f"{problem}\n")


def problems(error: MxrunError) -> list[str]:
    """Return the texts of an error: its first diagnostics, or its one line."""
    if isinstance(error, UserError):
        return shown(error.diagnostics)
    if isinstance(error, Stopped):
        return [f"mxrun: {error}"]
    return [f"mxrun: internal error: {error}"]
