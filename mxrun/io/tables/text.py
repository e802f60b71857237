"""Reader of tables in text files: one record a line, numbers separated by a delimiter.

Labels may be words. `TableForm` selects the columns that are read; all others may hold anything.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NoReturn

import numpy as np
from numpy.typing import NDArray

from mxrun.base.errors import Diagnostic, UserError
from mxrun.base.near_names import nearest
from mxrun.io.dataset.classes import class_key
from mxrun.io.files import read_all_bytes

# A column's name, if there is a header, or its number, counted from 0 or, if negative, from the
# end.
Column = int | str

# UTF-8's byte order mark, which some programs write at the beginning.
_MARK = b"\xef\xbb\xbf"
# Delimiters tried on the first row if none is given. Commas are last, as numbers may contain them.
_DELIMITERS = (b"\t", b";", b",")
# Cells that mean a missing value, in lower case. In quotes these are words.
_GAPS = (b"", b'""', b"na", b"nan", b"null", b"none", b"?")


@dataclass(frozen=True)
class TableForm:
    """Format of a table and the columns to read.

    delimiter: empty to detect it from the first row. header: whether the first row holds the
    columns' names; with `maybe` it does if no cell of it is a number. data: the data columns; by
    default all but the label. words: whether labels may be words. size: for a table from outside a
    data set, the number of values of a record; the label column may be missing, and is skipped.
    """

    delimiter: str = ""
    header: Literal["yes", "no", "maybe"] = "no"
    data: tuple[Column, ...] | None = None
    label: Column | None = None
    words: bool = False
    size: int | None = None


PLAIN = TableForm()


@dataclass(frozen=True)
class TextTable:
    """Columns read from a table, and the line of each row in the file.

    values: float64 [rows, data columns]; `names` are the names of these columns if there is a
    header, and `columns` their numbers. labels: float64 [rows]; for words, indices into the sorted
    `classes`. label: number of the label column; `label_name`: its name if there is a header.
    """

    values: NDArray[np.float64]
    names: tuple[str, ...]
    columns: tuple[int, ...]
    lines: tuple[int, ...]
    label: int | None = None
    labels: NDArray[np.float64] | None = None
    classes: tuple[str, ...] = ()
    label_name: str = ""


def read_table(path: Path, form: TableForm) -> TextTable:
    """Read a file in UTF-8; empty lines are skipped.

    Raises UserError naming file, row (a line of the file, from 1), column (from 1) and byte.
    """
    hint = "write `header: true` if the first row names the columns"
    return parse_table(bytes(read_all_bytes(path)), path, form, hint)


def parse_table(content: bytes, path: Path | str, form: TableForm, hint: str) -> TextTable:
    """Parse the content of a table as `read_table` does.

    path: the file's name for error messages. hint: advice for a first row that is not numbers.
    """
    reader = _TableParser(content, path, form, hint)
    table = reader.read(as_words=False) or reader.read(as_words=True)
    assert table is not None
    return table


def table_cells(
    content: bytes, path: Path | str, delimiter: str = ""
) -> Iterator[tuple[int, list[bytes]]]:
    """Yield the line and the unprocessed cells of each row that is not empty.

    delimiter: empty to detect it as `parse_table` does. Raises UserError for a row whose number of
    cells differs from the first row's.
    """
    yield from _TableParser(content, path, TableForm(delimiter), "").cells()


class _TableParser:
    """Reader of one file; the first row determines the delimiter and the column names."""

    def __init__(self, content: bytes, path: Path | str, form: TableForm, hint: str) -> None:
        self._content, self._path, self._form, self._hint = content, path, form, hint
        self._names: tuple[str, ...] = ()
        self._divider = form.delimiter.encode()

    def read(self, as_words: bool) -> TextTable | None:
        """Read the table; returns None if labels are words and `as_words` is false."""
        numbers, lines, labels = array("d"), array("q"), array("d")
        words: dict[str, int] = {}
        spelled: dict[str, str] = {}
        columns: list[int] = []
        label: int | None = None
        width = 0
        for line, offset, cells in self._even_rows():
            if not width:
                width = len(cells)
                is_header = self._are_names(cells)
                self._names = tuple(map(cell_text, cells)) if is_header else ()
                columns, label = self._columns(width)
                self._check_names(line, (*columns, *([] if label is None else [label])))
                if is_header:
                    continue
            for column in columns:
                number = cell_number(cells[column])
                if not math.isfinite(number):
                    self._refuse(cells, column, label, (line, offset), not lines)
                numbers.append(number)
            if label is not None:
                word = cell_text(cells[label])
                number = cell_number(cells[label])
                if self._form.words and word and not is_gap(cells[label]):
                    if as_words:
                        word = spelled.setdefault(class_key(word), word)
                        number = words.setdefault(word, len(words))
                    elif math.isnan(number):
                        return None
                if not math.isfinite(number):
                    self._refuse(cells, label, label, (line, offset), not lines)
                labels.append(number)
            lines.append(line)
        if not lines:
            end = len(self._content)
            problem = f"{self._path}: byte {end}: the file holds no rows of numbers"
            raise UserError(Diagnostic(problem))
        values = np.array(numbers).reshape(-1, len(columns))
        names = tuple(self._names[column] for column in columns) if self._names else ()
        label_numbers = np.array(labels)
        classes = tuple(sorted(words))
        if classes:
            number_of = {word: number for number, word in enumerate(classes)}
            order = np.array([number_of[word] for word in words], np.float64)
            label_numbers = order[label_numbers.astype(np.int64)]
        has_label = label is not None
        return TextTable(
            values,
            names,
            tuple(columns),
            tuple(lines),
            label,
            label_numbers if has_label else None,
            classes,
            self._names[label] if self._names and label is not None else "",
        )

    def cells(self) -> Iterator[tuple[int, list[bytes]]]:
        """Yield line and cells of each row that is not empty; see `table_cells`."""
        for line, _, cells in self._even_rows():
            yield line, cells

    def _even_rows(self) -> Iterator[tuple[int, int, list[bytes]]]:
        """Yield the rows; raises UserError if their numbers of columns differ."""
        width = 0
        for line, offset, cells in self._rows():
            width = width or len(cells)
            if len(cells) != width:
                problem = "the number of columns differs from the first row's"
                where = (line, len(cells), offset)
                self._fail(where, problem, f"{width} columns", str(len(cells)))
            yield line, offset, cells

    def _rows(self) -> Iterator[tuple[int, int, list[bytes]]]:
        """Yield line, byte offset and cells of each row that is not empty."""
        content = self._content
        offset = len(_MARK) if content.startswith(_MARK) else 0
        for line, raw in enumerate(content[offset:].splitlines(True), start=1):
            text = raw.strip(b"\r\n")
            if text.strip():
                if b"\0" in text:
                    problem, expected = "not a text file", "a table of numbers"
                    self._fail((line, 1, offset), problem, expected, "a byte 0")
                self._divider = self._divider or _delimiter(text)
                yield line, offset, _cells(text, self._divider)
            offset += len(raw)

    def _are_names(self, cells: list[bytes]) -> bool:
        if self._form.header == "maybe":
            return all(math.isnan(cell_number(cell)) for cell in cells)
        return self._form.header == "yes"

    def _columns(self, width: int) -> tuple[list[int], int | None]:
        """Return the numbers of the data columns and of the label column.

        Raises UserError for a column that does not exist.
        """
        form = self._form
        everything = list(range(width))
        by_name = bool(self._names) and any(isinstance(each, str) for each in form.data or ())
        if form.size is not None:
            if by_name and form.data is not None:
                return [self._column(column, width) for column in form.data], None
            if width == form.size:
                return self._in_order(everything), None
            try:
                return self._numbered(width)[0], None
            except UserError:
                # The table has another layout than training's: its length will be reported as
                # wrong.
                return everything, None
        columns, label = self._numbered(width)
        if not columns:
            hint = self._other_delimiter()
            problem = f"{self._path}: no column is left for the data"
            raise UserError(Diagnostic(problem, hint=hint))
        return columns, label

    def _in_order(self, columns: list[int]) -> list[int]:
        """Return the columns of a table that has only data, in the order of training's columns."""
        columns_read = self._form.data or ()
        # Negative numbers and names cannot be applied to a table of another width.
        if not all(isinstance(each, int) and each >= 0 for each in columns_read):
            return columns
        ranks = {each: rank for rank, each in enumerate(sorted(set(columns_read)))}
        return [ranks[each] for each in columns_read] if len(ranks) == len(columns) else columns

    def _numbered(self, width: int) -> tuple[list[int], int | None]:
        """Return data columns and label column of a table with the layout of training's."""
        form = self._form
        label = None if form.label is None else self._column(form.label, width)
        if form.data is None:
            return [at for at in range(width) if at != label], label
        return [self._column(column, width) for column in form.data], label

    def _column(self, column: Column, width: int) -> int:
        """Return a column's number, from 0; raises UserError if it does not exist."""
        if isinstance(column, int):
            if -width <= column < width:
                return column % width
            problem = f"{self._path}: there is no column {column}"
            hint = self._other_delimiter()
            raise UserError(
                Diagnostic(problem, None, f"{-width} to {width - 1}", str(column), hint)
            )
        if column in self._names:
            return self._names.index(column)
        expected = f"one of {', '.join(self._names)}" if self._names else "`header: true`"
        hint = nearest(column, self._names) or (self._other_delimiter() if width == 1 else "")
        problem = f"{self._path}: no column is named {column!r}"
        raise UserError(Diagnostic(problem, None, expected, column, hint))

    def _check_names(self, line: int, columns_read: Sequence[int]) -> None:
        """Raise UserError if the header has the name of a column that is read more than once."""
        found = []
        columns: dict[str, list[int]] = {}
        for number, name in enumerate(self._names, 1):
            columns.setdefault(name, []).append(number)
        for name in dict.fromkeys(self._names[column] for column in columns_read if self._names):
            same = columns[name]
            if len(same) > 1:
                found.append(
                    Diagnostic(
                        f"{self._path}:{line}:{same[1]}: the header has the name {name!r} "
                        f"{len(same)} times",
                        None,
                        "a name of its own for each column that is read",
                        f"{name!r} in columns {', '.join(map(str, same))}",
                        "rename one in the file, or name the columns that are data: `data: [...]`",
                    )
                )
        if found:
            raise UserError(found)

    def _other_delimiter(self) -> str:
        """Return a hint to set the delimiter if the first row seems to use another; else empty."""
        first = self._content.lstrip().partition(b"\n")[0]
        for other in (*_DELIMITERS, b"|", b" "):
            if other in first.strip() and self._divider not in first:
                return f"write delimiter: {other.decode()!r} if that separates the columns"
        return ""

    def _refuse(
        self,
        cells: Sequence[bytes],
        column: int,
        label: int | None,
        where: tuple[int, int],
        is_first: bool,
    ) -> NoReturn:
        """Raise UserError for a cell that is not a number, with a hint on how to fix it.

        where: line and byte offset of its row.
        """
        cell = cells[column].decode(errors="replace").strip()
        problem, expected = "not a number", "a finite number"
        named = f"column {self._names[column]!r}: " if self._names else ""
        hint = (
            "correct this cell, or leave the column out: `data: [...]` names the columns that are "
            "data; a column of words or categories must be written as numbers"
        )
        if column == label:
            hint = "words are class labels only for a classification loss, such as SoftmaxOutput"
        elif is_first and not self._names and self._form.header != "yes":
            hint = self._hint
        if is_gap(cells[column]):
            hint = "fill the gap in, or leave the row or the column out"
            if column == label and self._form.words:
                problem, expected = "the label is missing", "a number or a word"
                word = cell.strip('"')
                quoted = f', or quote the cell if it is a word: "{word}"' if word else ""
                hint = f"fill the gap in, or remove the rows without a label{quoted}"
        elif cell.replace(",", "", 1).lstrip("+-").isdigit():
            hint = "write a point before decimals, not a comma"
        hint = self._other_delimiter() or hint
        line, offset = where
        at = offset + sum(len(before) + len(self._divider) for before in cells[:column])
        cell_at = (line, column + 1, at)
        self._fail(cell_at, f"{named}{problem}", expected, repr(cell[:40]), hint)

    def _fail(
        self, where: tuple[int, int, int], problem: str, expected: str, got: str, hint: str = ""
    ) -> NoReturn:
        line, column, byte = where
        place = f"{self._path}:{line}:{column}: byte {byte}"
        raise UserError(Diagnostic(f"{place}: {problem}", None, expected, got, hint))


def _delimiter(row: bytes) -> bytes:
    """Return the delimiter detected in a first row."""
    bare = b"".join(row.strip().split(b'"')[::2])
    return next((each for each in _DELIMITERS if each in bare), b",")


def _cells(text: bytes, divider: bytes) -> list[bytes]:
    """Split a row into unprocessed cells; a delimiter within quotes does not split."""
    parts = text.split(divider)
    if b'"' not in text:
        return parts
    cells: list[list[bytes]] = []
    is_open = False
    for part in parts:
        if is_open:
            cells[-1].append(part)
            is_open = part.count(b'"') % 2 == 0
        else:
            cells.append([part])
            is_open = part.lstrip().startswith(b'"') and part.count(b'"') % 2 == 1
    return [divider.join(cell) for cell in cells]


def is_gap(cell: bytes) -> bool:
    """Return whether an unprocessed cell means a missing value."""
    return cell.strip().lower() in _GAPS


def cell_text(cell: bytes) -> str:
    """Return a cell's text without enclosing quotes."""
    # Words that differ only in bytes that are not UTF-8 must remain different.
    text = cell.decode(errors="surrogateescape").strip()
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
