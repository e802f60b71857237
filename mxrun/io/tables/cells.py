"""Cells of a table in a text file: numbers, words and missing values."""

from __future__ import annotations

import math
import re

# Delimiters tried on the first row if none is given. Commas are last, as numbers may contain them.
DELIMITERS = (b"\t", b";", b",")
# Cells that mean a missing value, in lower case. In quotes these are words.
_GAPS = (b"", b'""', b"na", b"nan", b"null", b"none", b"?")
# A whole number as programs write it that store a column with gaps as floating point.
_WHOLE = re.compile(r"([+-]?[0-9]+)\.0+")
# A number with a comma before its decimals, as many spreadsheets write it.
_DECIMAL_COMMA = re.compile(r"[+-]?(?:[0-9]+|[0-9]{1,3}(?:\.[0-9]{3})+),[0-9]+")
POINT_HINT = "write a point before decimals, not a comma"


def has_decimal_comma(text: str) -> bool:
    """Return whether a text is a number with a comma before its decimals."""
    return _DECIMAL_COMMA.fullmatch(text) is not None


def is_gap(cell: bytes) -> bool:
    """Return whether an unprocessed cell means a missing value."""
    return cell.strip().lower() in _GAPS


def plain_gap(cell: bytes) -> bytes:
    """Return a cell that `float` reads as NaN for one that is missing, else the cell itself."""
    return b"nan" if cell.lower() in _GAPS else cell


def cell_text(cell: bytes) -> str:
    """Return a cell's text without enclosing quotes."""
    text = cell.decode().strip()
    if len(text) > 1 and text[0] == text[-1] == '"':
        return text[1:-1].replace('""', '"').strip()
    return text


def cell_number(cell: bytes) -> float:
    """Return a cell's number, which may be quoted; NaN if it is not a number."""
    text = cell.strip()
    if text[:1] == text[-1:] == b'"' and len(text) > 1:
        text = text[1:-1]
    try:
        # `float` accepts underscores between digits, as in Python literals.
        return math.nan if b"_" in text else float(text)
    except ValueError:
        return math.nan


def category_text(text: str) -> str:
    """Return the name of a category; 3.0 is the category 3."""
    whole = _WHOLE.fullmatch(text)
    return whole[1] if whole else text


def number_text(number: float) -> str:
    """Return the name of a category that is a number."""
    return str(int(number)) if number.is_integer() and abs(number) < 2**53 else repr(number)


def detected_delimiter(row: bytes) -> bytes:
    """Return the delimiter detected in a first row."""
    bare = b"".join(row.strip().split(b'"')[::2])
    return next((each for each in DELIMITERS if each in bare), b",")


def split_row(text: bytes, divider: bytes) -> list[bytes]:
    """Split a row into unprocessed cells; a delimiter within quotes does not split."""
    if b'"' not in text:
        return text.split(divider)
    return _split_closed(text, divider) or _split_by_part(text, divider)


def _split_closed(text: bytes, divider: bytes) -> list[bytes] | None:
    """Split a row whose quotes all enclose cells, in a third of the time; None for others."""
    # Before every quote that opens a cell stands a delimiter; "" within a cell is a quote.
    segments = text.split(b'"')
    outside = segments[:-1:2]
    is_closed = len(segments) % 2 == 1 and divider != b'"' and b"\0" not in text
    if not is_closed or (outside[0] and not outside[0].endswith(divider)):
        return None
    if not all(not each or each.endswith(divider) for each in outside[1:]):
        return None
    segments[1::2] = [each.replace(divider, b"\0") for each in segments[1::2]]
    joined = b'"'.join(segments)
    cells = joined.split(divider)
    return [cell.replace(b"\0", divider) for cell in cells] if b"\0" in joined else cells


def is_open_quote(cell: bytes) -> bool:
    """Return whether an unprocessed cell begins with a quote that it does not close."""
    return cell.lstrip().startswith(b'"') and cell.count(b'"') % 2 == 1


def _split_by_part(text: bytes, divider: bytes) -> list[bytes]:
    parts = text.split(divider)
    cells: list[list[bytes]] = []
    is_open = False
    for part in parts:
        if is_open:
            cells[-1].append(part)
            is_open = part.count(b'"') % 2 == 0
        else:
            cells.append([part])
            is_open = is_open_quote(part)
    return [divider.join(cell) for cell in cells]


def is_word(cell: bytes) -> bool:
    """Return whether an unprocessed cell is neither a number nor missing."""
    return math.isnan(cell_number(cell)) and not is_gap(cell)
