"""Encoding of a table's columns as rows of numbers; what it has learned is saved with the run."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import field
from decimal import Decimal
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from mxrun.base.dataclass import dataclass
from mxrun.base.errors import Diagnostic, UserError
from mxrun.base.near_names import listed
from mxrun.base.params import Parameters
from mxrun.io.dataset.classes import class_key
from mxrun.io.files import check_memory
from mxrun.io.tables.cells import USUAL_CELLS, CellForm
from mxrun.io.tables.features import (
    MISSING,
    FeatureColumn,
    FeatureTable,
    categories_of_numbers,
    word_column,
)
from mxrun.io.tables.forms import CategoryForm, ColumnForm, DateForm, NumberForm, TextForm
from mxrun.io.tables.readers import day_number
from mxrun.io.vocabulary.words import words_of

# Number of unknown words of a column that are named.
_MAX_NAMED = 5
_LARGEST = float(np.finfo(np.float32).max)


@dataclass
class ColumnTally:
    """Number of missing and unknown values of a column, and the first unknown words."""

    missing: int = 0
    unknown: int = 0
    words: list[str] = field(default_factory=list)

    def add(self, other: ColumnTally) -> None:
        """Add the counts of further records."""
        self.missing += other.missing
        self.unknown += other.unknown
        self.words = [*dict.fromkeys([*self.words, *other.words])][:_MAX_NAMED]


@dataclass
class Tally:
    """Missing and unknown values by column, of columns that have any."""

    columns: dict[str, ColumnTally] = field(default_factory=dict)

    def add(self, other: Tally) -> None:
        """Add the counts of further records."""
        for name, counts in other.columns.items():
            self.columns.setdefault(name, ColumnTally()).add(counts)

    def to_json(self) -> dict[str, Any]:
        """Return the counts by column."""
        return {
            name: {"missing": each.missing, "unknown": each.unknown, "unknown_words": each.words}
            for name, each in self.columns.items()
        }

    def notes(self, records: str) -> tuple[str, ...]:
        """Return a note for the user; `records` names them. None if nothing was missing."""
        unknown = [
            f"{name} {each.unknown:,} ({', '.join(map(repr, each.words))})"
            for name, each in self.columns.items()
            if each.unknown
        ]
        missing = [
            f"{name} {each.missing:,}" for name, each in self.columns.items() if each.missing
        ]
        texts = [f"categories that training did not have: {listed(unknown)}"] if unknown else []
        texts += [f"missing values: {listed(missing)}"] if missing else []
        return tuple(f"{records}: {text}" for text in texts)


class EncodedColumn(Parameters):
    """Column with what was learned of it from the training records."""

    name: str = Field(description="Its name; empty if the table has no header.")
    number: Annotated[int, Field(ge=0)] = Field(description="Its number in training's table.")
    cells: CellForm | None = Field(
        default=None, description="Form of its numbers and missing values; null: the table's."
    )

    def __str__(self) -> str:
        return self.name or f"column {self.number}"

    @property
    def form(self) -> ColumnForm:
        """The treatment by which other records of the column are read."""
        raise NotImplementedError

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of its numbers in a row."""
        raise NotImplementedError

    def write(
        self, table: FeatureTable, column: FeatureColumn, target: NDArray[np.float32]
    ) -> ColumnTally:
        """Write the selected records [rows, inputs]; returns what was missing or unknown."""
        raise NotImplementedError


class EncodedNumber(EncodedColumn):
    """Number: (value - center) / spread, with `fill` for missing values.

    With `log` sign(x) log(1 + |x|) stands for the value and for `fill`.
    """

    kind: Literal["number", "date"] = Field(description="Whether it is read as a date.")
    format: str | None = Field(default=None, description="Form of the dates; null: ISO 8601.")
    fill: float | None = Field(description="Value for missing ones; null: they are refused.")
    indicator: bool = Field(description="Whether a second number is 1 for missing values.")
    log: bool = Field(description="Whether logarithms are taken.")
    center: float = Field(description="What is subtracted.")
    spread: Annotated[float, Field(gt=0)] = Field(description="What the difference is divided by.")
    of_series: dict[str, tuple[float, float]] = Field(
        default={}, description="Center and spread of series that have their own, by name."
    )

    @property
    def form(self) -> ColumnForm:
        """The treatment by which other records of the column are read."""
        missing: Any = "error" if self.fill is None else "mean"
        if self.kind == "date":
            return DateForm(missing=missing, format=self.format, cells=self.cells)
        return NumberForm(missing=missing, cells=self.cells)

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of its numbers in a row."""
        return (str(self), f"{self} missing") if self.indicator else (str(self),)

    def original(
        self, values: NDArray[Any], series: NDArray[np.str_] | None = None
    ) -> NDArray[np.float64]:
        """Return scaled numbers [records, ...] in the column's own units.

        series: names of the records' series.
        """
        center, spread = self._scale(series, values.ndim)
        found: NDArray[np.float64] = values.astype(np.float64) * spread + center
        if self.log:
            found = np.sign(found) * np.expm1(abs(found))
        return found

    def _scale(self, series: NDArray[np.str_] | None, rank: int) -> tuple[Any, Any]:
        """Return center and spread: one of each, or arrays [records, 1, ...] of this rank."""
        if series is None or not self.of_series:
            return self.center, self.spread
        names, at = np.unique(series, return_inverse=True)
        known = [self.of_series.get(name, (self.center, self.spread)) for name in names.tolist()]
        pairs = np.array(known)[at].reshape(-1, *[1] * (rank - 1), 2)
        return pairs[..., 0], pairs[..., 1]

    def write(
        self, table: FeatureTable, column: FeatureColumn, target: NDArray[np.float32]
    ) -> ColumnTally:
        """Write the selected records [rows, inputs]; returns what was missing."""
        values = table.numbers(column)
        gaps = np.isnan(values)
        missing = int(gaps.sum())
        if missing:
            if self.fill is None:
                problem = f"{self}: {missing} of {len(values)} values are missing"
                raise UserError(Diagnostic(problem, hint="fill the gaps in"))
            values = np.where(gaps, self.fill, values)
        values = logarithm(values) if self.log else values
        center, spread = self._scale(table.names, 1)
        scaled = (values - center) / spread
        target[:, 0] = np.clip(scaled, -_LARGEST, _LARGEST)
        if self.indicator:
            target[:, 1] = gaps
        return ColumnTally(missing)


class EncodedCategory(EncodedColumn):
    """Category: a number for each of `categories`, or with `ordinal` one number, scaled.

    Without `other` an unknown category is all zeros; an ordinal one is 0 before it is scaled.
    """

    kind: Literal["category"] = "category"
    categories: tuple[str, ...] = Field(description="The categories, in order.")
    rare: tuple[str, ...] = Field(default=(), description="Rare categories, which `other` holds.")
    other: bool = Field(description="Whether there is an input for rare and unknown ones.")
    gap: bool = Field(description="Whether there is an input for missing ones.")
    fill: int | None = Field(
        default=None, description="Number of the category for missing ones; null: none of these."
    )
    refuses_gaps: bool = Field(default=False, description="Whether missing ones are refused.")
    ordinal: bool = Field(default=False, description="Whether it is one number.")
    center: float = Field(default=0.0, description="Of an ordinal: what is subtracted.")
    spread: Annotated[float, Field(gt=0)] = Field(
        default=1.0, description="Of an ordinal: what the difference is divided by."
    )

    @property
    def form(self) -> ColumnForm:
        """The treatment by which other records of the column are read."""
        missing: Any = "error" if self.refuses_gaps else "category"
        return CategoryForm(missing=missing, cells=self.cells)

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of its numbers in a row."""
        if self.ordinal:
            return (str(self),)
        more = ["other"] * self.other + ["missing"] * self.gap
        return tuple(f"{self}={each}" for each in (*self.categories, *more))

    def positions(self, words: Sequence[str]) -> NDArray[np.int64]:
        """Return the place of each word among `categories`; -1 for rare ones, -2 for unknown."""
        known = {class_key(word): -1 for word in self.rare}
        known |= {class_key(word): at for at, word in enumerate(self.categories)}
        return np.array([known.get(class_key(word), -2) for word in words], np.int64)

    def write(
        self, table: FeatureTable, column: FeatureColumn, target: NDArray[np.float32]
    ) -> ColumnTally:
        """Write the selected records [rows, inputs]; returns what was missing or unknown."""
        codes = table.codes(column)
        positions = np.append(self.positions(column.words), -3)
        found = positions[codes]
        missing = int((codes == MISSING).sum())
        strange = np.unique(codes[found == -2])
        words = [column.words[code] for code in strange[:_MAX_NAMED].tolist()]
        tally = ColumnTally(missing, int((found == -2).sum()), words)
        if missing and self.refuses_gaps:
            problem = f"{self}: {missing} of {len(codes)} values are missing"
            raise UserError(Diagnostic(problem, hint="fill the gaps in"))
        if self.fill is not None:
            found = np.where(found == -3, self.fill, found)
        if self.ordinal:
            target[:, 0] = (np.maximum(found + 1, 0) - self.center) / self.spread
            return tally
        count = len(self.categories)
        at = np.where(found >= 0, found, -1)
        at = np.where((found == -1) | (found == -2), count if self.other else -1, at)
        at = np.where(found == -3, count + self.other if self.gap else -1, at)
        if self.fill is not None:
            at = np.where(codes == MISSING, self.fill, at)
        rows = np.flatnonzero(at >= 0)
        target[...] = 0
        target[rows, at[rows]] = 1
        return tally


class EncodedText(EncodedColumn):
    """Text: a number for each of `words`, times it occurs x `weights`, divided by the row's norm.

    That is TF-IDF as of scikit-learn's TfidfVectorizer.
    """

    kind: Literal["text"] = "text"
    words: tuple[str, ...] = Field(description="The words, in lower case, sorted.")
    weights: tuple[float, ...] = Field(
        description="Weight of each word: ln((1 + n) / (1 + records with it)) + 1, of n records."
    )

    @property
    def form(self) -> ColumnForm:
        """The treatment by which other records of the column are read."""
        return TextForm(cells=self.cells)

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of its numbers in a row."""
        return tuple(f"{self}:{word}" for word in self.words)

    def write(
        self, table: FeatureTable, column: FeatureColumn, target: NDArray[np.float32]
    ) -> ColumnTally:
        """Write the selected records [rows, inputs]; returns what was missing."""
        codes = table.codes(column)
        places = {word: at for at, word in enumerate(self.words)}
        target[...] = 0
        for row, code in enumerate(codes.tolist()):
            counts = Counter(text_words(column.words[code]) if code != MISSING else ())
            found = {places[word]: count for word, count in counts.items() if word in places}
            values = np.array([self.weights[at] * count for at, count in found.items()])
            if found:
                target[row, [*found]] = values / math.sqrt(math.fsum(values * values))
        return ColumnTally(int((codes == MISSING).sum()))


AnyColumn = Annotated[EncodedNumber | EncodedCategory | EncodedText, Field(discriminator="kind")]


class TableEncoding(Parameters):
    """Encoding of all data columns, in the order of a row."""

    columns: Annotated[tuple[AnyColumn, ...], Field(min_length=1)] = Field(
        description="The columns with what was learned of them."
    )
    cells: CellForm = Field(
        default=USUAL_CELLS, description="Form of numbers and missing values that are texts."
    )

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of all numbers of a row."""
        return tuple(name for column in self.columns for name in column.inputs)

    @property
    def forms(self) -> tuple[ColumnForm, ...]:
        """The treatments by which other tables are read, in the order of the columns."""
        return tuple(column.form for column in self.columns)

    @property
    def source_columns(self) -> tuple[str, ...] | tuple[int, ...]:
        """Names of the columns in a table, or their numbers if they have no names."""
        if all(column.name for column in self.columns):
            return tuple(column.name for column in self.columns)
        return tuple(column.number for column in self.columns)

    def encode(self, table: FeatureTable, where: str) -> tuple[NDArray[np.float32], Tally]:
        """Return the selected records as rows, float32 [records, inputs], and what was missing.

        Raises UserError if the table has other columns; `where` names it.
        """
        if len(table.columns) != len(self.columns):
            problem = f"{where}: the table has other columns than training's"
            expected = f"{len(self.columns)} columns: {listed([*map(str, self.columns)])}"
            raise UserError(Diagnostic(problem, None, expected, f"{len(table.columns)} columns"))
        widths = [len(column.inputs) for column in self.columns]
        records = len(table)
        check_memory(where, 4 * records * sum(widths))
        rows = np.empty((records, sum(widths)), np.float32)
        tally, start = Tally(), 0
        for column, source, width in zip(self.columns, table.columns, widths, strict=True):
            counts = column.write(table, _as_read(column, source), rows[:, start : start + width])
            if counts.missing or counts.unknown:
                tally.columns[str(column)] = counts
            start += width
        return rows, tally

    def encode_array(self, array: NDArray[Any], where: str) -> tuple[NDArray[np.float32], Tally]:
        """Return an array [records, columns] of numbers, words or both as rows, as `encode` does.

        None, NaN and texts that mean a missing value in a file are missing.
        """
        array = array[np.newaxis] if array.ndim == 1 else array
        if array.ndim != 2 or array.shape[1] != len(self.columns):
            problem = f"{where}: does not have the columns of training's table"
            expected = f"[records, {len(self.columns)}]: {listed([*map(str, self.columns)])}"
            raise UserError(Diagnostic(problem, None, expected, str(list(array.shape))))
        columns = [
            _of_array(column, array[:, at], where, column.cells or self.cells)
            for at, column in enumerate(self.columns)
        ]
        return self.encode(FeatureTable(tuple(columns)), where)


def encoding_differences(then: TableEncoding | None, now: TableEncoding | None) -> list[str]:
    """Return what differs in two encodings, one line for each column."""
    if then is None or now is None:
        return [] if then is now else ["columns: encoded in one of both runs only"]
    before = {str(column): column for column in then.columns}
    after = {str(column): column for column in now.columns}
    if [*before] != [*after]:
        return [f"columns: {listed([*before])} then, {listed([*after])} now"]
    found = []
    for name, column in before.items():
        pair = column.model_dump(), after[name].model_dump()
        keys = [key for key in pair[0] if pair[0][key] != pair[1].get(key)]
        found += [
            f"column {name}: {key} {pair[0][key]} then, {pair[1].get(key)} now" for key in keys[:1]
        ]
    return found


def text_words(text: str) -> list[str]:
    """Return the words of a text in lower case, without marks."""
    return [word for word in words_of(text.lower(), True) if word[0].isalnum() or word[0] == "_"]


def logarithm(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return sign(x) log(1 + |x|)."""
    result: NDArray[np.float64] = np.copysign(np.log1p(np.abs(values)), values)
    return result


def _as_read(column: EncodedColumn, source: FeatureColumn) -> FeatureColumn:
    """Return a column of numbers as categories if it is one of categories."""
    if isinstance(column, EncodedCategory) and source.numbers is not None:
        about = (source.name, source.number, column.form)
        return categories_of_numbers(*about, source.numbers)
    if isinstance(column, EncodedNumber) and source.numbers is None:
        problem = f"{column}: has words, but training had numbers"
        raise UserError(Diagnostic(problem, None, "a column of numbers", listed(source.words)))
    return source


def _of_array(
    column: EncodedColumn, values: NDArray[Any], where: str, cells: CellForm
) -> FeatureColumn:
    """Return one column of an array; cells: form of numbers that are texts."""
    about = (column.name, column.number, column.form)
    if values.dtype.kind in "fiub" and not isinstance(column, EncodedText):
        numbers = values.astype(np.float64)
        endless = np.flatnonzero(np.isinf(numbers))
        if len(endless):
            problem = f"{where}: record {endless[0]}: {column}: not a finite number"
            raise UserError(Diagnostic(problem, None, "a number", str(numbers[endless[0]])))
        if isinstance(column, EncodedCategory):
            return categories_of_numbers(*about, numbers)
        return FeatureColumn(*about, numbers)
    if values.dtype.kind == "M":
        values = values.astype("datetime64[us]")
    every = [None if _is_missing(value, cells) else value for value in values.tolist()]
    if not isinstance(column, EncodedNumber):
        return word_column(*about, [None if each is None else str(each) for each in every])
    numbers = np.array([_number(each, column, cells) for each in every])
    for at in np.flatnonzero(~np.isfinite(numbers)).tolist():
        if every[at] is not None:
            problem = f"{where}: record {at}: {column}: not a {column.kind}"
            expected = column.format or {"date": "a date as 2024-05-31"}.get(
                column.kind, "a number"
            )
            raise UserError(Diagnostic(problem, None, expected, repr(every[at])[:40]))
    return FeatureColumn(*about, numbers)


def _number(value: object, column: EncodedNumber, cells: CellForm) -> float:
    """Return the number of a value; NaN if it has none. Numbers for dates are days since 1970."""
    if value is None:
        return math.nan
    # What is a number already has no form of a text: the point of 1.234 stands before decimals.
    if isinstance(value, (int, float, Decimal, np.number)):
        try:
            return float(value)
        except (OverflowError, TypeError, ValueError):
            return math.inf
    if column.kind == "date":
        return day_number(str(value), column.format if isinstance(value, str) else None)
    return cells.number(str(value).encode())


def _is_missing(value: object, cells: CellForm) -> bool:
    if isinstance(value, str):
        return cells.is_gap(value.encode(errors="surrogatepass"))
    return value is None or value != value
