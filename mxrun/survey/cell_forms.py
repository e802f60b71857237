"""Survey of a table's cells: how its numbers are written, and which words mean missing values."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from mxrun.base.dataclass import dataclass
from mxrun.base.near_names import listed
from mxrun.config.dump import flow
from mxrun.io.tables.cells import USUAL_CELLS, CellForm, DecimalSign, ThousandsSign
from mxrun.io.tables.columns import TableOutline, outline_table
from mxrun.io.tables.forms import ColumnForm
from mxrun.io.tables.layout import TableForm
from mxrun.io.tables.readers import TableColumn

# A column with fewer different words beside - has it as one of them.
_MIN_KINDS = 2
# Columns that are named together.
_MAX_ALIKE = 8
# Words that mean a missing value in tables of programs and of people, in lower case.
_GAP_WORDS = frozenset(
    (
        *("-", "--", "---", "\u2013", "\u2014", ".", "..", "n.a.", "n. a.", "k.a.", "k. a.", "nil"),
        *("missing", "unknown", "unbekannt", "not available", "not applicable", "keine angabe"),
        *("#value!", "#ref!", "#div/0!", "#num!", "#name?", "\\n", "nat", "(null)", "void"),
    )
)
_DECIMALS: tuple[DecimalSign, ...] = (".", ",")
_SIGNS: tuple[ThousandsSign | None, ...] = (None, ",", ".", " ", "'")
# Currencies, which may stand before or after a number; other units stand after it.
_CURRENCY = r"[$\u20ac\u00a3\u00a5\u20b9]|USD|EUR|GBP|CHF|JPY|INR|CNY"
_WITH_UNIT = re.compile(
    rf"(?P<before>{_CURRENCY})?[+-]?\s*(?:{_CURRENCY})?\s*[0-9][0-9.,'\u2019\s]*"
    rf"(?P<after>%|{_CURRENCY}|[^\W\d_]{{1,4}}(?:/[^\W\d_]{{1,3}})?)?"
)
# Different numbers with the same unit, which say that it is one and no part of a name.
_MIN_WITH_UNIT = 3
_GROUPED = re.compile(r"[+-]?[1-9][0-9]{0,2}(?:[.,][0-9]{3})+")

Pair = tuple[DecimalSign, ThousandsSign | None]
"""Signs of a number: before its decimals, and between its thousands."""


@dataclass(frozen=True)
class _CellChange:
    """Form of cells under which a column holds numbers, and an example of its words."""

    cells: CellForm
    column: TableColumn
    text: str

    @property
    def pair(self) -> Pair:
        return self.cells.decimal, self.cells.thousands

    def describe(self, needed: Mapping[str, object], key: str) -> Iterator[str]:
        """Yield what is decided, with its keys.

        needed: the keys without those of other columns; key: that of the column, if it has a form
        of its own.
        """
        found = dict(needed)
        missing = found.pop("missing", None)
        if missing is not None:
            gaps = [text for text in self.column.texts if text.lower() in _GAP_WORDS]
            named = _named({"missing": missing}, key)
            yield f"{listed([*map(repr, gaps)])} in {self.column} means a missing value ({named})"
        if not found:
            return
        text = f"{self.text!r} in {self.column} is read as {_value(self.text, self.cells)}"
        yield f"{text} ({_named(found, key)}){self._bare()}{self._doubt()}"

    def _bare(self) -> str:
        """Return which numbers of the column have no %, if some have."""
        if not self.cells.percent:
            return ""
        bare = [text for text in self.column.kinds if "%" not in text]
        bare = [text for text in bare if not self.cells.is_gap(text.encode())]
        count = sum(self.column.kinds[text] for text in bare)
        return f"; {count:,} of its numbers have no % and stay, such as {bare[0]}" if bare else ""

    def _doubt(self) -> str:
        """Return how else the numbers may be read if all have groups of three digits alone."""
        sign = self.cells.thousands
        texts = [text for text in self.column.texts if sign and sign in text]
        if sign not in (",", ".") or not texts or not all(map(_GROUPED.fullmatch, texts)):
            return ""
        other = CellForm(decimal=sign, units=self.cells.units, percent=self.cells.percent)
        return f"; it is {_value(self.text, other)} with decimal: {flow(sign)} alone"


def _value(text: str, cells: CellForm) -> str:
    return repr(cells.number(text.encode())).removesuffix(".0")


def _difference(before: CellForm, cells: CellForm) -> dict[str, object]:
    """Return the keys of a form that differ from another one."""
    pairs = {key: (getattr(before, key), getattr(cells, key)) for key in CellForm.model_fields}
    return {key: now for key, (then, now) in pairs.items() if then != now}


def written_cells(cells: CellForm) -> dict[str, object]:
    """Return the form of a column's cells as a config writes it."""
    found = _difference(USUAL_CELLS, cells) or {"decimal": cells.decimal}
    return {key: list(v) if isinstance(v, tuple) else v for key, v in found.items()}


def _named(keys: Mapping[str, object], column: str) -> str:
    """Return keys as a config writes them; column: that of the column whose they are, if any."""
    values = {key: list(v) if isinstance(v, tuple) else v for key, v in keys.items()}
    if column:
        return f"columns: {flow({column: {'number': {'cells': values}}})}"
    return ", ".join(f"{key}: {flow(value)}" for key, value in values.items())


def survey_cells(
    paths: Sequence[Path], form: TableForm, own: Collection[str], labels: Collection[int] = ()
) -> tuple[TableOutline, tuple[str, ...]]:
    """Return the outline of a table under the form of cells by which most columns are numbers.

    own: the keys of this form that the user has given, which stay. labels: numbers of columns that
    must have the table's form; others may have one of their own, which is in the `columns` of the
    outline's form. Returns also what was decided, with its keys.
    """
    return _CellSurvey(paths, replace(form, columns={}), own, labels).result()


class _CellSurvey:
    def __init__(
        self, paths: Sequence[Path], form: TableForm, own: Collection[str], labels: Collection[int]
    ) -> None:
        self._paths, self._form, self._labels = paths, form, labels
        self._first = outline_table(paths, form)
        self._possible = {
            column.number: changes
            for column in self._first.columns
            if column.words and (changes := [*self._changes_beside(column, own)])
        }

    def _changes_beside(self, column: TableColumn, own: Collection[str]) -> Iterator[_CellChange]:
        cells = self._form.cells
        for change in _changes(column, cells):
            if not set(_difference(cells, change.cells)) & set(own):
                yield change

    def result(self) -> tuple[TableOutline, tuple[str, ...]]:
        """Return the outline, and what was decided."""
        if not self._possible:
            return self._first, ()
        usual = self._form.cells.decimal, self._form.cells.thousands
        pair = self._most_frequent(usual)
        outline, chosen = self._under(pair, ())
        own = {number for number, change in chosen.items() if change.pair != pair}
        own |= set(self._hurt(outline, usual))
        if self._is_no_gap():
            # A sign such as - stands for a value in another column.
            own |= {number for number, change in chosen.items() if change.cells.missing}
        own -= set(self._labels)
        if own:
            outline, chosen = self._under(pair, own)
        if _numbers(outline) <= _numbers(self._first):
            return self._first, ()
        return outline, tuple(self._said(outline, chosen, own))

    def _most_frequent(self, usual: Pair) -> Pair:
        """Return the signs of most columns that need others than the usual ones.

        Of several, those that change least.
        """
        for number in self._labels:
            changes = self._possible.get(number)
            return changes[0].pair if changes else usual
        pairs = [dict.fromkeys(each.pair for each in some) for some in self._possible.values()]
        votes = Counter(pair for some in pairs if usual not in some for pair in some)
        changed = {pair: sum(a != b for a, b in zip(pair, usual, strict=True)) for pair in votes}
        return max(votes, key=lambda pair: (votes[pair], -changed[pair]), default=usual)

    def _under(
        self, pair: Pair, own: Collection[int]
    ) -> tuple[TableOutline, dict[int, _CellChange]]:
        """Return the outline with these signs, and the change of each column.

        own: numbers of the columns that have a form of their own.
        """
        chosen = {
            number: next(
                (each for each in changes if each.pair == pair and number not in own), changes[0]
            )
            for number, changes in self._possible.items()
        }
        of_table = [each.cells for n, each in chosen.items() if n not in own and each.pair == pair]
        cells = CellForm(
            decimal=pair[0],
            thousands=pair[1],
            percent=self._form.cells.percent or any(each.percent for each in of_table),
            units=tuple(dict.fromkeys(unit for each in of_table for unit in each.units)),
            missing=tuple(dict.fromkeys(word for each in of_table for word in each.missing)),
        )
        if not of_table:
            cells = self._form.cells
        columns = {
            self._first.key(self._first.columns[number]): ColumnForm(
                cells=chosen[number].cells if number in chosen else self._form.cells
            )
            for number in own
        }
        return outline_table(self._paths, replace(self._form, cells=cells, columns=columns)), chosen

    def _hurt(self, outline: TableOutline, usual: Pair) -> Iterator[int]:
        """Yield the columns of numbers that a form makes words of, or a thousand times larger.

        Where all numbers have a point before three digits, these are rather decimals. usual: the
        signs of numbers without the form.
        """
        for before, now in zip(self._first.columns, outline.columns, strict=True):
            changes = self._possible.get(before.number, ())
            if before.words and usual not in [each.pair for each in changes]:
                continue
            is_point = np.array_equal(now.numbers, np.round(1000 * before.numbers), equal_nan=True)
            if now.words or (is_point and np.nanmax(np.abs(before.numbers), initial=0) > 0):
                yield before.number

    def _is_no_gap(self) -> bool:
        """Return whether a word that means a missing value elsewhere is a value in some column."""
        words = {word for some in self._possible.values() for word in some[0].cells.missing}
        words -= set(self._form.cells.missing)
        for column in self._first.columns:
            others = [kind for kind in column.kinds if kind not in words]
            is_sign = len(others) < _MIN_KINDS or "+" in others
            if column.number not in self._possible and len(others) < len(column.kinds) and is_sign:
                return True
        return False

    def _needed(self, change: _CellChange) -> dict[str, object]:
        """Return the keys of a change without those that other columns need."""
        before = self._form.cells
        every = _difference(before, change.cells)
        least = _difference(before, self._possible[change.column.number][0].cells)
        return least if least.items() <= every.items() else every

    def _said(
        self,
        outline: TableOutline,
        chosen: Mapping[int, _CellChange],
        own: Collection[int],
    ) -> Iterator[str]:
        """Yield what was decided, a sentence for each column; of those written alike, for one."""
        lines: dict[str, list[str]] = {}
        alike: dict[str, list[str]] = {}
        for before, now in zip(self._first.columns, outline.columns, strict=True):
            change, key = chosen.get(before.number), outline.key(now)
            kind, found = "", list[str]()
            if change is not None and not now.words:
                needed = self._needed(change)
                found = [*change.describe(needed, key if now.number in own else "")]
                kind = str(needed)
            elif now.number in own:
                point = _named({"decimal": "."}, key)
                found = [f"{now} has a point before its decimals, unlike others ({point})"]
            elif not before.words and not now.words and outline.form.cells.thousands == ".":
                found = [*_grouped(before, now, key)]
            is_plain = kind and now.number not in own and not any("; " in each for each in found)
            kind = kind if is_plain else key
            if kind in lines:
                alike.setdefault(kind, []).append(str(now))
            elif found:
                lines[kind] = found
        for kind, (*first, last) in lines.items():
            yield from first
            more = f"; so are {listed(alike[kind], _MAX_ALIKE)}" if kind in alike else ""
            yield f"{last}{more}"


def _grouped(before: TableColumn, now: TableColumn, key: str) -> Iterator[str]:
    """Yield a doubt on numbers that changed as their points are taken for signs of thousands."""
    changed = np.flatnonzero(before.numbers < now.numbers)
    if len(changed):
        point, number = before.numbers[changed[0]], now.numbers[changed[0]]
        other = _named({"decimal": "."}, key)
        yield f"'{point:.3f}' in {now} is read as {number:.0f}; it is {point:g} with {other}"


def _numbers(outline: TableOutline) -> int:
    return sum(not each.words for each in outline.columns)


def _changes(column: TableColumn, cells: CellForm) -> Iterator[_CellChange]:
    """Yield the changes under which all words of a column are numbers or missing values."""
    gaps = [text for text in column.texts if text.lower() in _GAP_WORDS]
    words = [text for text in column.texts if text.lower() not in _GAP_WORDS]
    every = [text for text in column.kinds or words if text.lower() not in _GAP_WORDS]
    if len(every) <= len(gaps):
        return
    base = _given(cells)
    if gaps:
        base["missing"] = tuple(dict.fromkeys([*cells.missing, *gaps]))
    base |= _units(words, cells)
    for decimal in _DECIMALS:
        for thousands in _SIGNS:
            if decimal == thousands:
                continue
            are_groups = bool(words) and all(map(_GROUPED.fullmatch, words))
            if decimal == "," and thousands is None and are_groups:
                # 1,234 is rather a thousand than one, unless other columns say otherwise.
                continue
            changed = CellForm(**base | {"decimal": decimal, "thousands": thousands})
            if not any(math.isnan(changed.number(text.encode())) for text in every):
                yield _CellChange(changed, column, [*words, *gaps][0])


def _given(cells: CellForm) -> dict[str, Any]:
    return {key: getattr(cells, key) for key in CellForm.model_fields}


def _units(words: Sequence[str], cells: CellForm) -> dict[str, object]:
    """Return `percent` or `units` if all words are numbers with the same text before or after."""
    found = [_WITH_UNIT.fullmatch(word) for word in words]
    units = {part for each in found if each for part in each.groups() if part}
    if not all(found) or len(units) != 1:
        return {}
    (unit,) = units
    if unit == "%":
        return {} if cells.percent else {"percent": True}
    is_unit = len(words) >= _MIN_WITH_UNIT or re.fullmatch(_CURRENCY, unit)
    return {"units": (*cells.units, unit)} if is_unit and unit not in cells.units else {}
