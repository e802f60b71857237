"""Tables of numbers as text: one record a line, its numbers divided by a delimiter."""

from __future__ import annotations

import math
from array import array
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mxrun.base.errors import Diagnostic, UserError
from mxrun.io.files import read_whole

# UTF-8's byte order mark, which some programs put in front.
_MARK = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class Table:
    """float64 [rows, columns], the columns' names where there is a header, and each row's line."""

    values: NDArray[np.float64]
    names: tuple[str, ...]
    lines: tuple[int, ...]


def read_table(path: Path, delimiter: str, header: bool) -> Table:
    """Read a file of numbers in UTF-8; empty lines are passed over.

    Raises UserError naming file, row (a line of the file, from 1), column (from 1) and byte.
    """
    return parse_table(bytes(read_whole(path)), path, delimiter, header)


def parse_table(content: bytes, path: Path | str, delimiter: str, header: bool) -> Table:
    """As `read_table`, of bytes; `path` stands for the file in errors."""
    numbers, lines = array("d"), array("q")
    names: tuple[str, ...] = ()
    divider, width = delimiter.encode(), 0
    offset = len(_MARK) if content.startswith(_MARK) else 0
    for line, raw in enumerate(content[offset:].splitlines(True), start=1):
        text = raw.strip(b"\r\n")
        if text.strip():
            cells = text.split(divider)
            width = width or len(cells)
            if len(cells) != width:
                problem = "the row is of another length than the first"
                _fail(path, line, len(cells), offset, problem, f"{width} columns", str(len(cells)))
            if header and not names:
                names = tuple(cell.decode(errors="replace").strip().strip('"') for cell in cells)
            else:
                _append(numbers, cells, path, line, offset)
                lines.append(line)
        offset += len(raw)
    if not lines:
        raise UserError(Diagnostic(f"{path}: byte {offset}: the file holds no rows of numbers"))
    return Table(np.array(numbers).reshape(-1, width), names, tuple(lines))


def _append(
    numbers: array[float], cells: list[bytes], path: Path | str, line: int, offset: int
) -> None:
    for column, cell in enumerate(cells, start=1):
        try:
            number = float(cell)
        except ValueError:
            number = math.nan
        if not math.isfinite(number):
            got = repr(cell[:40].decode(errors="replace").strip())
            at = offset + sum(len(before) + 1 for before in cells[: column - 1])
            hint = "write `header: true` where the first row names the columns" if line == 1 else ""
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
