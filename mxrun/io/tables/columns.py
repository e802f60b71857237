"""Columns of a table in a text file as they are, before any is chosen as data or label."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from mxrun.base.dataclass import dataclass
from mxrun.base.errors import Diagnostic, UserError
from mxrun.base.once import cached_property
from mxrun.io.tables.cells import CellForm, detected_delimiter, split_row
from mxrun.io.tables.layout import TableForm, TableLayout
from mxrun.io.tables.readers import DateReader, TableColumn
from mxrun.io.tables.rows import RowPlaces
from mxrun.io.tables.table_columns import TableColumns
from mxrun.io.tables.text import first_row, read_columns

# Delimiters tried if the usual ones leave one column; in a config they must be written.
_OTHER_DELIMITERS = ("|", " ", ":")


@dataclass(frozen=True, eq=False)
class TableOutline:
    """Columns of a table, and the form by which they were read.

    form: its delimiter is empty if it is detected anyway. notes: on what was decided and may be
    doubted.
    """

    form: TableForm
    has_header: bool
    rows: int
    columns: tuple[TableColumn, ...]
    notes: tuple[str, ...]

    @cached_property
    def repeated(self) -> frozenset[str]:
        """The names that several columns have."""
        counts = Counter(each.name for each in self.columns)
        return frozenset(name for name, count in counts.items() if count > 1)

    @cached_property
    def by_name(self) -> bool:
        """Whether each column has a name of its own."""
        return not self.repeated and all(each.name for each in self.columns)

    def key(self, column: TableColumn) -> str:
        """Return the key of a column in the table's `columns`."""
        return column.name if self.by_name else str(column.number)

    def own_cells(self, column: TableColumn) -> CellForm | None:
        """Return the form of a column's cells, if it is not the table's."""
        treatment = (self.form.columns or {}).get(self.key(column))
        return None if treatment is None else treatment.cells


def outline_table(paths: Sequence[Path], form: TableForm) -> TableOutline:
    """Read all cells of a table in one or several files.

    form: what is known of their form; its `columns` may give some a form of their cells. Raises
    UserError if they are not a table of one row, and of as many columns as it says.
    """
    delimiter = form.delimiter or _delimiter(paths[0], form)
    everything = replace(
        form,
        delimiter=delimiter,
        data=None,
        label=None,
        columns=form.columns or {},
        unique=False,
        codes=True,
    )

    def finish(
        layout: TableLayout, columns: TableColumns, places: RowPlaces, form: TableForm
    ) -> TableOutline:
        readers = zip(layout.columns, columns.readers, strict=True)
        # No column is read as dates before it has been looked at.
        found = [
            each.column(number, layout.name(number), places)
            for number, each in readers
            if not isinstance(each, DateReader)
        ]
        rows = len(found[0].numbers)
        return TableOutline(form, layout.has_header, rows, tuple(found), layout.notes)

    return read_columns(paths, everything, finish)


def _delimiter(path: Path, form: TableForm) -> str:
    """Return the delimiter that a config must name; empty if it is detected.

    Raises UserError if the file has no rows, or one column under all delimiters.
    """
    row = first_row(path, form.encoding)
    if row is None:
        raise UserError(Diagnostic(f"{path}: the file holds no rows", None, "a table"))
    for delimiter in ("", *_OTHER_DELIMITERS):
        if len(split_row(row, delimiter.encode() or detected_delimiter(row))) > 1:
            return delimiter
    if form.least == 1:
        return ""
    expected = "columns separated by a tab, a semicolon, a comma, | or a blank"
    problem = f"{path}: the table has one column"
    raise UserError(Diagnostic(problem, None, expected, "none of them in row 1"))
