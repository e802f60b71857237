"""Survey of a table's cells: how its numbers are written, and which words mean missing values."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from mxrun.base.dataclass import dataclass
from mxrun.base.near_names import listed
from mxrun.config.dump import flow
from mxrun.io.tables.cells import CellForm
from mxrun.io.tables.columns import TableOutline, outline_table
from mxrun.io.tables.layout import TableForm
from mxrun.io.tables.readers import TableColumn

# Passes over a table, each after something was learned of its cells.
_MAX_PASSES = 6
# Words that mean a missing value in tables of programs and of people, in lower case.
_GAP_WORDS = frozenset(
    (
        *("-", "--", "---", "\u2013", "\u2014", ".", "..", "n.a.", "n. a.", "k.a.", "k. a.", "nil"),
        *("missing", "unknown", "unbekannt", "not available", "not applicable", "keine angabe"),
        *("#value!", "#ref!", "#div/0!", "#num!", "#name?", "\\n", "nat", "(null)", "void"),
    )
)
_SIGNS = (None, ",", ".", " ", "'")
# Currencies, which may stand before or after a number; other units stand after it.
_CURRENCY = r"[$\u20ac\u00a3\u00a5\u20b9]|USD|EUR|GBP|CHF|JPY|INR|CNY"
_WITH_UNIT = re.compile(
    rf"(?P<before>{_CURRENCY})?[+-]?\s*(?:{_CURRENCY})?\s*[0-9][0-9.,'\u2019\s]*"
    rf"(?P<after>%|{_CURRENCY}|[^\W\d_]{{1,4}}(?:/[^\W\d_]{{1,3}})?)?"
)
# Different numbers with the same unit, which say that it is one and no part of a name.
_MIN_WITH_UNIT = 3
_GROUPED = re.compile(r"[+-]?[1-9][0-9]{0,2}(?:[.,][0-9]{3})+")

Keys = tuple[tuple[str, object], ...]


@dataclass(frozen=True)
class _CellChange:
    """Keys of the form of cells that make numbers of a column, and an example of its words."""

    keys: Keys
    column: TableColumn
    text: str

    def describe(self, cells: CellForm) -> Iterator[str]:
        """Yield what is decided, and the keys; cells: the form with them."""
        keys = dict(self.keys)
        if "missing" in keys:
            gaps = [text for text in self.column.texts if text.lower() in _GAP_WORDS]
            named = f"missing: {flow(list(cells.missing))}"
            yield f"{listed([*map(repr, gaps)])} in {self.column} means a missing value ({named})"
            del keys["missing"]
        if not keys:
            return
        written = ", ".join(
            f"{key}: {flow(list(value) if isinstance(value, tuple) else value)}"
            for key, value in keys.items()
        )
        text = f"{self.text!r} in {self.column} is read as {_value(self.text, cells)} ({written})"
        yield f"{text}{self._doubt(cells)}"

    def _doubt(self, cells: CellForm) -> str:
        """Return how else the numbers may be read if all have groups of three digits alone."""
        sign = cells.thousands
        texts = [text for text in self.column.texts if sign and sign in text]
        if sign not in (",", ".") or not all(map(_GROUPED.fullmatch, texts)):
            return ""
        other = CellForm(decimal=sign, units=cells.units, percent=cells.percent)
        return f"; it is {_value(self.text, other)} with decimal: {flow(sign)} alone"


def _value(text: str, cells: CellForm) -> str:
    return repr(cells.number(text.encode())).removesuffix(".0")


def survey_cells(
    paths: Sequence[Path], form: TableForm, own: Collection[str]
) -> tuple[TableOutline, tuple[str, ...]]:
    """Return the outline of a table under the form of cells by which most columns are numbers.

    own: the keys of this form that the user has given, which stay. Returns also what was decided,
    one sentence for each change, with its keys.
    """
    outline = outline_table(paths, form)
    said: list[str] = []
    tried: set[Keys] = set()
    for _ in range(_MAX_PASSES):
        votes: dict[Keys, list[_CellChange]] = {}
        for column in outline.columns:
            for change in _changes(column, outline.form.cells) if column.words else ():
                if not (set(dict(change.keys)) & set(own) or change.keys in tried):
                    votes.setdefault(change.keys, []).append(change)
        if not votes:
            break
        keys = max(votes, key=lambda keys: (len(votes[keys]), -len(keys)))
        tried.add(keys)
        cells = outline.form.cells.model_copy(update=dict(keys))
        changed = outline_table(paths, replace(outline.form, cells=_checked(cells)))
        if _numbers(changed) > _numbers(outline):
            said += votes[keys][0].describe(changed.form.cells)
            outline, tried = changed, set()
    return outline, tuple(said)


def _checked(cells: CellForm) -> CellForm:
    """Return the form anew, without what a copy holds of the form that was copied."""
    return CellForm(**{key: getattr(cells, key) for key in CellForm.model_fields})


def _numbers(outline: TableOutline) -> int:
    return sum(not each.words for each in outline.columns)


def _changes(column: TableColumn, cells: CellForm) -> Iterator[_CellChange]:
    """Yield the changes under which all words of a column are numbers or missing values."""
    gaps = [text for text in column.texts if text.lower() in _GAP_WORDS]
    words = [text for text in column.texts if text.lower() not in _GAP_WORDS]
    every = [text for text in column.kinds or words if text.lower() not in _GAP_WORDS]
    if len(every) <= len(gaps):
        return
    base: dict[str, object] = {}
    if gaps:
        base["missing"] = tuple(dict.fromkeys([*cells.missing, *gaps]))
    if not words:
        yield _CellChange(tuple(base.items()), column, gaps[0])
        return
    base |= _units(words, cells)
    for decimal in (".", ","):
        for thousands in _SIGNS:
            keys = base | _written(cells, decimal, thousands)
            if decimal == thousands or not keys:
                continue
            if decimal == "," and thousands is None and all(map(_GROUPED.fullmatch, words)):
                # 1,234 is rather a thousand than one, unless other columns say otherwise.
                continue
            changed = _checked(cells.model_copy(update=keys))
            if not any(math.isnan(changed.number(text.encode())) for text in every):
                yield _CellChange(tuple(keys.items()), column, words[0])


def _written(cells: CellForm, decimal: str, thousands: str | None) -> dict[str, object]:
    """Return the keys that differ from a form."""
    keys: dict[str, object] = {"decimal": decimal, "thousands": thousands}
    return {key: value for key, value in keys.items() if getattr(cells, key) != value}


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
