"""Problems of the cells of a table, collected for one message."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from mxrun.base.dataclass import dataclass
from mxrun.base.errors import Diagnostic, UserError
from mxrun.io.convert import valid_range
from mxrun.io.tables.cells import COMMA_HINT, THOUSANDS_HINT, CellForm, has_decimal_comma
from mxrun.io.tables.layout import TableForm, TableLayout
from mxrun.io.tables.rows import MAX_LINES, RowBlock

HEADER_HINT = "write `header: true` if the first row names the columns"
# With the last one as many as a command prints.
_MAX_PROBLEMS = 19
_AUTO_HINT = "`columns: auto` makes numbers of categories and fills gaps"


@dataclass(frozen=True)
class RefusedCells:
    """Cells of one column that are refused.

    rows: their positions in a block; form: that of the column's cells.
    """

    column: int
    rows: Sequence[int]
    form: CellForm
    role: Literal["data", "label"] = "data"


class CellProblems:
    """Collector of problems; `check` raises UserError with the first 19."""

    def __init__(self, hint: str, form: TableForm) -> None:
        self._hint, self._form = hint, form
        self._found: list[Diagnostic] = []

    def check(self) -> None:
        """Raise UserError if there are problems."""
        if self._found:
            raise UserError(self._found)

    def _add(self, found: Diagnostic) -> None:
        self._found.append(found)
        if len(self._found) == _MAX_PROBLEMS:
            more = Diagnostic(f"reading has ended after {_MAX_PROBLEMS} problems of the table")
            raise UserError([*self._found, more])

    def add_width(self, block: RowBlock, at: int, count: int, width: int, name: str) -> None:
        """Add a row that has another number of columns."""
        where = block.where(name, at, count)
        problem = f"{where}: the number of columns differs from the first row's"
        self._add(Diagnostic(problem, None, f"{width} columns", str(count)))

    def add_open_quote(self, block: RowBlock, at: int, column: int, name: str) -> None:
        """Add a row whose last cell begins with a quote that the row does not close."""
        where = block.where(name, at, column)
        problem = f"{where}: the cell in quotes does not end in this line, nor in those after it"
        got = repr(block.rows[at].decode().strip()[-40:])
        expected = f"a quote at the end of the cell, after at most {MAX_LINES:,} lines"
        self._add(Diagnostic(problem, None, expected, got, hint="close the quote"))

    def add_cells(
        self,
        block: RowBlock,
        cells: Sequence[Sequence[bytes]],
        refused: RefusedCells,
        layout: TableLayout,
        name: str,
        is_start: bool,
    ) -> None:
        """Add refused cells; is_start: whether the block is the first one of the table."""
        for at in refused.rows:
            row = cells[at]
            skipped = sum(len(each) + len(layout.divider) for each in row[: refused.column])
            where = block.where(name, at, refused.column + 1, skipped)
            is_first = is_start and at == 0
            self._add(self._cell(where, row[refused.column], refused, layout, is_first))

    def _cell(
        self, where: str, cell: bytes, refused: RefusedCells, layout: TableLayout, is_first: bool
    ) -> Diagnostic:
        """Return the diagnostic of a cell that is not a number, with a hint on how to fix it."""
        text = cell.decode().strip()
        column = layout.name(refused.column)
        named = f"column {column!r}: " if column else ""
        if math.isfinite(refused.form.number(cell)):
            problem = f"{where}: the number cannot be converted to float32"
            return Diagnostic(problem, None, valid_range("float32"), f"{text[:40]}")
        problem, expected = "not a number", "a finite number"
        hint = self._advice(refused, layout, is_first)
        if refused.form.is_gap(cell):
            hint = "fill the gap in, or leave the row or the column out"
            if self._is_data_set and refused.role == "data":
                hint = f"{hint}; {_AUTO_HINT}"
            if refused.role == "label" and self._form.words:
                problem, expected = "the label is missing", "a number or a word"
                word = text.strip('"')
                quoted = f', or quote the cell if it is a word: "{word}"' if word else ""
                hint = f"fill the gap in, or remove the rows without a label{quoted}"
            elif not self._form.is_plain:
                problem, expected = "the value is missing", "a number, as of `missing: error`"
                hint = "fill the gap in, or choose what stands for it, as `missing: mean`"
        elif has_decimal_comma(text):
            hint = COMMA_HINT if refused.form.decimal != "," else THOUSANDS_HINT
        return Diagnostic(
            f"{where}: {named}{problem}", None, expected, repr(text[:40]), hint=layout.hint or hint
        )

    @property
    def _is_data_set(self) -> bool:
        return self._form.is_plain and self._form.size is None

    def _advice(self, refused: RefusedCells, layout: TableLayout, is_first: bool) -> str:
        """Return the hint for a word in the place of a number."""
        if refused.role == "label":
            return "words are class labels only for a classification loss, such as SoftmaxOutput"
        if is_first and not layout.names and self._form.header != "yes":
            return self._hint
        if not self._form.is_plain:
            return "correct this cell, or make the column a category in `columns`"
        if not self._is_data_set:
            return "correct this cell"
        return (
            "correct this cell, or leave the column out: `data: [...]` names the columns that are "
            f"data; {_AUTO_HINT}"
        )
