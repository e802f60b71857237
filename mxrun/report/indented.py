"""Indented texts, wrapped on a terminal and complete in files and pipes."""

from __future__ import annotations

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.padding import Padding
from rich.text import Text

# Longer than any line: rich has no unlimited width.
_UNLIMITED = 1_000_000


class Unclipped:
    """Renderable of natural width whose lines are complete in files and pipes.

    rich does not wrap there (`soft_wrap`), but cuts the lines of paddings and tables at the width
    of the console.
    """

    def __init__(self, content: RenderableType) -> None:
        self.content = content

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the content."""
        width = _UNLIMITED if console.soft_wrap else options.max_width
        yield from console.render(self.content, options.update(width=width))


class Indented(Unclipped):
    """Text whose lines are all indented by two blanks."""

    def __init__(self, text: str) -> None:
        super().__init__(Padding(Text(text.rstrip()), (0, 0, 0, 2), expand=False))
