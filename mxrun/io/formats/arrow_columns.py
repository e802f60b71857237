"""Columns of Parquet and Arrow files as columns of a data set: numbers, lists, words, images."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mxrun.base.dataclass import dataclass
from mxrun.base.errors import Diagnostic, UserError
from mxrun.base.locks import new_lock
from mxrun.io.dataset.fields import LazyField
from mxrun.io.dataset.location import RecordLocation
from mxrun.io.files import check_memory
from mxrun.io.formats.arrow_files import ArrowFile, reported
from mxrun.io.formats.byte_file import ByteFile
from mxrun.io.formats.content_digest import content_digest
from mxrun.io.images.encoded import EncodedImage
from mxrun.runtime.memory_limits import remaining_bytes

# Groups of images that stay in memory if all of them are too large for it.
_FEW_GROUPS = 4
# All images stay in memory if their files take at most this share of what is left of it.
_SHARE = 4
_BYTES = "bytes"


@dataclass(frozen=True, eq=False)
class ArrowTable:
    """Parquet or Arrow files of the same columns, one after the other."""

    files: tuple[ArrowFile, ...]

    def __len__(self) -> int:
        return sum(sum(file.rows) for file in self.files)

    def check(self, names: Sequence[str]) -> None:
        """Raise UserError unless all files have the columns, with the same types, and records."""
        for file in self.files:
            for name in names:
                file.check_column(name)
                with reported(file.path):
                    own, first = (each.schema.field(name).type for each in (file, self.files[0]))
                if own != first:
                    problem = f"{file.path}: column {name!r} has another type"
                    raise UserError(Diagnostic(problem, None, str(first), str(own)))
            if not sum(file.rows):
                raise UserError(Diagnostic(f"{file.path}: holds no records", None, "rows"))

    def locate(self, record: int) -> RecordLocation:
        """Return the place of a record."""
        file, number = self._find(record)
        return RecordLocation(str(self.files[file].path), number)

    def is_image(self, name: str) -> bool:
        """Return whether a column holds bytes, or structures with bytes, as images are stored."""
        file = self.files[0]
        with reported(file.path):
            return _bytes_type(file.schema.field(name).type) is not None

    def numbers(self, name: str) -> NDArray[Any] | list[str]:
        """Return a column as an array [records, ...] of numbers, or as a list of words.

        Raises UserError naming the first record without a value, and for other types.
        """
        parts = [self._part(at, name) for at in range(len(self.files))]
        if all(isinstance(part, list) for part in parts):
            return [word for part in parts for word in part]
        return np.concatenate(parts)

    def class_names(self, name: str) -> tuple[str, ...]:
        """Return the names of a column of class numbers, as Hugging Face's data sets write them."""
        metadata = self.files[0].schema.metadata or {}
        try:
            features = json.loads(metadata[b"huggingface"])["info"]["features"]
            names = tuple(map(str, features[name]["names"]))
        except (KeyError, TypeError, ValueError, RecursionError):
            return ()
        return names if len(set(names)) == len(names) else ()

    def image_column(self, name: str, channels: int) -> LazyField:
        """Return a column of encoded images as a column that is scaled to 0..1."""
        total = sum(ByteFile(file.path, stays_open=False).size for file in self.files)
        is_small = total <= remaining_bytes() // _SHARE
        images = _Images(self, name, None if is_small else _FEW_GROUPS)
        return LazyField.images(
            images.read,
            len(self),
            (channels, None, None),
            content=partial(_digest, [file.path for file in self.files]),
            locate=self.locate,
        )

    def group_of(self, record: int) -> tuple[int, int, int]:
        """Return the file and the group of a record, and its number in the group."""
        file, number = self._find(record)
        ends = np.cumsum(self.files[file].rows)
        group = int(np.searchsorted(ends, number, side="right"))
        return file, group, number - (int(ends[group - 1]) if group else 0)

    def _find(self, record: int) -> tuple[int, int]:
        """Return the file of a record and its number in the file."""
        ends = np.cumsum([sum(file.rows) for file in self.files])
        file = int(np.searchsorted(ends, record, side="right"))
        return file, record - (int(ends[file - 1]) if file else 0)

    def _part(self, at: int, name: str) -> NDArray[Any] | list[str]:
        """Return a column of one file."""
        file = self.files[at]
        width = _list_width(file.schema.field(name).type)
        check_memory(file.path, 2 * 8 * sum(file.rows) * width)
        columns = [file.read(group, [name]).column(0) for group in range(len(file.rows))]
        first = sum(sum(each.rows) for each in self.files[:at])
        for column in columns:
            _check_complete(column, name, first, self)
            first += len(column)
        with reported(file.path):
            parts = [_values(column, f"{file.path}: column {name!r}") for column in columns]
        if all(isinstance(part, list) for part in parts):
            return [word for part in parts for word in part]
        shapes = {part.shape[1:] for part in parts if isinstance(part, np.ndarray) and len(part)}
        if len(shapes) > 1:
            problem = f"{file.path}: column {name!r} has lists of different lengths"
            raise UserError(Diagnostic(problem, None, "lists of one length"))
        return np.concatenate([part for part in parts if len(part)])


class _Images:
    """Encoded images of a column; as many groups as `groups`, or all, stay in memory."""

    def __init__(self, table: ArrowTable, name: str, groups: int | None) -> None:
        self._table, self._name = table, name
        self._lock = new_lock()
        self._group = lru_cache(maxsize=groups)(self._read_group)

    def read(self, record: int) -> EncodedImage:
        """Return the image of a record; thread-safe."""
        file, group, number = self._table.group_of(record)
        # One thread reads a group, the others wait for it instead of reading it, too.
        with self._lock:
            content = self._group(file, group)[number].as_py()
        where = str(self._table.locate(record))
        if isinstance(content, Mapping):
            content = content[_BYTES]
        if content is None:
            problem = f"{where}: column {self._name!r} has no image"
            hint = "the images may be files of their own: they must be in the table"
            raise UserError(Diagnostic(problem, None, "the bytes of an image file", hint=hint))
        return EncodedImage(content, where)

    def _read_group(self, file: int, group: int) -> Any:
        return self._table.files[file].read(group, [self._name]).column(0)


def _digest(paths: Sequence[Path]) -> str:
    return content_digest([(b"", path) for path in paths])


def _bytes_type(type: Any) -> Any:
    """Return the type of the bytes in a column of images; None for other columns."""
    from pyarrow import types

    if types.is_struct(type):
        names = [type.field(at).name for at in range(type.num_fields)]
        return _bytes_type(type.field(_BYTES).type) if _BYTES in names else None
    is_bytes = types.is_binary(type) or types.is_large_binary(type)
    return type if is_bytes else None


def _list_width(type: Any) -> int:
    """Return the numbers of a record of a column, as far as its type tells."""
    from pyarrow import types

    if types.is_fixed_size_list(type):
        return max(1, int(type.list_size)) * _list_width(type.value_type)
    return 1


def _check_complete(column: Any, name: str, first: int, table: ArrowTable) -> None:
    """Raise UserError naming the first record without a value; first: that of the column."""
    if not column.null_count:
        return
    record = first + int(np.argmax(column.is_null().to_numpy(zero_copy_only=False)))
    problem = f"{table.locate(record)}: column {name!r} has no value"
    raise UserError(Diagnostic(problem, None, "a value in each row"))


def _values(column: Any, where: str) -> NDArray[Any] | list[str]:
    """Return a chunked array as numbers [rows, ...], or as words."""
    from pyarrow import types

    kind = column.type
    if types.is_dictionary(kind):
        column, kind = column.cast(kind.value_type), kind.value_type
    if types.is_string(kind) or types.is_large_string(kind):
        return [str(word) for word in column.to_pylist()]
    shape: tuple[int, ...] = ()
    array = column.combine_chunks()
    while types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        rows = len(array)
        values = array.flatten()
        width = len(values) // max(1, rows)
        lengths = array.value_lengths().to_numpy(zero_copy_only=False)
        if values.null_count or (lengths != width).any():
            problem = f"{where} has lists of different lengths, or without a value"
            raise UserError(Diagnostic(problem, None, f"lists of {width} numbers"))
        shape, array, kind = (*shape, width), values, kind.value_type
    is_decimal = types.is_decimal(kind)
    array = array.cast("float64") if is_decimal else array
    if is_decimal or types.is_boolean(kind) or types.is_integer(kind) or types.is_floating(kind):
        found: NDArray[Any] = array.to_numpy(zero_copy_only=False)
        return found.reshape(len(column), *shape)
    problem, hint = f"{where} holds neither numbers nor words", ""
    if types.is_temporal(kind):
        problem = f"{where} holds dates or times"
        hint = "write days as numbers, or the table as CSV: `columns` then reads and scales dates"
    expected = "numbers, lists of numbers, words"
    raise UserError(Diagnostic(problem, None, expected, str(column.type), hint=hint))
