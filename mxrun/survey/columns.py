"""Survey of a table's data columns: which are numbers, categories or dates, or of no use."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass

import numpy as np

from mxrun.base.near_names import folded
from mxrun.io.tables.cells import cell_number, has_decimal_comma
from mxrun.io.tables.columns import TableOutline
from mxrun.io.tables.readers import MAX_KINDS, TableColumn
from mxrun.io.tables.table_columns import MAX_CATEGORIES

# Names of columns that number the rows.
_NUMBERS = ("id", "index", "row", "rownumber", "unnamed0", "number", "no", "")
# From this share of missing values on, whether a value is missing may itself say something.
_MIN_INDICATED = 0.02
# A category has on average at least this many rows.
_MIN_ROWS = 3
# Numbers with a maximum of so many medians are taken by their logarithm.
_LONG_TAIL = 20
_MAX_SHOWN = 4


@dataclass(frozen=True)
class ColumnDraft:
    """Treatment of a column, as a config writes it, and a comment on it."""

    column: TableColumn
    form: object
    comment: str

    @property
    def is_ignored(self) -> bool:
        """Whether the column is left out."""
        return self.form == "ignore"


def repeated_names(outline: TableOutline) -> frozenset[str]:
    """Return the names that several columns have."""
    counts = Counter(each.name for each in outline.columns)
    return frozenset(name for name, count in counts.items() if count > 1)


def choose_form(column: TableColumn, outline: TableOutline) -> ColumnDraft:
    """Return the treatment of a data column."""
    why = why_useless(column, outline)
    if why:
        return ColumnDraft(column, "ignore", why)
    if not column.words:
        return _number(column, outline.rows)
    if column.dates and not _is_category(column, outline.rows):
        return ColumnDraft(column, "date", f"{_gaps(column, outline.rows)}such as {column.word!r}")
    kinds = sorted(column.kinds, key=lambda kind: (-column.kinds[kind], kind))
    shown = ", ".join(f"{kind[:20]} {column.kinds[kind]}" for kind in kinds[:_MAX_SHOWN])
    more = f", and {len(kinds) - _MAX_SHOWN} more" if len(kinds) > _MAX_SHOWN else ""
    return ColumnDraft(column, "category", f"{_gaps(column, outline.rows)}{shown}{more}")


def _number(column: TableColumn, rows: int) -> ColumnDraft:
    known = column.numbers[~np.isnan(column.numbers)]
    parameters: dict[str, object] = {}
    if column.gaps >= _MIN_INDICATED * rows:
        parameters["indicator"] = True
    least, median, largest = known.min(), float(np.median(known)), known.max()
    if least >= 0 and 0 < _LONG_TAIL * median < largest:
        parameters["scale"] = "log"
    form = {"number": parameters} if parameters else "number"
    return ColumnDraft(column, form, f"{_gaps(column, rows)}{least:g} to {largest:g}")


def _gaps(column: TableColumn, rows: int) -> str:
    return f"{column.gaps} of {rows} missing, " if column.gaps else ""


def why_useless(column: TableColumn, outline: TableOutline) -> str:
    """Return why a column cannot be data; empty if it can."""
    rows = outline.rows
    if outline.has_header and column.name in repeated_names(outline):
        return "the header has its name several times"
    if column.gaps == rows:
        return "every value is missing"
    if column.words:
        if len(column.kinds) == 1 and not column.gaps:
            return f"always {column.word[:20]!r}"
        if are_decimal_commas(column):
            return f"numbers with a comma before decimals, such as {column.word[:20]!r}"
        if _is_category(column, rows) or column.dates:
            return ""
        kinds = (
            f"{len(column.kinds)} different" if column.kinds else f"over {MAX_KINDS:,} different"
        )
        if column.words + column.gaps < rows:
            return f"{column.words} of {rows} values are no numbers, such as {column.word[:20]!r}"
        return f"words ({kinds}, such as {column.word[:20]!r})"
    known = column.numbers[~np.isnan(column.numbers)]
    if known.min() == known.max() and not column.gaps:
        return f"always {known[0]:g}"
    if _numbers_rows(column, outline):
        return "it only numbers the rows"
    return ""


def are_decimal_commas(column: TableColumn) -> bool:
    """Return whether the words of a column are numbers with a comma before their decimals."""
    numbers = {kind: cell_number(kind.encode()) for kind in column.kinds}
    words = [kind for kind, number in numbers.items() if math.isnan(number)]
    return bool(column.words) and all(map(has_decimal_comma, words or [column.word]))


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
    is_named = outline.has_header and folded(column.name) in _NUMBERS
    return is_named and len(np.unique(column.numbers)) == len(column.numbers)
