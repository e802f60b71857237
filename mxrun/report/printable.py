"""Escaping of control characters and of marks that change the direction of text.

Names of files, classes and keys may contain any character, and a terminal obeys every escape
sequence that it receives.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from mxrun.base.utf8 import valid_text

# C0 except tab and line feed, DEL and C1, and marks that change the direction of text.
_UNSAFE = (
    *(number for number in range(0x20) if chr(number) not in "\t\n"),
    *range(0x7F, 0xA0),
    *(0x061C, 0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2066, 0x206A)),
)
_SPELLED = {number: ascii(chr(number))[1:-1] for number in _UNSAFE}
# A cell that starts with one of these is a formula for spreadsheets.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def printable(text: str) -> str:
    r"""Return the text with control characters escaped as in Python, `\x1b` for escape."""
    return valid_text(text).translate(_SPELLED)


def printable_line(text: str) -> str:
    """Return the text as `printable` does, in one line: for cells of tables and parts of lines."""
    return printable(text).replace("\n", "\\n").replace("\t", "\\t")


def csv_cells(values: Iterable[Any]) -> list[Any]:
    """Return the cells of a CSV row with an apostrophe before texts that spreadsheets run as
    formulas.

    Numbers, and texts that are numbers, are unchanged.
    """
    return [f"'{value}" if _is_formula(value) else value for value in values]


def _is_formula(value: Any) -> bool:
    if not isinstance(value, str) or not value.startswith(_FORMULA) or len(value) < 2:
        return False
    try:
        float(value)
    except ValueError:
        return True
    return False
