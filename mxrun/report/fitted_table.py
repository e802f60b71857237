"""Tables that fit the width of a terminal: columns are dropped, and names shortened, to fit it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.table import Column, Table
from rich.text import Text

# Blanks and the divider around a column's cells, and the table's two edges without a divider.
PADDING = 3
_EDGES = 1
# Width that a shortened name, and a column of words that wrap, keep at least.
_MIN_NAME = 16
_MIN_WORDS = 24


class FittedTable(Table):
    """Table of texts that is never wider than the terminal.

    In order, as far as needed: the columns in `least_important` are left out, and a line below
    says so; cells of the columns in `names` are shortened in the middle; other columns wrap. A
    console for files and pipes (`soft_wrap`) gets every column in full.
    """

    def __init__(
        self,
        title: str,
        *columns: str,
        names: Collection[str] = (),
        least_important: Sequence[str] = (),
    ) -> None:
        super().__init__(*columns, box=box.SIMPLE_HEAD)
        self.heading = Text(title, "bold")
        self.names, self.least_important = names, least_important

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the title, the table, and a line that names the columns left out."""
        yield self.heading
        if console.soft_wrap:
            natural = _EDGES + sum(PADDING + _width(column) for column in self.columns)
            yield from super().__rich_console__(console, options.update(width=natural))
            return
        dropped = self._dropped(options.max_width)
        fitted = self._fitted(dropped, options.max_width)
        yield from Table.__rich_console__(fitted, console, options)
        if dropped:
            names = ", ".join(dropped)
            yield Text(f"not shown: {names} (in a wider terminal, or with --json)", "dim")

    def _dropped(self, room: int) -> list[str]:
        """Return the columns to leave out: as few as possible, the least important first."""
        dropped: list[str] = []
        for name in self.least_important:
            shown = [column for column in self.columns if _heading(column) not in dropped]
            if _EDGES + sum(PADDING + self._least_width(column) for column in shown) <= room:
                break
            dropped.append(name)
        headings = [_heading(column) for column in self.columns]
        return [name for name in headings if name in dropped]

    def _least_width(self, column: Column) -> int:
        if _heading(column) in self.names:
            return min(_width(column), _MIN_NAME)
        return _width(column) if column.no_wrap else min(_width(column), _MIN_WORDS)

    def _fitted(self, dropped: Collection[str], room: int) -> FittedTable:
        """Return a table without the dropped columns, with the names shortened."""
        shown = [column for column in self.columns if _heading(column) not in dropped]
        names = [column for column in shown if _heading(column) in self.names]
        others = (self._least_width(column) for column in shown if column not in names)
        left = room - _EDGES - PADDING * len(shown) - sum(others)
        widths = shared_widths([_width(column) for column in names], left)
        by_heading = dict(zip(map(_heading, names), widths, strict=True))
        fitted = FittedTable("")
        fitted.show_footer, fitted.expand = self.show_footer, self.expand
        fitted.rows = self.rows
        for index, column in enumerate(shown):
            width = by_heading.get(_heading(column))
            cells = column._cells
            if width is not None:
                cells = [_cut(cell, width) for cell in cells]
            fitted.columns.append(replace(column, _index=index, _cells=cells))
        return fitted


def shared_widths(widths: Sequence[int], room: int) -> list[int]:
    """Return widths of columns that share `room`: the widest give way first."""
    limit = max(widths, default=0)
    while limit > 1 and sum(min(width, limit) for width in widths) > room:
        limit -= 1
    return [min(width, limit) for width in widths]


def _heading(column: Column) -> str:
    return _text(column.header)


def _width(column: Column) -> int:
    """Return the width of the longest line of a column."""
    texts: Iterable[RenderableType] = (column.header, column.footer, *column._cells)
    return max(cell_len(line) for text in texts for line in (_text(text) or " ").split("\n"))


def _text(cell: RenderableType) -> str:
    """Return the text of a cell, whose markup is not displayed."""
    return cell.plain if isinstance(cell, Text) else Text.from_markup(str(cell)).plain


def _cut(cell: RenderableType, width: int) -> Text:
    """Return a cell with every line shortened."""
    style = cell.style if isinstance(cell, Text) else ""
    return Text("\n".join(shortened(line, width) for line in _text(cell).split("\n")), style)


def shortened(name: str, width: int) -> str:
    """Return a name of at most `width` characters; what is left out is in the middle.

    Of a path such as `stage2/block1/branch/conv1`, complete parts are left out if the first and
    the last one fit: `stage2/…/conv1`.
    """
    if len(name) <= width:
        return name
    first, *middle = name.split("/")
    if middle:
        last = middle.pop()
        if len(first) + len(last) + 3 <= width:
            while middle and len(f"{first}/…/{middle[-1]}/{last}") <= width:
                last = f"{middle.pop()}/{last}"
            return f"{first}/…/{last}"
    end = (width - 1) // 2
    return f"{name[: width - 1 - end]}…{name[len(name) - end :]}"
