"""Survey of a table's data columns: which are numbers, categories, dates or texts, or of no use."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from statistics import median

import numpy as np
from numpy.typing import NDArray

from mxrun.base.dataclass import dataclass
from mxrun.base.near_names import folded
from mxrun.config.dump import flow
from mxrun.io.tables.cells import has_decimal_comma
from mxrun.io.tables.columns import TableOutline
from mxrun.io.tables.readers import MAX_KINDS, TableColumn, day_number
from mxrun.io.tables.table_columns import MAX_CATEGORIES
from mxrun.survey.date_forms import date_forms

ROW_NUMBERS = ("id", "index", "row", "rownumber", "unnamed0", "number", "no", "")
"""Names of columns that number the rows, folded."""
# From this share of missing values on, whether a value is missing may itself say something.
_MIN_INDICATED = 0.02
# From this share on, a column may be of no use.
_MOST_MISSING = 0.95
# A category has on average at least this many rows.
_MIN_ROWS = 3
# Numbers with a maximum of so many medians are taken by their logarithm.
_LONG_TAIL = 20
_MAX_SHOWN = 4
# Texts have at least this many words, names fewer.
_MIN_WORDS = 5
# Whole numbers with at most this many values may also be categories.
_FEW_NUMBERS = 10
_COMPACT_DAY = "%Y%m%d"
_YEARS = (19000101, 21001231)


@dataclass(frozen=True)
class ColumnDraft:
    """Treatment of a column, as a config writes it, and a comment on it.

    otherwise: of a column that is left out, what takes it. doubt: why the treatment may be doubted,
    and another one. is_auto: whether `columns: auto` treats the column so.
    """

    column: TableColumn
    form: object
    comment: str
    otherwise: str = ""
    doubt: str = ""
    is_auto: bool = False

    @property
    def is_ignored(self) -> bool:
        """Whether the column is left out."""
        return self.form == "ignore"

    @property
    def is_rarely_known(self) -> bool:
        """Whether nearly all values are missing."""
        return self.column.gaps > _MOST_MISSING * len(self.column.numbers)

    @property
    def may_be_category(self) -> bool:
        """Whether it is a number that has few values."""
        values = self.column.numbers[:0] if self.column.words else self.column.numbers
        if not self.is_auto or not len(values):
            return False
        known = np.unique(values[~np.isnan(values)])
        return 2 < len(known) <= _FEW_NUMBERS and bool((known == np.floor(known)).all())


def choose_form(column: TableColumn, outline: TableOutline) -> ColumnDraft:
    """Return the treatment of a data column."""
    why, otherwise = why_useless(column, outline)
    if why:
        return ColumnDraft(column, "ignore", why, otherwise)
    gaps = f"{column.gaps} of {outline.rows} missing, " if column.gaps else ""
    if column.codes and _is_category(column, outline.rows):
        draft = _codes(column)
    elif not column.words:
        draft = _number(column, outline.rows)
    elif forms := date_forms(column.texts):
        draft = _date(column, forms, column.texts[0])
    elif _is_category(column, outline.rows):
        draft = _category(column)
    else:
        draft = _text(column)
    return replace(draft, comment=f"{gaps}{draft.comment}")


def _codes(column: TableColumn) -> ColumnDraft:
    draft = _category(column)
    doubt = f"{column} has numbers that begin with 0, such as codes, and is read as categories"
    key = f"`columns: {{{flow(str(column.label))}: number}}` reads 007 as 7"
    return replace(draft, is_auto=False, doubt=f"{doubt}; {key}")


def _category(column: TableColumn) -> ColumnDraft:
    kinds = sorted(column.kinds, key=lambda kind: (-column.kinds[kind], kind))
    shown = ", ".join(f"{kind[:20]} {column.kinds[kind]}" for kind in kinds[:_MAX_SHOWN])
    more = f", and {len(kinds) - _MAX_SHOWN} more" if len(kinds) > _MAX_SHOWN else ""
    numbers = [kind for kind in kinds if kind not in column.texts]
    doubt = ""
    if numbers and column.texts:
        words = f"{column.words} of its values are words, such as {column.word[:20]!r}"
        doubt = (
            f"{column} has numbers, but {words}: it is read as a category; "
            f"`missing: {flow(list(column.texts[:3]))}` reads these as missing values"
        )
    return ColumnDraft(column, "category", f"{shown}{more}", doubt=doubt, is_auto=True)


def _date(column: TableColumn, forms: Sequence[str | None], example: str) -> ColumnDraft:
    form = forms[0]
    if form is None:
        is_auto = len(column.kinds) > MAX_CATEGORIES
        return ColumnDraft(column, "date", f"such as {example!r}", is_auto=is_auto)
    others = [other for other in forms[1:] if other is not None]
    doubt = f"{column} is read as dates of the form {form}, such as {example!r}"
    if others:
        key = f"columns: {{{flow(str(column.label))}: {{date: {{format: {flow(others[0])}}}}}}}"
        doubt = f"{doubt}; all of them are also dates of the form {others[0]}: `{key}`"
    elif not column.words:
        doubt = f"{doubt}; `columns: {{{flow(str(column.label))}: number}}` reads numbers"
    return ColumnDraft(column, {"date": {"format": form}}, f"such as {example!r}", doubt=doubt)


def _text(column: TableColumn) -> ColumnDraft:
    key = f"`columns: {{{flow(str(column.label))}: ignore}}` leaves it out"
    doubt = f"{column} is read as texts: a number for each of its frequent words; {key}"
    return ColumnDraft(column, "text", f"such as {column.word[:30]!r}", doubt=doubt)


def _number(column: TableColumn, rows: int) -> ColumnDraft:
    known = column.numbers[~np.isnan(column.numbers)]
    if _are_compact_days(known):
        return _date(column, [_COMPACT_DAY], f"{known[0]:.0f}")
    parameters: dict[str, object] = {}
    if column.gaps >= _MIN_INDICATED * rows:
        parameters["indicator"] = True
    least, middle, largest = known.min(), float(np.median(known)), known.max()
    if least >= 0 and 0 < _LONG_TAIL * middle < largest:
        parameters["scale"] = "log"
    form = {"number": parameters} if parameters else "number"
    return ColumnDraft(column, form, f"{least:g} to {largest:g}", is_auto=not parameters)


def _are_compact_days(known: NDArray[np.float64]) -> bool:
    """Return whether all numbers are days such as 20240531."""
    within = (known >= _YEARS[0]) & (known <= _YEARS[1]) & (known == np.floor(known))
    if not within.all() or len(np.unique(known)) < 2:
        return False
    days = np.unique(known).astype(np.int64).tolist()
    return not any(math.isnan(day_number(str(day), _COMPACT_DAY)) for day in days)


def why_useless(column: TableColumn, outline: TableOutline) -> tuple[str, str]:
    """Return why a column cannot be data, and what takes it; empty texts if it can."""
    rows, name = outline.rows, flow(str(column.label))
    if outline.has_header and column.name in outline.repeated:
        return "the header has its name several times", "give it a name of its own in the file"
    if column.gaps == rows:
        return "every value is missing", ""
    if column.words:
        return _why_words_useless(column, outline, name)
    if column.codes and len(column.kinds) > 1 and _is_category(column, rows):
        return "", ""
    known = column.numbers[~np.isnan(column.numbers)]
    if known.min() == known.max() and not column.gaps:
        return f"always {known[0]:g}", ""
    if _numbers_rows(column, outline):
        return "it only numbers the rows", f"`columns: {{{name}: number}}` takes it"
    if column.codes:
        several = f"codes that begin with 0 ({len(column.kinds):,} different)"
        return several, f"`columns: {{{name}: {{category: {{min_count: 10}}}}}}` takes it"
    return "", ""


def _why_words_useless(column: TableColumn, outline: TableOutline, name: str) -> tuple[str, str]:
    rows, word = outline.rows, column.word[:20]
    if not column.texts:
        return (
            f"over {MAX_KINDS:,} codes that begin with 0",
            f"`columns: {{{name}: number}}` takes it",
        )
    if len(column.kinds) == 1 and not column.gaps:
        return f"always {word!r}", ""
    if _is_category(column, rows) or date_forms(column.texts):
        return "", ""
    if are_decimal_commas(column):
        why = f"numbers with a comma before decimals, such as {word!r}, where others have a point"
        return why, 'write points in the file, or commas in all columns and `decimal: ","`'
    if column.words + column.gaps < rows:
        several = listed_words(column.texts)
        why = f"{column.words} of {rows} values are no numbers, such as {word!r}"
        return why, f"`missing: {several}` reads these as missing values"
    if median(len(text.split()) for text in column.texts) >= _MIN_WORDS:
        return "", ""
    kinds = f"{len(column.kinds)} different" if column.kinds else f"over {MAX_KINDS:,} different"
    takes = f"`columns: {{{name}: text}}` or `{{category: {{min_count: 10}}}}` takes it"
    return f"words ({kinds}, such as {word!r})", takes


def listed_words(words: Sequence[str]) -> str:
    """Return some words as a list of a config."""
    more = ", ..." if len(words) > _MAX_SHOWN else ""
    return f"{flow([word[:20] for word in words[:_MAX_SHOWN]])[:-1]}{more}]"


def are_decimal_commas(column: TableColumn) -> bool:
    """Return whether the words of a column are numbers with a comma before their decimals."""
    return bool(column.words) and all(map(has_decimal_comma, column.texts))


def _is_category(column: TableColumn, rows: int) -> bool:
    kinds = len(column.kinds)
    return 0 < kinds <= min(MAX_CATEGORIES, max(2, rows // _MIN_ROWS))


def _numbers_rows(column: TableColumn, outline: TableOutline) -> bool:
    """Return whether a column counts the rows: by ones, or by any numbers if named like that."""
    if len(column.numbers) < 3 or column.gaps:
        return False
    if not (column.numbers == np.floor(column.numbers)).all():
        return False
    if bool((np.diff(column.numbers) == 1).all()):
        return True
    is_named = outline.has_header and folded(column.name) in ROW_NUMBERS
    return is_named and len(np.unique(column.numbers)) == len(column.numbers)
