"""Columns of a table while its rows are read, and what they hold in the end."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mxrun.base.errors import Diagnostic, UserError
from mxrun.io.convert import first_unrepresentable
from mxrun.io.tables.cells import (
    COMMA_HINT,
    CellForm,
    cell_text,
    has_decimal_comma,
)
from mxrun.io.tables.features import FeatureColumn, FeatureTable
from mxrun.io.tables.forms import CategoryForm, ColumnForm, DateForm, NumberForm, TextForm
from mxrun.io.tables.layout import TableForm, TableLayout
from mxrun.io.tables.problems import RefusedCells
from mxrun.io.tables.readers import (
    MAX_KINDS,
    DateReader,
    NumberReader,
    WordReader,
    day_number,
    is_code,
)
from mxrun.io.tables.rows import RowPlaces

MAX_CATEGORIES = 100
"""Distinct words of a column that is a category without being named so."""

# Of a column that has more distinct words than this, most rows have one of their own.
_MIN_UNIQUE = 20
# A column of numbers and words is a category if at least this share of its rows are words.
_MIN_WORDS = 0.05
# Label columns of 0 and 1, as programs write them that have a type for these.
_BOOLEANS = {b"true": b"1", b"false": b"0"}
_LARGEST = float(np.finfo(np.float32).max)


class TableColumns:
    """Readers of the data columns and of the label column.

    as_words: columns of automatic form in which words were found in an earlier pass. readers: of
    the data columns, in their order. notes: for the user, on what `features` decided.
    """

    def __init__(self, layout: TableLayout, form: TableForm, as_words: frozenset[int]) -> None:
        self._layout, self._form = layout, form
        self.words_found: frozenset[int] = frozenset()
        self.notes: list[str] = []
        self.readers = [
            self._reader(column, treatment, as_words)
            for column, treatment in zip(layout.columns, layout.forms, strict=True)
        ]
        self._labels: list[NumberReader | WordReader] = [
            WordReader(form=form.cells)
            if form.texts or column in as_words
            else NumberReader(limit="float64", form=form.cells)
            for column in layout.labels
        ]

    def _reader(
        self, column: int, treatment: ColumnForm, as_words: frozenset[int]
    ) -> NumberReader | WordReader | DateReader:
        cells = treatment.cells or self._form.cells
        if self._form.is_plain:
            dtype = self._form.dtype
            return NumberReader(dtype, limit=dtype, form=cells)
        if isinstance(treatment, DateForm):
            return DateReader(treatment.format, cells)
        if isinstance(treatment, (CategoryForm, TextForm)):
            return WordReader(form=cells)
        if isinstance(treatment, NumberForm):
            return NumberReader(gaps=treatment.missing != "error", form=cells)
        return (
            WordReader(True, cells) if column in as_words else NumberReader(gaps=True, form=cells)
        )

    def add(
        self,
        cells: Sequence[Sequence[bytes]],
        layout: TableLayout,
        *,
        exact: bool,
        has_codes: bool,
    ) -> Iterator[RefusedCells]:
        """Add the cells of a block by column; yields those that are refused.

        layout: that of the file; exact: as of `NumberReader.add`; has_codes: whether there may be
        numbers such as 007 that make words of a column.
        """
        is_exact = exact or has_codes
        done = frozenset() if is_exact else self._add_together(cells, layout.columns)
        for at, column in enumerate(layout.columns):
            if at in done:
                continue
            reader, treatment = self.readers[at], self._layout.forms[at]
            original = self._layout.columns[at]
            if isinstance(reader, (WordReader, DateReader)):
                gaps = reader.add(cells[column])
                if gaps and getattr(treatment, "missing", "") == "error":
                    yield RefusedCells(column, gaps, reader.form)
                continue
            if original in self.words_found:
                continue
            was_empty = reader.is_empty
            bad = reader.add(cells[column], exact)
            is_auto = type(treatment) is ColumnForm and not self._form.is_plain
            are_codes = has_codes and any(map(is_code, map(cell_text, cells[column])))
            if is_auto and (bad or are_codes):
                self._to_words(at, was_empty, cells[column])
            elif bad:
                yield RefusedCells(column, bad, reader.form)
        for at, column in enumerate(layout.labels):
            yield from self._add_label(at, cells[column], column, exact)

    def _add_together(
        self, cells: Sequence[Sequence[bytes]], columns: Sequence[int]
    ) -> frozenset[int]:
        """Add the columns that hold numbers alone; returns their places among the data columns.

        Checking each of many columns by itself takes ten times as long.
        """
        places: list[int] = []
        values: list[list[float]] = []
        for at, (reader, column) in enumerate(zip(self.readers, columns, strict=True)):
            if (
                isinstance(reader, NumberReader)
                and reader.form.reads_as_python
                and self._layout.columns[at] not in self.words_found
            ):
                with suppress(ValueError):
                    values.append(list(map(float, cells[column])))
                    places.append(at)
        matrix = np.array(values).reshape(len(places), len(cells[0]))
        with np.errstate(over="ignore"):
            kept = np.flatnonzero(np.isfinite(matrix.astype(np.float32)).all(1)).tolist()
        for row in kept:
            reader = self.readers[places[row]]
            assert isinstance(reader, NumberReader)
            reader.take(matrix[row])
        return frozenset(places[row] for row in kept)

    def add_numbers(self, rows: Sequence[bytes], layout: TableLayout) -> bool:
        """Add rows that hold numbers alone in the columns that are read; False if they do not.

        NumPy's parser takes half the time of `add`. All rows must have the layout's width.
        """
        if self._has_words or not self._read_as_python:
            return False
        columns = [*layout.columns, *layout.labels]
        lines = [row.decode("latin-1") for row in rows]
        divider = layout.divider.decode("latin-1")
        try:
            values = np.loadtxt(lines, delimiter=divider, usecols=columns, comments=None, ndmin=2)
        except ValueError:
            return False
        readers = [*self.readers, *self._labels]
        numbers = [reader for reader in readers if isinstance(reader, NumberReader)]
        if first_unrepresentable(values, "float32") is not None:
            return False
        for at, reader in enumerate(numbers):
            reader.take(values[:, at])
        return True

    @property
    def _read_as_python(self) -> bool:
        return all(each.form.reads_as_python for each in (*self.readers, *self._labels))

    @property
    def _has_words(self) -> bool:
        readers = [*self.readers, *self._labels]
        return bool(self.words_found) or any(
            isinstance(each, (WordReader, DateReader)) for each in readers
        )

    def _to_words(self, at: int, was_empty: bool, cells: Sequence[bytes]) -> None:
        """Read a column as words from now on, or, if it has numbers already, once more."""
        if was_empty:
            self.readers[at] = words = WordReader(True, self.readers[at].form)
            words.add(cells)
        else:
            self.words_found |= {self._layout.columns[at]}

    def _add_label(
        self, at: int, cells: Sequence[bytes], column: int, exact: bool
    ) -> Iterator[RefusedCells]:
        label, original = self._labels[at], self._layout.labels[at]
        if len(self._labels) > 1:
            cells = [_BOOLEANS.get(cell.strip().lower(), cell) for cell in cells]
        if original in self.words_found:
            return
        if isinstance(label, WordReader):
            gaps = label.add(cells)
            bad = [] if self._form.empty_labels else gaps
        else:
            was_empty = label.is_empty
            bad = label.add(cells, exact)
            if self._form.words and any(self._form.cells.is_word(cells[row]) for row in bad):
                if not was_empty:
                    self.words_found |= {original}
                    return
                self._labels[at] = words = WordReader(form=self._form.cells)
                bad = words.add(cells)
        if bad:
            yield RefusedCells(column, bad, self._form.cells, "label")

    def labels(self) -> tuple[NDArray[np.float64] | None, tuple[str, ...]]:
        """Return the labels, float64 [rows] or [rows, columns], and the classes that are words."""
        numbers = [each.numbers() for each in self._labels if isinstance(each, NumberReader)]
        if len(numbers) > 1:
            return np.stack(numbers, 1), ()
        if numbers or not self._labels or self._form.texts:
            return (numbers[0] if numbers else None), ()
        codes, words = self._label_words(as_categories=False)
        classes = tuple(sorted(words))
        number_of = {word: number for number, word in enumerate(classes)}
        order = np.array([number_of[word] for word in words], np.float64)
        return order[codes], classes

    def label_texts(self) -> list[str]:
        """Return the label of each row as text, of a form that reads texts; "" if missing."""
        codes, words = self._label_words(as_categories=True)
        texts = [*words, ""]
        return [texts[code] for code in codes.tolist()]

    def _label_words(self, as_categories: bool) -> tuple[NDArray[np.int32], tuple[str, ...]]:
        (label,) = self._labels
        assert isinstance(label, WordReader)
        return label.words(as_categories)

    def values(self) -> NDArray[Any]:
        """Return all data columns as one array [rows, columns]; they are gone afterwards."""
        found: NDArray[Any] | None = None
        for at, reader in enumerate(self.readers):
            assert isinstance(reader, NumberReader)
            column = reader.numbers()
            if found is None:
                found = np.empty((len(column), len(self.readers)), column.dtype)
            found[:, at] = column
        assert found is not None
        return found

    def features(self, places: RowPlaces) -> FeatureTable:
        """Return the data columns with what they hold.

        Raises UserError for columns of which that cannot be decided, and for words that are no
        dates.
        """
        columns: list[FeatureColumn] = []
        problems: list[Diagnostic] = []
        for at, reader in enumerate(self.readers):
            number, treatment = self._layout.columns[at], self._layout.forms[at]
            name = self._layout.name(number)
            mixed = ""
            if isinstance(reader, WordReader) and type(treatment) is ColumnForm:
                mixed = _mixed(reader)
            try:
                columns.append(_feature(reader, treatment, name, number, places))
                if mixed:
                    self.notes.append(f"{columns[-1]} is read as a category: {mixed}")
            except UserError as error:
                problems += error.diagnostics
        if problems:
            raise UserError(problems)
        return FeatureTable(tuple(columns), cells=self._form.cells)


def _feature(
    reader: NumberReader | WordReader | DateReader,
    treatment: ColumnForm,
    name: str,
    number: int,
    places: RowPlaces,
) -> FeatureColumn:
    if isinstance(reader, NumberReader):
        own = treatment.cells
        form = treatment if isinstance(treatment, NumberForm) else NumberForm(cells=own)
        return FeatureColumn(name, number, form, reader.numbers())
    if isinstance(reader, DateReader):
        assert isinstance(treatment, DateForm)
        column = FeatureColumn(name, number, treatment, reader.numbers())
        if reader.wrong is not None:
            raise _no_date(column, treatment, places, *reader.wrong)
        return column
    if not isinstance(treatment, (CategoryForm, TextForm)):
        treatment = _decided(reader, treatment.cells, name, number, places)
        if isinstance(treatment, DateForm):
            return _dates(reader, treatment, name, number, places)
    codes, words = reader.words(as_categories=not isinstance(treatment, TextForm))
    return FeatureColumn(name, number, treatment, codes=codes, words=words)


def _dates(
    reader: WordReader, form: DateForm, name: str, number: int, places: RowPlaces
) -> FeatureColumn:
    """Return a column of dates. Raises UserError for the first cell that is none."""
    cells = reader.cells()
    days = np.array([day_number(cell_text(cell), form.format) for cell in cells])
    wrong = [
        cells[at] for at in np.flatnonzero(np.isnan(days)) if not reader.form.is_gap(cells[at])
    ]
    if wrong:
        row = reader.first(wrong)
        column = FeatureColumn(name, number, form)
        raise _no_date(column, form, places, row, _first_of(reader, wrong, row))
    return FeatureColumn(name, number, form, reader.numbers(days))


def _no_date(
    column: FeatureColumn, form: DateForm, places: RowPlaces, row: int, cell: bytes
) -> UserError:
    expected = f"a date of the form {form.format}" if form.format else "a date as 2024-05-31"
    problem = f"{places.where(row, column.number)}: {column}: not a date"
    hint = "write its form: {date: {format: %d.%m.%Y}}"
    got = repr(cell_text(cell)[:40])
    return UserError(Diagnostic(problem, None, expected, got, hint=hint))


def _first_of(reader: WordReader, wanted: Sequence[bytes], row: int) -> bytes:
    """Return the cell among `wanted` that stands in a row."""
    return next(cell for cell in wanted if reader.first([cell]) == row)


def _decided(
    reader: WordReader, own: CellForm | None, name: str, number: int, places: RowPlaces
) -> ColumnForm:
    """Return the form of a column of words without one: a category, or a date.

    own: the form of its cells, if it is not the table's. Raises UserError if it has too many
    distinct words, or is rather a column of numbers.
    """
    column = FeatureColumn(name, number, CategoryForm())
    key = f"{name!r}" if name else f'"{number}"'
    cells = [cell for cell in reader.cells() if not reader.form.is_gap(cell)]
    words = [cell for cell in cells if not _is_number(cell, reader.form)]
    numeric = [cell for cell in cells if _is_number(cell, reader.form)]
    rows = reader.rows
    are_few = numeric and reader.count(words) < _MIN_WORDS * rows
    if not reader.is_over and (are_few or not any(map(reader.form.is_word, words))):
        row = reader.first(words)
        got = repr(cell_text(_first_of(reader, words, row))[:40])
        problem = f"{places.where(row, number)}: {column}: not a number"
        expected = f"a finite number, as in {reader.count(numeric):,} of {rows:,} rows"
        hint = f"correct this cell, or write columns: {{{key}: category}}"
        raise UserError(Diagnostic(problem, None, expected, got, hint=hint))
    if words and all(has_decimal_comma(cell_text(cell)) for cell in words):
        row = reader.first(words)
        got = repr(cell_text(_first_of(reader, words, row))[:40])
        problem = f"{places.where(row, number)}: {column}: not a number"
        hint = f"{COMMA_HINT}; or write columns: {{{key}: category}}"
        raise UserError(Diagnostic(problem, None, "a finite number", got, hint=hint))
    kinds = len(cells)
    if kinds <= MAX_CATEGORIES and not (kinds > _MIN_UNIQUE and 2 * kinds > rows):
        return CategoryForm(cells=own)
    if not numeric and all(map(_is_day, words)):
        return DateForm(cells=own)
    some = f"more than {MAX_KINDS:,}" if reader.is_over else f"{kinds:,}"
    examples = ", ".join(repr(cell_text(cell)[:20]) for cell in cells[:3])
    problem = f"{places.where(0, number)}: {column} has {some} different words in {rows:,} rows"
    expected = f"at most {MAX_CATEGORIES}, and some that are repeated, for a category"
    hint = (
        f"leave it out with columns: {{{key}: ignore}}, keep the frequent ones with "
        f"columns: {{{key}: {{category: {{min_count: 10}}}}}}, or read it as {{{key}: text}}"
    )
    raise UserError(Diagnostic(problem, None, expected, examples, hint=hint))


def _mixed(reader: WordReader) -> str:
    """Return a description of words among numbers; empty if a column has not both."""
    cells = [cell for cell in reader.cells() if not reader.form.is_gap(cell)]
    words = list(filter(reader.form.is_word, cells))
    if not words or len(words) == len(cells):
        return ""
    some = f"{reader.count(words):,} of {reader.rows:,} cells are words"
    return f"{some}, such as {cell_text(words[0])[:20]!r}, and the others numbers"


def _is_number(cell: bytes, form: CellForm) -> bool:
    """Return whether a cell is a number that float32 holds, unlike inf or 1e300."""
    return abs(form.number(cell)) <= _LARGEST


def _is_day(cell: bytes) -> bool:
    return not math.isnan(day_number(cell_text(cell), None))
