"""Tables that fit the width of a terminal: columns are dropped, and names shortened, to fit it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cache, partial
from itertools import combinations, islice

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
                cells = _cut(cells, width)
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


def _cut(cells: Sequence[RenderableType], width: int) -> list[RenderableType]:
    """Return the cells of a column with every line shortened; different lines stay different."""
    texts = [_text(cell).split("\n") for cell in cells]
    short = shortened_apart([line for lines in texts for line in lines], width)
    return [
        Text("\n".join(short[line] for line in lines), getattr(cell, "style", ""))
        for cell, lines in zip(cells, texts, strict=True)
    ]


def shortened(name: str, width: int) -> str:
    """Return a name of at most `width` characters; what is left out is in the middle.

    Of a path such as `stage2/block1/branch/conv1`, complete parts are left out if the first and
    the last one fit: `stage2/…/conv1`.
    """
    if len(name) <= width:
        return name
    parts = name.split("/")
    ends = {0, len(parts) - 1}
    if len(parts) > 2 and len(_with_parts(parts, ends)) <= width:
        return _filled(parts, ends, width)
    end = (width - 1) // 2
    return f"{name[: width - 1 - end]}…{name[len(name) - end :]}"


def shortened_apart(names: Iterable[str], width: int) -> dict[str, str]:
    """Return the short form of each name; different names have different forms.

    Of names that `shortened` makes equal, other parts are shown, such as those in
    `stage2/unit1/…/conv` and `stage2/unit2/…/conv`, so that a form can mean only one of the names.
    """
    forms = {name: shortened(name, width) for name in names}
    counts = Counter(forms.values())
    equal = [name for name, form in forms.items() if counts[form] > 1]
    # Names share most of the forms that are tried.
    is_unique = cache(partial(_is_unique, lines="\n".join(forms)))
    for number, name in enumerate(equal, 1):
        found = filter(is_unique, _other_forms(name, width))
        mark = f"~{number}"
        forms[name] = next(found, f"{shortened(name, max(1, width - len(mark)))}{mark}")
    return forms


def _is_unique(form: str, lines: str) -> bool:
    """Return whether only one line can be read into a form, where `…` is any text."""
    pattern = ".+".join(map(re.escape, form.split("…")))
    return len(list(islice(re.finditer(f"^{pattern}$", lines, re.MULTILINE), 2))) < 2


def _other_forms(name: str, width: int) -> Iterator[str]:
    """Yield forms of a name, the most readable ones first: its parts, its ends, its inside."""
    parts = name.split("/")
    last = len(parts) - 1
    sets = [set(kept) for size in (1, 2, 3, 4) for kept in combinations(range(last + 1), size)]
    sets.sort(key=lambda kept: (last not in kept, 0 not in kept, len(kept)))
    for kept in sets:
        if len(_with_parts(parts, kept)) <= width:
            yield _filled(parts, kept, width)
    for letters in (max(map(len, parts)), 4, 3):
        cut = [*(shortened(part, letters) for part in parts[:-1]), parts[-1]]
        for kept in sets:
            close = re.sub("/?…/", "…", _with_parts(cut, kept))
            if len(close) <= width:
                yield close
    for end in range(1, width - 1):
        yield f"{name[: width - 1 - end]}…{name[len(name) - end :]}"
    for start in range(1, len(name) - width + 2):
        yield f"…{name[start : start + width - 2]}…"


def _filled(parts: Sequence[str], kept: set[int], width: int) -> str:
    """Return a path with the parts `kept`, and with as many others as fit, from the right."""
    for index in reversed(range(len(parts))):
        if len(_with_parts(parts, {*kept, index})) > width:
            break
        kept = {*kept, index}
    return _with_parts(parts, kept)


def _with_parts(parts: Sequence[str], kept: Collection[int]) -> str:
    """Return a path in which `…` stands for each series of parts that are left out."""
    shown: list[str] = []
    for index, part in enumerate(parts):
        if index in kept:
            shown.append(part)
        elif not shown or index - 1 in kept:
            shown.append("…")
    return "/".join(shown)
