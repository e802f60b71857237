"""Generated texts on standard output, and the line that sums the work up."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

from mxrun.base.errors import UserError
from mxrun.report.printable import printable
from mxrun.report.result import standard_output
from mxrun.report.streams import escape_unencodable, results


def write_streamed(prompt: str, pieces: Iterable[str]) -> None:
    """Write a prompt and the pieces of its text, each as soon as it is there.

    Control characters are escaped on a terminal, and everywhere those that the encoding of standard
    output lacks. An interrupt, or an error, ends the line. Raises UserError if they cannot be
    written.
    """
    with standard_output():
        stream = results()
        escape_unencodable(stream)
        is_terminal = stream.isatty()
        try:
            for text in chain([prompt], pieces):
                stream.write(_shown(text, is_terminal))
                stream.flush()
        except (KeyboardInterrupt, UserError):
            stream.write("\n")
            stream.flush()
            raise
        stream.write("\n")


def write_texts(texts: Sequence[str]) -> None:
    """Write texts with a line between them. Raises UserError if they cannot be written."""
    with standard_output():
        stream = results()
        escape_unencodable(stream)
        is_terminal = stream.isatty()
        shown = [f"{_shown(text, is_terminal)}\n" for text in texts]
        stream.write("---\n".join(shown))


def _shown(text: str, is_terminal: bool) -> str:
    """Return a text; for a terminal with its control characters escaped."""
    return printable(text) if is_terminal else text


def generation_text(summary: Mapping[str, Any]) -> str:
    """Return the tokens, the time and the memory of a generation in one line."""
    return (
        f"{summary['tokens']:,} tokens in {summary['seconds']:.2f} s "
        f"({summary['tokens_per_s']:,.0f} a second), {summary['planned_bytes']:,} bytes, of which "
        f"{summary['carried_bytes']:,} hold earlier positions"
    )
