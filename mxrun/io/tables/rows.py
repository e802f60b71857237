"""Rows of a text file, read in blocks, and the places of rows for messages."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import accumulate, compress

import numpy as np
from numpy.typing import NDArray

from mxrun.base.dataclass import dataclass
from mxrun.base.errors import Diagnostic, UserError
from mxrun.base.once import cached_property
from mxrun.io.encodings import DecodedStream, TextBytes

# Bytes read at a time: the cells of short rows take about forty times their size.
_BLOCK = 1 << 18
# A block has as many rows, if it does not become larger than this.
_MIN_ROWS, _MAX_BLOCK = 256, 1 << 20
_MAX_ROW = 1 << 28
MAX_LINES = 1000
"""Lines of a cell in quotes."""
# A cell in quotes that does not end in its line: after a usual delimiter, or the declared one.
_OPEN_CELL = rb'(?:^|[\t;,|%s])[ ]*"(?:[^"]|"")*$'
# The end of such a cell in a further line: a quote before a delimiter or the end of the line.
_CLOSED_CELL = rb'(?:[^"]|"")*"[ ]*(?:[\t;,|%s]|[\r\n]|\Z)'
# UTF-8's byte order mark, which some programs write at the beginning.
_MARK = b"\xef\xbb\xbf"


@dataclass(frozen=True, eq=False)
class RowBlock:
    """Rows of a file that are not empty: their bytes without line ends.

    lines: number of each row's line in the file, from 1. content: the bytes of the block, with
    empty lines; first: number of the first line, which begins at byte `offset` of the file.
    is_decoded: whether the file has another encoding than UTF-8, which the bytes have.
    """

    rows: Sequence[bytes]
    lines: NDArray[np.int64]
    content: bytes
    first: int
    offset: int
    is_decoded: bool = False

    def where(self, name: str, row: int, column: int, skipped: int = 0) -> str:
        """Return the place of a cell: file:line:column, and its byte unless the file is decoded.

        column: from 1; skipped: the bytes of the row before the one that is meant.
        """
        byte = self._starts[int(self.lines[row]) - self.first] + skipped
        place = f"{name}:{self.lines[row]}:{column}"
        return place if self.is_decoded else f"{place}: byte {byte}"

    @property
    def compact_lines(self) -> Sequence[int]:
        """The lines, without an array of them if none is empty."""
        first, last = int(self.lines[0]), int(self.lines[-1])
        is_even = last - first == len(self.lines) - 1
        return range(first, last + 1) if is_even else self.lines.tolist()

    @cached_property
    def _starts(self) -> list[int]:
        lines = self.content.splitlines(True)
        return list(accumulate(map(len, lines), initial=self.offset))

    def rest(self) -> RowBlock:
        """Return the block without its first row."""
        return replace(self, rows=self.rows[1:], lines=self.lines[1:])

    def select(self, numbers: list[int]) -> RowBlock:
        """Return the block with some of its rows."""
        rows = [self.rows[number] for number in numbers]
        return replace(self, rows=rows, lines=self.lines[numbers])


def row_blocks(stream: TextBytes, name: str, divider: str = "") -> Iterator[RowBlock]:
    """Yield the rows of a file in blocks of about 256 KiB.

    A cell in quotes may hold line ends; divider: the delimiter, if it is declared. Raises UserError
    for a row of more than 256 MiB; `name` is the file's name in messages.
    """
    escaped = re.escape(divider.encode())
    quoted = re.compile(_OPEN_CELL % escaped), re.compile(_CLOSED_CELL % escaped)
    line, offset, pending, size = 1, 0, b"", _BLOCK
    is_decoded = isinstance(stream, DecodedStream)
    while True:
        content = stream.read(size)
        if not offset and line == 1 and not pending and content.startswith(_MARK):
            offset, content = len(_MARK), content[len(_MARK) :]
        text = pending + content
        # A line may also end in \r alone; one at the end may be half of \r\n.
        end = max(text.rfind(b"\n"), text.rfind(b"\r", 0, -1)) + 1 if content else len(text)
        every, counts, end = _joined(text[:end], quoted, is_end=not content)
        pending = text[end:]
        if len(pending) > _MAX_ROW:
            problem = f"{name}:{line}: byte {offset}: the row is too long"
            raise UserError(Diagnostic(problem, None, f"at most {_MAX_ROW:,} bytes"))
        text = text[:end]
        numbers = line + np.cumsum([0, *counts])
        kept = [bool(each) and not each.isspace() for each in every]
        rows = list(compress(every, kept))
        if rows:
            yield RowBlock(rows, numbers[:-1][kept], text, line, offset, is_decoded)
        if len(rows) < _MIN_ROWS:
            size = min(2 * size, _MAX_BLOCK)
        line = int(numbers[-1])
        offset += end
        if not content:
            return


def _joined(
    text: bytes, quoted: tuple[re.Pattern[bytes], re.Pattern[bytes]], is_end: bool
) -> tuple[list[bytes], list[int], int]:
    """Return rows without their line ends, the number of lines of each, and the bytes of all.

    quoted: match a cell that opens in a line, and its end in a further one. A row whose quote is
    not closed in `text` is left out with all after it, unless that is the end of the file or the
    quote has been open for too many lines. Then it is a row as it is, as is one whose quote would
    be closed within a cell.
    """
    opening, closing = quoted
    if b'"' not in text:
        every = text.splitlines()
        return every, [1] * len(every), len(text)
    lines = text.splitlines(True)
    odd = [at for at, line in enumerate(lines) if line.count(b'"') % 2]
    rows: list[bytes] = []
    counts: list[int] = []
    start = 0
    for number, at in enumerate(odd):
        if at < start or not opening.search(lines[at]):
            continue
        close = odd[number + 1] if number + 1 < len(odd) else len(lines)
        if close == len(lines) and not is_end and close - at < MAX_LINES:
            lines = lines[:at]
            break
        further = [line for line in lines[at + 1 : close + 1] if b'"' in line.replace(b'""', b"")]
        is_closed = close < len(lines) and all(map(closing.match, further))
        if is_closed and close - at < MAX_LINES:
            rows += [*lines[start:at], b"".join(lines[at : close + 1])]
            counts += [*[1] * (at - start), close + 1 - at]
            start = close + 1
    rows += lines[start:]
    counts += [1] * (len(lines) - start)
    return [row.rstrip(b"\r\n") for row in rows], counts, sum(map(len, rows))


@dataclass(frozen=True, eq=False)
class RowPlaces:
    """Files and lines of the rows that were read, for messages.

    files: name and number of rows of each file, in order; lines: of the rows, by block.
    """

    files: tuple[tuple[str, int], ...]
    lines: tuple[Sequence[int], ...]

    def where(self, row: int, column: int | None = None) -> str:
        """Return the place of a row, or of a cell of it: file:line:column."""
        bounds = accumulate(count for _, count in self.files)
        name = next(name for (name, _), end in zip(self.files, bounds, strict=True) if row < end)
        for lines in self.lines:
            if row < len(lines):
                break
            row -= len(lines)
        place = f"{name}:{lines[row]}"
        return place if column is None else f"{place}:{column + 1}"
