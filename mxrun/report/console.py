"""The two consoles: results go to standard output, progress and errors to standard error."""

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
from mxrun.report.streams import dispensable, escape_unencodable

# Files and pipes have no width: wide enough that no table is cut.
_WIDTH_OF_FILES = 200


class PrintableConsole(Console):
    """A console on which text moves no cursor and sets no colour: only styles do."""

    def on_broken_pipe(self) -> None:
        """Raise BrokenPipeError for the writer to handle: rich would end the process with 1."""
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterator[Segment]:
        """The renderable's segments; control characters within their texts are spelled out."""
        for segment in super().render(renderable, options):
            text, style, control = segment
            yield segment if control else Segment(printable(text), style)


def stdout() -> Console:
    """The console of results, where what the stream's encoding lacks is shown escaped."""
    escape_unencodable(sys.stdout)
    return PrintableConsole(width=None if sys.stdout.isatty() else _WIDTH_OF_FILES, highlight=False)


def stderr() -> Console:
    """The console of progress and errors."""
    width = None if sys.stderr.isatty() else _WIDTH_OF_FILES
    return PrintableConsole(stderr=True, width=width, highlight=False)


def print_error(error: MxrunError) -> None:
    """Print everything an error says to standard error; plain text unless it is a terminal.

    Where standard error cannot be written, the exit code alone says that something is wrong.
    """
    with dispensable():
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
    """The texts of an error: its first diagnostics, or its one line."""
    if isinstance(error, UserError):
        return shown(error.diagnostics)
    if isinstance(error, Stopped):
        return [f"mxrun: {error}"]
    return [f"mxrun: internal error: {error}"]
