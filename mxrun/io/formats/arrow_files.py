"""Parquet files and Arrow's own (IPC, Feather), read group by group with pyarrow.

A group is a row group or a record batch. pyarrow is an extra: it is imported when a file is opened.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from mxrun.base.errors import Diagnostic, UserError
from mxrun.base.locks import new_lock
from mxrun.base.near_names import listed, nearest
from mxrun.io.files import fail, unreadable_error

_PARQUET, _ARROW = b"PAR1", b"ARROW1"
# Byte after the magic number and its padding.
_STREAM_START = 8


class GroupReader(Protocol):
    """Open file: its schema, the rows of its groups, and their tables."""

    @property
    def schema(self) -> Any: ...

    @property
    def rows(self) -> Sequence[int]: ...

    def table(self, group: int, columns: Sequence[str]) -> Any:
        """Return a group's columns as a pyarrow table."""


class ArrowFile:
    """Parquet or Arrow file whose groups are read by several threads.

    `rows` has the number of rows of each group, `schema` pyarrow's schema, `names` those of the
    columns. Raises UserError without
    pyarrow, and for a file that is neither.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = new_lock()
        with reported(path):
            self._reader = _open(path)
            self.schema = self._reader.schema
            self.names = tuple(self.schema.names)
            self.rows = tuple(self._reader.rows)

    def check_column(self, name: str) -> None:
        """Raise UserError, listing the columns, unless there is one of this name."""
        names = self.names
        if names.count(name) != 1:
            problem = f"{self.path}: no column is named {name!r}"
            if name in names:
                problem = f"{self.path}: several columns are named {name!r}"
            hint = nearest(name, names) or "`columns` names the column of each input"
            raise UserError(Diagnostic(problem, None, f"one of {listed(names)}", name, hint=hint))

    def read(self, group: int, columns: Sequence[str]) -> Any:
        """Return a group's columns as a pyarrow table, checked; raises UserError if damaged."""
        with self._lock, reported(self.path):
            table = self._reader.table(group, list(dict.fromkeys(columns)))
            # Offsets in the file would otherwise be trusted when a value is read.
            table.validate(full=True)
        if table.num_rows != self.rows[group]:
            problem = f"{self.path}: group {group} has other rows than announced"
            expected = f"{self.rows[group]} rows"
            raise UserError(Diagnostic(problem, None, expected, f"{table.num_rows} rows"))
        return table


class _ParquetReader:
    """Row groups of a Parquet file."""

    def __init__(self, path: Path) -> None:
        import pyarrow.parquet

        self._file = pyarrow.parquet.ParquetFile(path, page_checksum_verification=True)
        metadata = self._file.metadata
        self.schema = self._file.schema_arrow
        self.rows = [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]
        if sum(self.rows) != metadata.num_rows or min(self.rows, default=0) < 0:
            fail(path, 0, "the numbers of rows in the file's metadata contradict each other")

    def table(self, group: int, columns: Sequence[str]) -> Any:
        return self._file.read_row_group(group, columns=list(columns), use_threads=False)


class _BatchReader:
    """Record batches of an Arrow file."""

    def __init__(self, path: Path) -> None:
        import pyarrow

        self._arrow = pyarrow
        self._file = pyarrow.ipc.open_file(pyarrow.OSFile(str(path)))
        self.schema = self._file.schema
        # The batches are also in the file as a stream. The footer has no number of rows, so that
        # this alone tells whether it lists all batches. Only their headers are read.
        with pyarrow.memory_map(str(path)) as stream:
            stream.seek(_STREAM_START)
            self.rows = [batch.num_rows for batch in pyarrow.ipc.open_stream(stream)]
        if len(self.rows) != self._file.num_record_batches:
            got = f"{self._file.num_record_batches} in the footer"
            fail(path, 0, "the file's list of batches is damaged", f"{len(self.rows)} batches", got)

    def table(self, group: int, columns: Sequence[str]) -> Any:
        batch = self._file.get_batch(group)
        return self._arrow.Table.from_batches([batch]).select(list(columns))


def _open(path: Path) -> GroupReader:
    try:
        import pyarrow  # noqa: F401
    except ImportError as error:
        problem = f"{path}: Parquet and Arrow files are read with pyarrow, which is not installed"
        hint = "pip install 'mxrun[arrow]'"
        raise UserError(Diagnostic(problem, None, "pyarrow", hint=hint)) from error
    with path.open("rb") as stream:
        start = stream.read(len(_ARROW))
    if start.startswith(_PARQUET):
        return _ParquetReader(path)
    if start != _ARROW:
        fail(path, 0, "neither a Parquet nor an Arrow file", "PAR1 or ARROW1", repr(start))
    return _BatchReader(path)


@contextmanager
def reported(path: Path) -> Iterator[None]:
    """Raise UserError naming the file for what pyarrow raises on damaged files."""
    try:
        yield
    except MemoryError as error:
        problem = f"{path}: damaged, or larger than memory"
        raise UserError(Diagnostic(problem, got=_first_line(error))) from error
    except OSError as error:
        if error.errno is not None:
            raise unreadable_error(path, error) from error
        raise UserError(Diagnostic(f"{path}: damaged", got=_first_line(error))) from error
    except (ValueError, TypeError, LookupError, NotImplementedError, OverflowError) as error:
        raise UserError(Diagnostic(f"{path}: damaged", got=_first_line(error))) from error


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0][:200]
