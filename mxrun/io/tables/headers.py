"""Whether the first row of a table names its columns, and why that may be doubted."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from itertools import pairwise

from mxrun.io.tables.cells import CellForm, cell_text

# Fewest numbers of a row that rise by a constant, and rows that say where a column's numbers are.
_MIN_RISING, _MIN_ROWS = 3, 5
# Rows after the first that are looked at for numbers that rise as well.
_MAX_RISING = 20

_LIKE_NUMBER = re.compile(rb"[^\w,;]{0,4}[0-9][0-9.,/:' -]*(?:[^\w,;]{1,4}|[A-Z]{3})?")

Row = Sequence[bytes]


def decide_header(first: Row, others: Sequence[Row], form: CellForm) -> tuple[bool, str]:
    """Return whether a first row names the columns, and what is doubtful about it, if anything.

    others: some of the rows after it. It does if it has words alone, or cells that are empty, and
    the others have numbers. Where all are words, it does if no word of it comes again in its
    column, but others do.
    """
    same = [each for each in others if len(each) == len(first)]
    if not same or not any(map(cell_text, first)):
        return False, ""
    if not all(not cell.strip() or form.is_word(cell) for cell in first):
        return False, _doubt(first, same, form)
    if any(not math.isnan(form.number(cell)) for each in same for cell in each):
        return True, ""
    # Dates, prices and percentages are words in a form that is not declared.
    alike = [any(map(_LIKE_NUMBER.fullmatch, row)) for row in (first, *same)]
    if any(alike[1:]) and not alike[0]:
        return True, ""
    columns = [set(column) for column in zip(*same, strict=True)]
    if any(cell in column for cell, column in zip(first, columns, strict=True)):
        return False, ""
    if 2 * min(map(len, columns)) <= len(same):
        return True, "all cells of the table are words, and none of its own comes again below"
    return False, "all cells of the table are words"


def _doubt(first: Row, others: Sequence[Row], form: CellForm) -> str:
    """Return why a first row with numbers may name the columns; empty if nothing says so."""
    pairs = list(zip(first, zip(*others, strict=True), strict=True))
    if any(map(form.is_word, first)):
        above = (
            cell_text(cell)
            for cell, column in pairs
            if form.is_word(cell) and not any(map(form.is_word, column))
        )
        word = next(above, "")
        return word and f"the word {word!r} stands above numbers"
    numbers = _whole(first, form)
    if len(set(numbers)) < max(2, len(numbers)):
        return ""
    if _is_rising(numbers) and not any(
        _is_rising(_whole(each, form)) for each in others[:_MAX_RISING]
    ):
        return f"its numbers rise by {numbers[1] - numbers[0]:g}, as in no row below"
    is_far = len(others) >= _MIN_ROWS and all(
        not cell.strip() or _is_far(form.number(cell), map(form.number, column))
        for cell, column in pairs
    )
    return "its whole numbers are far from those below" if is_far else ""


def _whole(row: Row, form: CellForm) -> list[float]:
    """Return the numbers of a row whose cells are whole numbers or empty; else nothing."""
    numbers = [form.number(cell) for cell in row if cell.strip()]
    return numbers if all(map(float.is_integer, numbers)) else []


def _is_rising(numbers: Sequence[float]) -> bool:
    steps = {after - before for before, after in pairwise(numbers)}
    return len(numbers) >= _MIN_RISING and len(steps) == 1 and min(steps) > 0


def _is_far(number: float, column: Iterable[float]) -> bool:
    """Return whether a number is further from those of a column than they are from each other."""
    others = [each for each in column if math.isfinite(each)]
    if not others:
        return False
    least, largest = min(others), max(others)
    spread = largest - least
    return number < least - spread or number > largest + spread
