"""Cells of a table in a text file: numbers, words and missing values."""

from __future__ import annotations

import math
import re
from typing import Annotated, Literal

from pydantic import ConfigDict, Field, StringConstraints, model_validator

from mxrun.base.once import cached_property
from mxrun.base.params import Parameters
from mxrun.base.validation import custom_error

# Delimiters tried on the first row if none is given. Commas are last, as numbers may contain them.
DELIMITERS = (b"\t", b";", b",")
# Cells that mean a missing value, in lower case. In quotes these are words.
_GAPS = frozenset(
    (b"", b'""', b"na", b"nan", b"null", b"none", b"?", b"n/a", b"#n/a", b"#na", b"<na>")
)
# A whole number as programs write it that store a column with gaps as floating point.
_WHOLE = re.compile(r"([+-]?[0-9]+)\.0+")
# A number with a comma before its decimals, as many spreadsheets write it.
_DECIMAL_COMMA = re.compile(r"[+-]?(?:[0-9]+|[0-9]{1,3}(?:\.[0-9]{3})+),[0-9]+")
COMMA_HINT = 'write `decimal: ","` if a comma stands before decimals'
THOUSANDS_HINT = 'write `thousands: "."` if a point stands between thousands'
# Signs that programs write for one character between thousands.
_ALIKE = {" ": " \u00a0\u202f\u2009", "'": "'\u2019"}
_Word = Annotated[str, StringConstraints(min_length=1)]


DecimalSign = Literal[".", ","]
ThousandsSign = Literal[",", ".", " ", "'", "_"]


class CellForm(Parameters):
    """Form of a table's numbers, and the cells that mean a missing value."""

    model_config = ConfigDict(ignored_types=(cached_property,))

    decimal: DecimalSign = Field(
        default=".", description="Sign before the decimals of a number.", examples=[","]
    )
    thousands: ThousandsSign | None = Field(
        default=None,
        description="Sign between the thousands of a number, three digits each: `1,234.5`; "
        "default: there is none.",
        examples=[","],
    )
    percent: bool = Field(
        default=False, description="Whether numbers may end in %: 17% is 0.17.", examples=[True]
    )
    units: tuple[_Word, ...] = Field(
        default=(),
        description="Texts that may stand before or after a number and are left out, such as "
        "signs of currencies.",
        examples=[["€", "EUR"]],
    )
    missing: tuple[_Word, ...] = Field(
        default=(),
        description="Cells that mean a missing value, beside the empty cell, NA, N/A, #N/A, NaN, "
        "null, none, <NA> and ?, in any case.",
        examples=[["-", "unknown"]],
    )

    @model_validator(mode="after")
    def _differ(self) -> CellForm:
        if self.decimal == self.thousands:
            expected = "another sign between thousands than before decimals"
            raise custom_error("thousands", expected)
        return self

    @cached_property
    def reads_as_python(self) -> bool:
        """Whether numbers are written as in Python."""
        return self.decimal == "." and not (self.thousands or self.percent or self.units)

    @cached_property
    def _gaps(self) -> frozenset[bytes]:
        return frozenset(each.strip().lower().encode() for each in self.missing)

    @cached_property
    def _number(self) -> re.Pattern[str]:
        digits = "[0-9]+"
        if self.thousands:
            sign = f"[{re.escape(_ALIKE.get(self.thousands, self.thousands))}]"
            digits = f"[1-9][0-9]{{0,2}}(?:{sign}[0-9]{{3}})+|{digits}"
        units = "|".join(map(re.escape, self.units))
        before = rf"(?:(?:{units})\s*)?" if units else ""
        after = "|".join([*(["%"] if self.percent else []), *([units] if units else [])])
        point = re.escape(self.decimal)
        number = rf"(?P<whole>{digits})?(?:{point}(?P<decimals>[0-9]*))?(?P<power>[eE][+-]?[0-9]+)?"
        return re.compile(
            rf"{before}(?P<sign>[+-]?)\s*{before}{number}"
            + rf"(?:\s*(?P<after>{after}))?" * bool(after)
        )

    def is_gap(self, cell: bytes) -> bool:
        """Return whether an unprocessed cell means a missing value."""
        text = cell.strip().lower()
        return text in _GAPS or (bool(self._gaps) and text.strip(b'"').strip() in self._gaps)

    def number(self, cell: bytes) -> float:
        """Return a cell's number, which may be quoted; NaN if it is not a number."""
        text = cell.strip()
        if text[:1] == text[-1:] == b'"' and len(text) > 1:
            text = text[1:-1]
        if not self.reads_as_python:
            return self._written(text.decode(errors="replace").strip())
        try:
            # `float` accepts underscores between digits, as in Python literals.
            return math.nan if b"_" in text else float(text)
        except ValueError:
            return math.nan

    def _written(self, text: str) -> float:
        found = self._number.fullmatch(text)
        whole, decimals = (found["whole"], found["decimals"]) if found else (None, None)
        if found is None or not (whole or decimals):
            return math.nan
        digits = re.sub("[^0-9]", "", whole or "0")
        value = float(f"{found['sign']}{digits}.{decimals or 0}{found['power'] or ''}")
        return value / 100 if self.percent and found["after"] == "%" else value

    def is_word(self, cell: bytes) -> bool:
        """Return whether an unprocessed cell is neither a number nor missing."""
        return math.isnan(self.number(cell)) and not self.is_gap(cell)

    @property
    def cells(self) -> CellForm:
        """These keys alone, of the options of a data set that has others, too."""
        return CellForm(**{key: getattr(self, key) for key in CellForm.model_fields})


USUAL_CELLS = CellForm()
"""Numbers as programs write them, with the usual cells for missing values."""


def has_decimal_comma(text: str) -> bool:
    """Return whether a text is a number with a comma before its decimals."""
    return _DECIMAL_COMMA.fullmatch(text) is not None


def cell_text(cell: bytes) -> str:
    """Return a cell's text without enclosing quotes."""
    text = cell.decode().strip()
    if len(text) > 1 and text[0] == text[-1] == '"':
        return text[1:-1].replace('""', '"').strip()
    return text


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
