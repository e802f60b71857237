"""Readers of single columns: cells become numbers, or codes of words, block by block."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import field
from datetime import datetime, timezone
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mxrun.base.dataclass import dataclass
from mxrun.io.convert import first_unrepresentable
from mxrun.io.dataset.classes import class_key
from mxrun.io.tables.cells import USUAL_CELLS, CellForm, category_text, cell_text
from mxrun.io.tables.features import MISSING
from mxrun.io.tables.rows import RowPlaces

MAX_KINDS = 10_000
"""Distinct words after which a column that is no category by name is given up."""

_SECONDS = 86_400


@dataclass(frozen=True, eq=False)
class TableColumn:
    """Column of a table.

    number: from 0. name: empty without a header. numbers: float64 [rows], NaN for cells that are
    missing or not finite numbers. gaps: number of missing cells, the first at `gap_place`, its file
    and line. words: number of cells that are neither missing nor numbers; `word` is the first of
    them. kinds: cells of each distinct text, numbers among words included; empty if all are
    numbers, or if there are more than `MAX_KINDS`. texts: the distinct words, of these the first
    ones. codes: whether a number begins with 0 before another digit.
    """

    number: int
    name: str
    numbers: NDArray[np.float64]
    gaps: int
    gap_place: str
    words: int = 0
    word: str = ""
    kinds: dict[str, int] = field(default_factory=dict)
    texts: tuple[str, ...] = ()
    codes: bool = False

    @property
    def label(self) -> str | int:
        """The name, or without one the number: how a config refers to the column."""
        return self.name or self.number

    def __str__(self) -> str:
        return repr(self.name) if self.name else f"column {self.number}"


class NumberReader:
    """Reader of numbers as `dtype`, float64 or float32, within the range of `limit`.

    gaps: whether they may be missing, as NaN.
    """

    def __init__(
        self,
        dtype: str = "float64",
        gaps: bool = False,
        limit: str = "float32",
        form: CellForm = USUAL_CELLS,
    ) -> None:
        self._dtype, self._gaps, self._limit, self.form = dtype, gaps, limit, form
        self._parts: list[NDArray[Any]] = []

    def add(self, cells: Sequence[bytes], exact: bool) -> list[int]:
        """Add cells; returns the positions of those that are refused.

        exact: whether a cell of the same rows has an underscore, which `float` accepts.
        """
        is_python = self.form.reads_as_python and not (exact and b"_" in b"".join(cells))
        values = _floats(cells, self.form) if is_python else None
        if values is None:
            values = np.array(list(map(self.form.number, cells)))
        bad: list[int] = []
        if not np.isfinite(values).all():
            odd = np.flatnonzero(~np.isfinite(values)).tolist()
            bad = [at for at in odd if not (self._gaps and self.form.is_gap(cells[at]))]
        if not bad and self._limit == "float32":
            at = first_unrepresentable(np.nan_to_num(values), "float32")
            bad = [] if at is None else [at]
        with np.errstate(over="ignore", invalid="ignore"):
            self.take(values)
        return bad

    def take(self, values: NDArray[np.float64]) -> None:
        """Add numbers that are within the range of the dtype."""
        self._parts.append(np.array(values, self._dtype))

    @property
    def is_empty(self) -> bool:
        """Whether no cell has been added."""
        return not self._parts

    def numbers(self) -> NDArray[Any]:
        """Return all numbers [rows]; the reader is empty afterwards."""
        values = np.concatenate(self._parts) if self._parts else np.empty(0, self._dtype)
        self._parts = []
        return values

    def column(self, number: int, name: str, places: RowPlaces) -> TableColumn:
        """Return the column as it is; the reader is empty afterwards."""
        numbers = self.numbers()
        return TableColumn(number, name, numbers, *_gaps(np.isnan(numbers), places))


def _floats(cells: Sequence[bytes], form: CellForm) -> NDArray[np.float64] | None:
    """Return numbers, NaN for gaps; None if there are other cells, or quotes."""
    forms: tuple[Callable[[], Iterable[bytes]], ...] = (
        lambda: cells,
        lambda: [cell or b"nan" for cell in cells],
        lambda: [b"nan" if form.is_gap(cell) else cell for cell in cells],
    )
    for each in forms:
        with suppress(ValueError):
            return np.array(list(map(float, each())))
    return None


class WordReader:
    """Reader of words by code; `limited`: whether to give up after `MAX_KINDS` distinct ones."""

    def __init__(self, limited: bool = False, form: CellForm = USUAL_CELLS) -> None:
        self.form = form
        self._codes: list[NDArray[np.int32]] = []
        self._known = _Codes(form)
        self._limited = limited
        self.rows = 0

    @property
    def is_over(self) -> bool:
        """Whether there were too many distinct words; codes are not kept then."""
        return self._limited and len(self._known) > MAX_KINDS

    @property
    def kinds(self) -> int:
        """Number of distinct cells so far."""
        return len(self._known)

    def add(self, cells: Sequence[bytes]) -> list[int]:
        """Add cells; returns the positions of those that are missing."""
        self.rows += len(cells)
        if self.is_over:
            return []
        codes = np.array([*map(self._known.__getitem__, cells)], np.int32)
        self._codes.append(codes)
        if self.is_over:
            self._codes = []
        gaps = self._known.gaps
        return np.flatnonzero(np.isin(codes, gaps)).tolist() if gaps else []

    def words(self, as_categories: bool) -> tuple[NDArray[np.int32], tuple[str, ...]]:
        """Return codes int32 [rows], -1 where missing, and the words by code.

        Spellings that look alike are one word; as categories 3.0 and 3 are, too. All are missing if
        there were too many.
        """
        if self.is_over:
            return np.full(self.rows, MISSING, np.int32), ()
        numbers: dict[str, int] = {}
        spelled: dict[str, str] = {}
        codes = np.empty(max(len(self._known), 1), np.int32)
        for at, cell in enumerate(self._known):
            if self.form.is_gap(cell):
                codes[at] = MISSING
                continue
            text = cell_text(cell)
            text = category_text(text) if as_categories else text
            word = spelled.setdefault(class_key(text), text)
            codes[at] = numbers.setdefault(word, len(numbers))
        every = np.concatenate(self._codes) if self._codes else np.empty(0, np.int32)
        self._codes = []
        return codes[every], tuple(numbers)

    def first(self, wanted: Sequence[bytes]) -> int:
        """Return the first row whose cell is one of `wanted`."""
        codes = np.array([self._known[cell] for cell in wanted], np.int32)
        start = 0
        for part in self._codes:
            found = np.flatnonzero(np.isin(part, codes))
            if len(found):
                return start + int(found[0])
            start += len(part)
        return 0

    def count(self, wanted: Sequence[bytes]) -> int:
        """Return the number of rows whose cell is one of `wanted`."""
        codes = np.array([self._known[cell] for cell in wanted], np.int32)
        return sum(int(np.isin(part, codes).sum()) for part in self._codes)

    def cells(self) -> tuple[bytes, ...]:
        """Return the distinct cells."""
        return tuple(self._known)

    def column(self, number: int, name: str, places: RowPlaces) -> TableColumn:
        """Return the column as it is."""
        if self.is_over:
            nothing = np.full(self.rows, np.nan)
            texts = tuple(map(cell_text, filter(self.form.is_word, self._known)))
            word = texts[0] if texts else ""
            return TableColumn(number, name, nothing, 0, "", self.rows, word, texts=texts)
        codes, words = self.words(as_categories=True)
        counts = np.bincount(codes[codes >= 0], minlength=len(words)).tolist()
        values = np.array([*(self.form.number(word.encode()) for word in words), np.nan])
        real = [word for word, value in zip(words, values, strict=False) if math.isnan(value)]
        return TableColumn(
            number,
            name,
            values[codes],
            *_gaps(codes < 0, places),
            sum(count for count, value in zip(counts, values, strict=False) if math.isnan(value)),
            real[0] if real else "",
            dict(zip(words, counts, strict=True)),
            tuple(real),
            any(is_code(word) for word in words),
        )

    def numbers(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return float64 [rows] from a number for each distinct cell."""
        every = np.concatenate(self._codes) if self._codes else np.empty(0, np.int32)
        return values[every]


class DateReader:
    """Reader of dates as days since 1970, float64; NaN where a cell is missing or no date.

    date_format: as of `day_number`. wrong: the first row whose cell is no date, and the cell.
    """

    def __init__(self, date_format: str | None, form: CellForm = USUAL_CELLS) -> None:
        self._format, self.form = date_format, form
        self._parts: list[NDArray[np.float64]] = []
        self._known: dict[bytes, float] = {}
        self._rows = 0
        self.wrong: tuple[int, bytes] | None = None

    def add(self, cells: Sequence[bytes]) -> list[int]:
        """Add cells; returns the positions of those that are missing."""
        days = None if self._format else _iso_days(cells)
        gaps: list[int] = []
        if days is None:
            days = np.array([*map(self._day, cells)])
            odd = np.flatnonzero(np.isnan(days)).tolist()
            gaps = [at for at in odd if self.form.is_gap(cells[at])]
            wrong = next((at for at in odd if not self.form.is_gap(cells[at])), None)
            if wrong is not None and self.wrong is None:
                self.wrong = self._rows + wrong, cells[wrong]
        self._rows += len(cells)
        self._parts.append(days)
        return gaps

    def _day(self, cell: bytes) -> float:
        found = self._known.get(cell)
        if found is None:
            if len(self._known) > MAX_KINDS:
                self._known.clear()
            found = self._known[cell] = day_number(cell_text(cell), self._format)
        return found

    def numbers(self) -> NDArray[np.float64]:
        """Return all days [rows]."""
        return np.concatenate(self._parts)


# Signs of ISO dates, with times to the minute or the second, by position.
_ISO_SIGNS = {4: b"-", 7: b"-", 10: b" T", 13: b":", 16: b":"}
_ISO_SIZES = (10, 16, 19)


def _iso_days(cells: Sequence[bytes]) -> NDArray[np.float64] | None:
    """Return the days of dates such as 2024-05-31 12:30, all of one length; None of others.

    NumPy needs a tenth of the time of `day_number`, whose numbers these are.
    """
    array = np.array(cells)
    size = array.dtype.itemsize
    if size not in _ISO_SIZES:
        return None
    characters = array.view(np.uint8).reshape(-1, size)
    for at in range(size):
        known = np.frombuffer(_ISO_SIGNS.get(at, b"0123456789"), np.uint8)
        if not np.isin(characters[:, at], known).all():
            return None
    try:
        moments = array.astype("datetime64[s]")
    except ValueError:
        return None
    return moments.astype(np.int64) / float(_SECONDS)


def _gaps(are_missing: NDArray[np.bool_], places: RowPlaces) -> tuple[int, str]:
    """Return the number of missing cells, and the place of the first."""
    rows = np.flatnonzero(are_missing)
    return len(rows), places.where(int(rows[0])) if len(rows) else ""


_CODE = re.compile(r"0[0-9]+")


def is_code(text: str) -> bool:
    """Return whether a number begins with 0 before another digit, as codes do: 007."""
    return _CODE.fullmatch(text) is not None


class _Codes(dict[bytes, int]):
    """Code of each cell, in the order of first appearance; gaps: the codes of missing ones."""

    def __init__(self, form: CellForm) -> None:
        super().__init__()
        self._form = form
        self.gaps: list[int] = []

    def __missing__(self, cell: bytes) -> int:
        code = self[cell] = len(self)
        if self._form.is_gap(cell):
            self.gaps.append(code)
        return code


def day_number(text: str, form: str | None) -> float:
    """Return the days from 1970-01-01 to a date, in UTC unless it says otherwise; NaN for none."""
    try:
        if form is None:
            date = datetime.fromisoformat(text.removesuffix("Z"))
        else:
            date = datetime.strptime(text, form)
    except ValueError:
        return math.nan
    if date.tzinfo is None:
        date = date.replace(tzinfo=timezone.utc)
    try:
        return date.timestamp() / _SECONDS
    except (OverflowError, ValueError):
        return math.nan
