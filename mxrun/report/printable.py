"""Text for people: what would steer a terminal, or turn its text around, is spelled out.

File names, class names and keys may hold anything; a terminal obeys escape sequences whoever wrote
them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

# C0 but for tab and line feed, DEL and C1, the marks that change the direction of text, and what
# stands for bytes that are no text.
_UNSAFE = (
    *(number for number in range(0x20) if chr(number) not in "\t\n"),
    *range(0x7F, 0xA0),
    *(0x061C, 0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2066, 0x206A)),
    *range(0xD800, 0xE000),
)
_SPELLED = {number: ascii(chr(number))[1:-1] for number in _UNSAFE}
# Python has a byte of a name that is not UTF-8 as U+DC00 and the byte.
_SPELLED |= {0xDC00 + byte: f"\\x{byte:02x}" for byte in range(0x80, 0x100)}
# What spreadsheets take for a formula, at the start of a cell.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def printable(text: str) -> str:
    """The text with control characters spelled as in Python, `\\x1b` for escape."""
    return text.translate(_SPELLED)


def csv_cells(values: Iterable[Any]) -> list[Any]:
    """The cells of a CSV row, none of them a formula: such a text has an apostrophe before it.

    Numbers, and texts that are numbers, stay as they are.
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
