"""Columns of a table in a text file as they are, before any is chosen as data or label."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mxrun.base.errors import Diagnostic, UserError
from mxrun.io.tables.cells import detected_delimiter, split_row
from mxrun.io.tables.layout import TableForm, TableLayout
from mxrun.io.tables.readers import MAX_KINDS, NumberReader, WordReader
from mxrun.io.tables.rows import RowPlaces
from mxrun.io.tables.table_columns import TableColumns
from mxrun.io.tables.text import first_row, read_columns

__all__ = ["MAX_KINDS", "TableColumn", "TableOutline", "outline_table"]

# Delimiters tried if the usual ones leave one column; in a config they must be written.
_OTHER_DELIMITERS = ("|", " ", ":")


@dataclass(frozen=True, eq=False)
class TableColumn:
    """Column of a table.

    number: from 0. name: empty without a header. numbers: float64 [rows], NaN for cells that are
    missing or not finite numbers. gaps: number of missing cells, the first at `gap_place`, its file
    and line. words: number of cells that are neither missing nor numbers; `word` is the first of
    them. kinds: cells of each distinct text, numbers among words included; empty if all are
    numbers, or if there are more than `MAX_KINDS`. dates: whether all words are ISO dates.
    """

    number: int
    name: str
    numbers: NDArray[np.float64]
    gaps: int
    gap_place: str
    words: int = 0
    word: str = ""
    kinds: dict[str, int] = field(default_factory=dict)
    dates: bool = False

    @property
    def label(self) -> str | int:
        """The name, or without one the number: how a config refers to the column."""
        return self.name or self.number

    def __str__(self) -> str:
        return repr(self.name) if self.name else f"column {self.number}"


@dataclass(frozen=True, eq=False)
class TableOutline:
    """Columns of a table, and how it is read.

    delimiter: empty if it is detected anyway. notes: on what was decided and may be doubted.
    """

    delimiter: str
    has_header: bool
    rows: int
    columns: tuple[TableColumn, ...]
    notes: tuple[str, ...]


def outline_table(paths: Sequence[Path]) -> TableOutline:
    """Read all cells of a table in one or several files.

    Raises UserError if they are not a table of at least two columns and one row.
    """
    delimiter = _delimiter(paths[0])
    form = TableForm(delimiter, "auto", columns={}, unique=False)

    def finish(
        layout: TableLayout, columns: TableColumns, places: RowPlaces, form: TableForm
    ) -> TableOutline:
        readers = zip(layout.columns, columns.readers, strict=True)
        found = [_outline(number, layout.name(number), each, places) for number, each in readers]
        rows = len(found[0].numbers)
        return TableOutline(form.delimiter, layout.has_header, rows, tuple(found), layout.notes)

    return read_columns(paths, form, finish)


def _outline(
    number: int, name: str, reader: NumberReader | WordReader, places: RowPlaces
) -> TableColumn:
    if isinstance(reader, NumberReader):
        numbers = reader.numbers()
        gaps = np.flatnonzero(np.isnan(numbers))
        return TableColumn(number, name, numbers, len(gaps), _place(places, gaps))
    survey = reader.survey()
    counts = (len(survey.gaps), _place(places, survey.gaps), survey.words, survey.word)
    return TableColumn(number, name, survey.numbers, *counts, survey.kinds, survey.dates)


def _place(places: RowPlaces, rows: NDArray[np.int64]) -> str:
    return places.where(int(rows[0])) if len(rows) else ""


def _delimiter(path: Path) -> str:
    """Return the delimiter that a config must name; empty if it is detected.

    Raises UserError if the file has no rows, or one column under all delimiters.
    """
    row = first_row(path)
    if row is None:
        raise UserError(Diagnostic(f"{path}: the file holds no rows", None, "a table"))
    for delimiter in ("", *_OTHER_DELIMITERS):
        if len(split_row(row, delimiter.encode() or detected_delimiter(row))) > 1:
            return delimiter
    expected = "columns separated by a tab, a semicolon, a comma, | or a blank"
    problem = f"{path}: the table has one column"
    raise UserError(Diagnostic(problem, None, expected, "none of them in row 1"))
