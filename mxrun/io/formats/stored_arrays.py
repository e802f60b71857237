"""Arrays in files, .npy or uncompressed in .npz, whose records are read one by one.

NumPy maps .npy files only. An uncompressed member of an archive has its bytes in one piece as well,
after the local header of the ZIP format (PKWARE's APPNOTE, 4.3.7), which is checked against the
archive's directory.
"""

from __future__ import annotations

import io
import struct
import zipfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mxrun.base.dataclass import dataclass
from mxrun.base.errors import Diagnostic, UserError
from mxrun.base.tensor import Shape, TensorSpec
from mxrun.io.convert import first_unrepresentable, valid_range
from mxrun.io.dataset.fields import ArrayReader, LazyField, pixel_column
from mxrun.io.dataset.location import RecordLocation
from mxrun.io.files import fail
from mxrun.io.formats.byte_file import ByteFile
from mxrun.io.formats.content_digest import content_digest
from mxrun.io.formats.extents import Int64, PlainArrays, small_extents
from mxrun.io.formats.npy import NpyHeader, find_member, open_archive, read_npy_header

_LOCAL_HEADER = struct.Struct("<4s22xHH")
_LOCAL_MAGIC = b"PK\x03\x04"
_MAX_HEADER = 1 << 17
# Bit of a member's flags: encrypted.
_ENCRYPTED = 1


@dataclass(frozen=True, eq=False)
class StoredArray:
    """Array [records, ...] in C order whose bytes begin at `start` of a file.

    name: that of the array, for messages.
    """

    file: ByteFile
    name: str
    header: NpyHeader
    start: int

    @property
    def record_bytes(self) -> int:
        """Bytes of one record."""
        return self.header.data_bytes // self.header.shape[0]

    def record(self, number: int) -> NDArray[Any]:
        """Return a record in native byte order; thread-safe."""
        size = self.record_bytes
        content = self.file.read(self.start + number * size, size)
        dtype = self.header.dtype
        record = np.frombuffer(content, dtype).reshape(self.header.shape[1:])
        return record.astype(dtype.newbyteorder("="), copy=False)

    def locate(self, number: int) -> RecordLocation:
        """Return the place of a record."""
        return RecordLocation(self.name, number, self.start + number * self.record_bytes)


def stored_npy(path: Path) -> StoredArray:
    """Return the array of a .npy file.

    Raises UserError unless the file holds exactly the array that its header announces, with at
    least one record, in C order.
    """
    file = ByteFile(path)
    return _stored(file, str(path), 0, file.size)


def stored_npz(path: Path, name: str) -> StoredArray:
    """Return an array of an archive; raises UserError as `stored_npy`, and if it is compressed."""
    with open_archive(path) as archive:
        info = find_member(archive, path, name)
    shown = f"{path}: {name}.npy"
    if info.compress_type != zipfile.ZIP_STORED or info.flag_bits & _ENCRYPTED:
        problem = f"{shown}: the array is compressed: its records cannot be read one by one"
        hint = "write it with numpy.savez, or read it at once: in_memory: true"
        raise UserError(Diagnostic(problem, None, "an array without compression", hint=hint))
    file = ByteFile(path)
    local = file.read(info.header_offset, _LOCAL_HEADER.size)
    magic, name_bytes, extra_bytes = _LOCAL_HEADER.unpack(local)
    if magic != _LOCAL_MAGIC or info.compress_size != info.file_size:
        fail(path, info.header_offset, f"the archive is damaged at {name}.npy")
    start = info.header_offset + _LOCAL_HEADER.size + name_bytes + extra_bytes
    return _stored(file, shown, start, info.file_size)


def array_column(
    parts: Sequence[StoredArray], spec: TensorSpec, white: float | None = None
) -> LazyField:
    """Return arrays [records, ...] of one record shape, one after the other, as a column.

    It has the form that `array_field` gives arrays in memory. Raises UserError for arrays of
    different shapes or dtypes.
    """
    first = parts[0]
    shape, dtype = first.header.shape[1:], first.header.dtype
    for part in parts:
        if part.header.shape[1:] != shape or part.header.dtype != dtype:
            problem = f"{part.name}: the records are not like those of {first.name}"
            expected, got = f"{dtype} {list(shape)}", f"{part.header.dtype} "
            raise UserError(
                Diagnostic(problem, None, expected, got + str([*part.header.shape[1:]]))
            )
    are_bytes = dtype == np.uint8 and spec.dtype == "float32"
    ends = np.cumsum([part.header.shape[0] for part in parts])
    rows = spec.shape if spec.shape == (1, *shape) else shape
    convert = None if are_bytes else spec.dtype
    column = LazyField(
        partial(_read, parts, ends, rows, convert),
        int(ends[-1]),
        rows,
        "uint8" if are_bytes else spec.dtype,
        1.0 if are_bytes else None,
        content=partial(_digest, parts),
        read_arrays=_array_reader(parts, ends, rows, convert),
        locate=partial(_locate, parts, ends),
    )
    return column if white is None else pixel_column(column, white, parts[0].name)


def _array_reader(
    parts: Sequence[StoredArray], ends: Int64, shape: Shape, convert: str | None
) -> ArrayReader | None:
    """Return the reader of many records at once, if there is one for small ones of this dtype."""
    dtype, size = parts[0].header.dtype, parts[0].record_bytes
    if convert is not None and dtype != np.dtype(convert):
        return None
    starts = np.array([part.start for part in parts])
    begins = np.concatenate([[0], ends[:-1]])

    def find(numbers: Int64) -> tuple[Int64, Int64, Int64]:
        at = np.searchsorted(ends, numbers, side="right")
        return at, starts[at] + (numbers - begins[at]) * size, np.full(len(numbers), size)

    extents = small_extents([part.file for part in parts], find, size)
    return None if extents is None else PlainArrays(extents, b"", shape, dtype).read


def _stored(file: ByteFile, name: str, start: int, size: int) -> StoredArray:
    """Return the array in the `size` bytes from `start` of a file."""
    head = file.read(start, min(size, _MAX_HEADER))
    header = read_npy_header(io.BytesIO(head), name)
    if header.offset + header.data_bytes != size:
        problem = f"the header announces {header.dtype} {list(header.shape)}"
        got = f"{size - header.offset} bytes after the header"
        fail(name, header.offset, problem, f"{header.data_bytes} bytes", got)
    if header.column_major and len(header.shape) > 1:
        problem = f"{name}: the records of an array in Fortran order are not in one piece"
        hint = "write numpy.ascontiguousarray(array), or read it at once: in_memory: true"
        raise UserError(Diagnostic(problem, None, "an array in C order", hint=hint))
    if not header.shape or not header.data_bytes:
        problem = f"{name}: the array has no records"
        raise UserError(Diagnostic(problem, None, "[records, ...]", str(list(header.shape))))
    return StoredArray(file, name, header, start + header.offset)


def _read(
    parts: Sequence[StoredArray],
    ends: NDArray[np.int64],
    shape: tuple[int, ...],
    dtype: str | None,
    index: int,
) -> NDArray[Any]:
    """Return a record, converted to `dtype` unless it is None."""
    part, number = _part(parts, ends, index)
    record = part.record(number).reshape(shape)
    if dtype is None:
        return record
    at = first_unrepresentable(record, dtype)
    if at is not None:
        problem = f"{part.locate(number)}: the record cannot be converted to {dtype}"
        got = str(record.reshape(-1)[at])
        raise UserError(Diagnostic(problem, None, valid_range(dtype), got))
    return record.astype(dtype, copy=False)


def _part(
    parts: Sequence[StoredArray], ends: NDArray[np.int64], index: int
) -> tuple[StoredArray, int]:
    """Return the array that holds a record, and its number there."""
    at = int(np.searchsorted(ends, index, side="right"))
    return parts[at], index - (int(ends[at - 1]) if at else 0)


def _locate(parts: Sequence[StoredArray], ends: NDArray[np.int64], index: int) -> RecordLocation:
    part, number = _part(parts, ends, index)
    return part.locate(number)


def _digest(parts: Sequence[StoredArray]) -> str:
    return content_digest([(b"", part.file.path) for part in parts])
