"""Survey of a table's dates: the form in which they are written."""

from __future__ import annotations

import math
from collections.abc import Sequence

from mxrun.io.tables.readers import day_number

_DAYS = (
    *("%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%d-%m-%Y", "%m-%d-%Y", "%Y/%m/%d", "%Y.%m.%d"),
    *("%d.%m.%y", "%d/%m/%y", "%m/%d/%y", "%d %b %Y", "%d-%b-%Y", "%d %B %Y", "%b %d, %Y"),
    *("%B %d, %Y", "%d-%b-%y", "%Y-%m", "%Y/%m", "%m/%Y", "%b %Y"),
)
_TIMES = ("", " %H:%M", " %H:%M:%S", " %I:%M %p", " %H:%M:%S.%f")
# A form is looked for in some dates before it is tried on all.
_FIRST = 20


def date_forms(texts: Sequence[str]) -> list[str | None]:
    """Return the forms in which all texts are dates, None for ISO 8601, which goes alone.

    Both %d/%m/%Y and %m/%d/%Y fit where no day is above 12.
    """
    if not texts:
        return []
    if _fits(texts, None):
        return [None]
    forms = (f"{day}{time}" for day in _DAYS for time in _TIMES)
    return [form for form in forms if _fits(texts[:_FIRST], form) and _fits(texts, form)]


def _fits(texts: Sequence[str], form: str | None) -> bool:
    return not any(math.isnan(day_number(text, form)) for text in texts)
