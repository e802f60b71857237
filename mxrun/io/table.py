"""Tables of numbers as text: one record a line, its numbers divided by a delimiter."""

from __future__ import annotations

import math
from array import array
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from mxrun.base.errors import Diagnostic, UserError
from mxrun.io.files import read_whole

# UTF-8's byte order mark, which some programs put in front.
_MARK = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class TableForm:
    """How a table is written.

    header: whether its first row holds the columns' names; `maybe`, where it does if no cell of it
    is a number.
    """

    delimiter: str = ","
    header: Literal["yes", "no", "maybe"] = "no"


PLAIN = TableForm()


@dataclass(frozen=True)
class Table:
    """float64 [rows, columns], the columns' names where there is a header, and each row's line."""

    values: NDArray[np.float64]
    names: tuple[str, ...]
    lines: tuple[int, ...]


def read_table(path: Path, form: TableForm) -> Table:
    """Read a file of numbers in UTF-8; empty lines are passed over.

    Raises UserError naming file, row (a line of the file, from 1), column (from 1) and byte.
    """
    hint = "write `header: true` where the first row names the columns"
    return parse_table(bytes(read_whole(path)), path, form, hint)


def parse_table(content: bytes, path: Path | str, form: TableForm, hint: str) -> Table:
    """As `read_table`, of bytes; `path` stands for the file in errors, and `hint` says what to do
    about a first row that is none of numbers.
    """
    numbers, lines = array("d"), array("q")
    names: tuple[str, ...] = ()
    divider, width = form.delimiter.encode(), 0
    offset = len(_MARK) if content.startswith(_MARK) else 0
    for line, raw in enumerate(content[offset:].splitlines(True), start=1):
        text = raw.strip(b"\r\n")
        if text.strip():
            cells = text.split(divider)
            width = width or len(cells)
            if len(cells) != width:
                problem = "the row is of another length than the first"
                _fail(path, line, len(cells), offset, problem, f"{width} columns", str(len(cells)))
            if not names and not lines and _are_names(cells, form):
                names = tuple(cell.decode(errors="replace").strip().strip('"') for cell in cells)
            else:
                _append(numbers, cells, path, line, offset, "" if lines else hint)
                lines.append(line)
        offset += len(raw)
    if not lines:
        raise UserError(Diagnostic(f"{path}: byte {offset}: the file holds no rows of numbers"))
    return Table(np.array(numbers).reshape(-1, width), names, tuple(lines))


def _are_names(cells: list[bytes], form: TableForm) -> bool:
    if form.header == "maybe":
        return all(math.isnan(_number(cell)) for cell in cells)
    return form.header == "yes"


def _number(cell: bytes) -> float:
    """A cell's number, which may stand in quotes; NaN where it is none."""
    text = cell.strip()
    if text[:1] == text[-1:] == b'"' and len(text) > 1:
        text = text[1:-1]
    try:
        # Python's own literals may be grouped by underscores.
        return math.nan if b"_" in text else float(text)
    except ValueError:
        return math.nan


def _append(
    numbers: array[float], cells: list[bytes], path: Path | str, line: int, offset: int, hint: str
) -> None:
    for column, cell in enumerate(cells, start=1):
        number = _number(cell)
        if not math.isfinite(number):
            got = repr(cell[:40].decode(errors="replace").strip())
            at = offset + sum(len(before) + 1 for before in cells[: column - 1])
            _fail(path, line, column, at, "this is no number", "a finite number", got, hint)
        numbers.append(number)


def _fail(
    path: Path | str,
    line: int,
    column: int,
    offset: int,
    problem: str,
    expected: str,
    got: str,
    hint: str = "",
) -> None:
    where = f"{path}:{line}:{column}: byte {offset}"
    raise UserError(Diagnostic(f"{where}: {problem}", None, expected, got, hint))
