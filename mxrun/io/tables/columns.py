"""Columns of a table in a text file as they are, before any is chosen as data or label."""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mxrun.base.errors import Diagnostic, UserError
from mxrun.io.dataset.classes import class_key
from mxrun.io.files import read_all_bytes
from mxrun.io.tables.text import cell_number, cell_text, is_gap, table_cells

MAX_KINDS = 1000
"""Number of distinct words of a column that are counted one by one."""

_MAX_NUMBER = float(np.finfo(np.float32).max)
# Delimiters tried if the usual ones leave one column; in a config they must be written.
_OTHER_DELIMITERS = ("|", " ", ":")


@dataclass(frozen=True, eq=False)
class TableColumn:
    """Column of a table.

    number: from 0. name: empty without a header. numbers: float64 [rows], NaN for cells that are
    missing or not finite numbers. gaps: number of missing cells, the first in line `gap_line`.
    words: number of cells that are neither missing nor numbers; `word` is the first of them. kinds:
    cells of each distinct word, up to `MAX_KINDS` words.
    """

    number: int
    name: str
    numbers: NDArray[np.float64]
    gaps: int
    gap_line: int
    words: int
    word: str
    kinds: dict[str, int]

    @property
    def label(self) -> str | int:
        """The name, or without one the number: how a config refers to the column."""
        return self.name or self.number

    def __str__(self) -> str:
        return repr(self.name) if self.name else f"column {self.number}"


@dataclass(frozen=True, eq=False)
class TableOutline:
    """Columns of a table, and how it is read. delimiter: empty if it is detected anyway."""

    delimiter: str
    has_header: bool
    rows: int
    columns: tuple[TableColumn, ...]


@dataclass
class _ColumnScan:
    """Column while its cells are read."""

    numbers: array[float] = field(default_factory=lambda: array("d"))
    gaps: int = 0
    gap_line: int = 0
    words: int = 0
    word: str = ""
    kinds: dict[str, int] = field(default_factory=dict)
    spelled: dict[str, str] = field(default_factory=dict)

    def add(self, cell: bytes, line: int) -> None:
        """Add a cell."""
        number = cell_number(cell)
        if not math.isfinite(number) or abs(number) > _MAX_NUMBER:
            if is_gap(cell):
                self.gap_line = self.gap_line or line
                self.gaps += 1
            else:
                self._add_word(cell_text(cell))
            number = math.nan
        self.numbers.append(number)

    def _add_word(self, word: str) -> None:
        self.word = self.word or word
        self.words += 1
        # Spellings of one word that differ in the Unicode encoding of accents are one class.
        word = self.spelled.setdefault(class_key(word), word)
        if word in self.kinds or len(self.kinds) < MAX_KINDS:
            self.kinds[word] = self.kinds.get(word, 0) + 1

    def column(self, number: int, name: str) -> TableColumn:
        """Return the finished column."""
        numbers = np.array(self.numbers)
        counts = (self.gaps, self.gap_line, self.words, self.word)
        return TableColumn(number, name, numbers, *counts, self.kinds)


def outline_table(path: Path) -> TableOutline:
    """Read all cells of a table.

    The first row is a header if none of its cells is a number but some of the second row's are.
    Raises UserError if the file is not a table of at least two columns and one row of numbers.
    """
    content = bytes(read_all_bytes(path))
    delimiter = _delimiter(content, path)
    rows = table_cells(content, path, delimiter)
    first = next(rows, None)
    if first is None:
        raise UserError(Diagnostic(f"{path}: the file holds no rows", None, "a table of numbers"))
    second = next(rows, None)
    header = second is not None and not _has_numbers(first[1]) and _has_numbers(second[1])
    scans = [_ColumnScan() for _ in first[1]]
    count = 0
    for row in (None if header else first, second, *rows):
        if row is not None:
            count += 1
            for scan, cell in zip(scans, row[1], strict=True):
                scan.add(cell, row[0])
    names = [cell_text(cell) if header else "" for cell in first[1]]
    pairs = enumerate(zip(scans, names, strict=True))
    columns = tuple(scan.column(number, name) for number, (scan, name) in pairs)
    return TableOutline(delimiter, header, count, columns)


def _has_numbers(cells: Sequence[bytes]) -> bool:
    return any(not math.isnan(cell_number(cell)) and not is_gap(cell) for cell in cells)


def _delimiter(content: bytes, path: Path) -> str:
    """Return the delimiter that a config must name; empty if it is detected.

    Raises UserError if the file has one column under all delimiters.
    """
    for delimiter in ("", *_OTHER_DELIMITERS):
        row = next(table_cells(content, path, delimiter), None)
        if row is None or len(row[1]) > 1:
            return delimiter
    expected = "columns separated by a tab, a semicolon, a comma, | or a blank"
    raise UserError(
        Diagnostic(f"{path}: the table has one column", None, expected, "none of them in row 1")
    )
