"""Columns of a table in memory, before they are encoded: numbers, or words by number."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from mxrun.base.dataclass import dataclass
from mxrun.io.tables.cells import USUAL_CELLS, CellForm, category_text, number_text
from mxrun.io.tables.forms import ColumnForm, TextForm

MISSING = -1
"""Code of a missing word."""

Rows = slice | NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class FeatureColumn:
    """Column of a table.

    name: empty if the table has no names; number: from 0. form: its treatment, a number, category
    or date. numbers: float64 [rows], NaN where missing, of numbers and dates (days since 1970).
    codes: int32 [rows], indices into `words`, -1 where missing, of categories.
    """

    name: str
    number: int
    form: ColumnForm
    numbers: NDArray[np.float64] | None = None
    codes: NDArray[np.int32] | None = None
    words: tuple[str, ...] = ()

    def __len__(self) -> int:
        values = self.codes if self.numbers is None else self.numbers
        assert values is not None
        return len(values)

    def __str__(self) -> str:
        return f"column {self.name!r}" if self.name else f"column {self.number}"


@dataclass(frozen=True, eq=False)
class FeatureTable:
    """Columns of equal length, from which the network's data are encoded; `rows` selects records.

    cells: the form in which its cells were written. series: name of the series of each row, of
    those in which numbers have a scale of their own.

    Any reader of tables can make one: `number_column` and `word_column` make its columns.
    """

    columns: tuple[FeatureColumn, ...]
    rows: Rows | None = None
    cells: CellForm = USUAL_CELLS
    series: NDArray[np.str_] | None = None

    def __len__(self) -> int:
        length = len(self.columns[0])
        return length if self.rows is None else len(np.arange(length)[self.rows])

    def part(self, rows: Rows) -> FeatureTable:
        """Return some records of a complete table, without copying any."""
        return replace(self, rows=rows)

    def numbers(self, column: FeatureColumn) -> NDArray[np.float64]:
        """Return the selected records of a column of numbers, float64."""
        assert column.numbers is not None
        return column.numbers if self.rows is None else column.numbers[self.rows]

    @property
    def names(self) -> NDArray[np.str_] | None:
        """The series of the selected records; None if all have one scale."""
        return self.series if self.series is None or self.rows is None else self.series[self.rows]

    def codes(self, column: FeatureColumn) -> NDArray[np.int32]:
        """Return the selected records of a column of words, int32."""
        assert column.codes is not None
        return column.codes if self.rows is None else column.codes[self.rows]


def word_column(
    name: str, number: int, form: ColumnForm, cells: Sequence[str | None]
) -> FeatureColumn:
    """Return a column of categories, or of texts, from their words; None is missing."""
    known: dict[str, int] = {}
    codes = [
        MISSING if cell is None else known.setdefault(_word(cell, form), len(known))
        for cell in cells
    ]
    return FeatureColumn(name, number, form, codes=np.array(codes, np.int32), words=tuple(known))


def _word(cell: str, form: ColumnForm) -> str:
    return cell if isinstance(form, TextForm) else category_text(cell)


def categories_of_numbers(
    name: str, number: int, form: ColumnForm, values: NDArray[np.float64]
) -> FeatureColumn:
    """Return a column of categories from numbers; NaN is missing."""
    found, inverse = np.unique(values[~np.isnan(values)], return_inverse=True)
    codes = np.full(len(values), MISSING, np.int32)
    codes[~np.isnan(values)] = inverse
    words = tuple(number_text(each) for each in found.tolist())
    return FeatureColumn(name, number, form, codes=codes, words=words)
