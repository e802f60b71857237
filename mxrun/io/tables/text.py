"""Reader of tables in text files: one record a line, cells separated by a delimiter.

Labels may be words. `TableForm` selects the columns that are read; all others may hold anything.
"""

from __future__ import annotations

import io
import re
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import numpy as np
from numpy.typing import NDArray

from mxrun.base.dataclass import dataclass
from mxrun.base.errors import Diagnostic, UserError
from mxrun.io.decompressed import DAMAGES, decompressed
from mxrun.io.encodings import DECLARE, TextBytes, refuse_byte, text_stream
from mxrun.io.files import check_memory, read_all_bytes, unreadable_error
from mxrun.io.tables.cells import detected_delimiter, is_open_quote, split_row
from mxrun.io.tables.features import FeatureTable
from mxrun.io.tables.layout import PLAIN, TableForm, TableLayout, find_layout, same_columns
from mxrun.io.tables.problems import HEADER_HINT, CellProblems
from mxrun.io.tables.rows import RowBlock, RowPlaces, row_blocks
from mxrun.io.tables.table_columns import TableColumns
from mxrun.io.text.json_values import ENDINGS

__all__ = ["PLAIN", "TableForm", "TextTable", "parse_table", "read_table"]

T = TypeVar("T")

_SEPARATOR_LINE = re.compile(rb'"?sep=[\t -~]"?', re.IGNORECASE)
# Where a number such as 007 may begin; no decimals, exponents or days of ISO dates do.
_CODE = re.compile(rb"(?<![0-9.+\-eE])0[0-9]")
# Rows after the first that tell whether it names the columns.
_HEADER_ROWS = 100
# Blocks between two looks at the memory that is left.
_BLOCKS = 256


@dataclass(frozen=True)
class TextTable:
    """Columns read from a table, and the places of its rows.

    values: [rows, data columns] in the form's dtype if the columns are read as they are; else
    `features` has them. `names` are the names of these columns if there is a header, and `columns`
    their numbers. labels: float64 [rows], or [rows, n] of several columns; for words, indices into
    the sorted `classes`; `label_texts` instead if the form reads texts. label_columns: numbers of
    the label columns; `label_names`: their names if there is a header. notes: for the user.
    """

    values: NDArray[Any] | None
    features: FeatureTable | None
    names: tuple[str, ...]
    columns: tuple[int, ...]
    places: RowPlaces
    label_columns: tuple[int, ...] = ()
    labels: NDArray[np.float64] | None = None
    label_texts: Sequence[str] = ()
    classes: tuple[str, ...] = ()
    label_names: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Source:
    """File, or bytes in memory, that can be read several times; `name` is for messages."""

    name: str
    open: Callable[[], AbstractContextManager[TextBytes]]


def read_table(paths: Path | Sequence[Path], form: TableForm) -> TextTable:
    """Read a table from one text file, plain or compressed, or from several with the same columns.

    Empty lines are skipped. Raises UserError naming file, row (a line of the file, from 1), column
    (from 1) and byte.
    """
    return read_columns(paths, form, _table)


def read_columns(
    paths: Path | Sequence[Path],
    form: TableForm,
    finish: Callable[[TableLayout, TableColumns, RowPlaces, TableForm], T],
) -> T:
    """Read a table as `read_table` does and return what `finish` makes of its columns."""
    files = [paths] if isinstance(paths, Path) else paths
    return _read([_source(path, form.encoding) for path in files], form, HEADER_HINT, finish)


def first_row(path: Path, encoding: str) -> bytes | None:
    """Return the first row of a file that is not empty; None if there is none.

    encoding: the one declared. Raises UserError if it cannot be read or is not a text file.
    """
    source = _source(path, encoding)
    with report_unreadable(path), source.open() as stream:
        block = next(row_blocks(stream, str(path)), None)
    if block is None:
        return None
    _refuse_other_bytes(block, str(path), detected_delimiter(block.rows[0]))
    return block.rows[0]


def parse_table(content: bytes, path: Path | str, form: TableForm, hint: str) -> TextTable:
    """Parse the content of a table as `read_table` does.

    path: the file's name for error messages. hint: advice for a first row that is not numbers.
    """
    return _read([_in_memory(content, str(path), form.encoding)], form, hint, _table)


def _in_memory(content: bytes, name: str, encoding: str) -> _Source:
    return _Source(name, lambda: nullcontext(_unzipped(io.BytesIO(content), name, encoding)))


def _source(path: Path, encoding: str) -> _Source:
    with report_unreadable(path):
        mode = path.stat().st_mode
        if not stat.S_ISREG(mode):
            # A pipe can be read once only.
            return _in_memory(bytes(read_all_bytes(path)), str(path), encoding)
        check_memory(path, path.stat().st_size // 2)

    @contextmanager
    def opened() -> Iterator[TextBytes]:
        with path.open("rb") as stream:
            yield _unzipped(stream, str(path), encoding)

    return _Source(str(path), opened)


def _unzipped(stream: BinaryIO, name: str, encoding: str) -> TextBytes:
    """Return the UTF-8 bytes of a text file, plain or compressed; encoding: the one declared."""
    return text_stream(decompressed(stream, name), name, encoding)


@contextmanager
def report_unreadable(path: Path | str) -> Iterator[None]:
    """Context manager that turns errors of reading a file, plain or compressed, into UserError."""
    try:
        yield
    except EOFError as error:
        problem = f"{path}: cannot be read: the compressed file ends too early"
        raise UserError(Diagnostic(problem)) from error
    except DAMAGES as error:
        raise UserError(Diagnostic(f"{path}: cannot be read: damaged compressed data")) from error
    except (OSError, ValueError) as error:
        raise unreadable_error(path, error) from error


def _read(
    sources: Sequence[_Source],
    form: TableForm,
    hint: str,
    finish: Callable[[TableLayout, TableColumns, RowPlaces, TableForm], T],
) -> T:
    as_words: frozenset[int] = frozenset()
    while True:
        reading = _Reading(form, hint, as_words)
        for source in sources:
            reading.add_file(source)
        if not reading.words_found:
            return finish(*reading.end(), form)
        # Columns that look like numbers at first are read once more, as words.
        as_words |= reading.words_found


class _Reading:
    """One pass over the files of a table."""

    def __init__(self, form: TableForm, hint: str, as_words: frozenset[int]) -> None:
        self._form, self._problems = form, CellProblems(hint, form)
        self._as_words = as_words
        self._layout: TableLayout | None = None
        self._columns: TableColumns | None = None
        self._files: list[tuple[str, int]] = []
        self._lines: list[Sequence[int]] = []
        self._end = ""

    @property
    def words_found(self) -> frozenset[int]:
        """Columns of numbers in which a word was found after numbers."""
        return frozenset() if self._columns is None else self._columns.words_found

    def add_file(self, source: _Source) -> None:
        """Read a file. Raises UserError if it cannot be read or is no table."""
        form = self._form if self._layout is None else same_columns(self._layout, self._form)
        layout: TableLayout | None = None
        count = total = 0
        with report_unreadable(source.name), source.open() as stream:
            for number, block in enumerate(row_blocks(stream, source.name, form.delimiter), 1):
                total = block.offset + len(block.content)
                if number % _BLOCKS == 0:
                    check_memory(source.name, _BLOCKS * len(block.content))
                divider = form.delimiter.encode() or detected_delimiter(block.rows[0])
                _refuse_other_bytes(block, source.name, layout.divider if layout else divider)
                if layout is None:
                    layout = _first_layout(block, form, source.name)
                    if layout.has_header:
                        block = block.rest()
                    self._begin(layout)
                if block.rows:
                    count += self._add(block, layout, source.name)
        if layout is None and self._files:
            raise UserError(Diagnostic(f"{source.name}: the file holds no rows"))
        self._files.append((source.name, count))
        self._end = f"{source.name}: byte {total}"

    def _begin(self, layout: TableLayout) -> None:
        if self._columns is None:
            self._layout = layout
            self._columns = TableColumns(layout, self._form, self._as_words)

    def _add(self, block: RowBlock, layout: TableLayout, name: str) -> int:
        """Add the rows of a block; returns their number."""
        divider, width = layout.divider, layout.width
        assert self._columns is not None
        has_quotes = b'"' in block.content
        is_even = not has_quotes and {row.count(divider) for row in block.rows} == {width - 1}
        has_codes = self._form.codes and _CODE.search(block.content) is not None
        if is_even and not has_codes and self._columns.add_numbers(block.rows, layout):
            self._lines.append(block.compact_lines)
            return len(block.rows)
        cells = [
            split_row(row, divider) if has_quotes else row.split(divider) for row in block.rows
        ]
        is_open = [has_quotes and is_open_quote(each[-1]) for each in cells]
        if not is_even and (any(is_open) or any(len(each) != width for each in cells)):
            for at, each in enumerate(cells):
                if is_open[at]:
                    self._problems.add_open_quote(block, at, len(each), name)
                elif len(each) != width:
                    self._problems.add_width(block, at, len(each), width, name)
            # What follows is read for its own problems alone.
            kept = [at for at, each in enumerate(cells) if len(each) == width and not is_open[at]]
            cells = [cells[at] for at in kept]
            block = block.select(kept)
        if not cells:
            return 0
        columns = list(zip(*cells, strict=True))
        exact = b"_" in block.content
        for refused in self._columns.add(columns, layout, exact=exact, has_codes=has_codes):
            self._problems.add_cells(block, cells, refused, layout, name, not self._lines)
        self._lines.append(block.compact_lines)
        return len(cells)

    def end(self) -> tuple[TableLayout, TableColumns, RowPlaces]:
        """Return what was read. Raises UserError with all problems that were found."""
        self._problems.check()
        if self._layout is None or self._columns is None or not self._lines:
            raise UserError(Diagnostic(f"{self._end}: the file holds no rows of numbers"))
        return self._layout, self._columns, RowPlaces(tuple(self._files), tuple(self._lines))


def _table(
    layout: TableLayout, columns: TableColumns, places: RowPlaces, form: TableForm
) -> TextTable:
    labels, classes = columns.labels()
    return TextTable(
        values=columns.values() if form.is_plain else None,
        features=None if form.is_plain else columns.features(places),
        names=tuple(layout.name(column) for column in layout.columns) if layout.names else (),
        columns=layout.columns,
        places=places,
        label_columns=layout.labels,
        labels=labels,
        label_texts=columns.label_texts() if form.texts and layout.labels else (),
        classes=classes,
        label_names=tuple(map(layout.name, layout.labels)) if layout.names else (),
        notes=(*layout.notes, *columns.notes),
    )


def _first_layout(block: RowBlock, form: TableForm, name: str) -> TableLayout:
    if name.lower().endswith(ENDINGS) and block.rows[0].lstrip()[:1] in (b"[", b"{"):
        problem = f"{name}:{block.lines[0]}: JSON, not a table"
        hint = "convert it: pandas.read_json(FILE).to_csv(TABLE), of JSON lines with lines=True"
        raise UserError(Diagnostic(problem, None, "rows of cells", hint=hint))
    if _SEPARATOR_LINE.fullmatch(block.rows[0]):
        problem = f"{name}:{block.lines[0]}: the line names a separator, as Excel writes it"
        got, hint = repr(block.rows[0].decode()), "remove this line"
        raise UserError(Diagnostic(problem, None, "the columns' names, or values", got, hint=hint))
    others = block.rows[1 : 1 + _HEADER_ROWS]
    return find_layout((block.rows[0], int(block.lines[0])), others, form, name)


def _refuse_other_bytes(block: RowBlock, name: str, divider: bytes) -> None:
    """Raise UserError naming the first cell of a block with a byte 0, or that is not UTF-8."""
    with suppress(UnicodeDecodeError):
        if "\0" not in block.content.decode():
            return
    for at, row in enumerate(block.rows):
        try:
            end = len(row.decode().partition("\0")[0].encode())
        except UnicodeDecodeError as error:
            end = error.start
        if end < len(row):
            where = block.where(name, at, row[:end].count(divider) + 1, end)
            refuse_byte(where, row[end], declare=DECLARE)
