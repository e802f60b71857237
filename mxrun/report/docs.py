"""Pages of the documentation in a terminal."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from rich.console import RenderableType
from rich.markdown import Markdown

from mxrun.report.console import stdout
from mxrun.report.result import standard_output
from mxrun.report.tables import titled_table

# Longer lines are tiring to read.
_MAX_WIDTH = 100


def page_list(pages: Sequence[tuple[str, str]]) -> RenderableType:
    """Return a table of the pages' names and titles."""
    table = titled_table("documentation: mxrun docs PAGE", "page", "about")
    for name, title in pages:
        table.add_row(name, title)
    return table


def write_page(text: str) -> None:
    """Write a page: formatted and in the user's pager on a terminal, else as Markdown."""
    if not sys.stdout.isatty():
        with standard_output():
            sys.stdout.write(text)
        return
    console = stdout()
    console.width = min(console.width, _MAX_WIDTH)
    # Colours pass through less, which ends at once if the page fits the screen.
    os.environ.setdefault("LESS", "FRX")
    with standard_output(), console.pager(styles=True):
        console.print(Markdown(text, hyperlinks=False))
