"""Reader of NumPy's array format, plain (.npy) and in an archive (.npz), for untrusted files.

Only arrays of numbers are read, and of words where they are wanted; no code in a file is executed.
Source of the format: NumPy's `numpy.lib.format`.
"""

from __future__ import annotations

import math
import re
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mxrun.base.errors import Diagnostic, UserError
from mxrun.base.near_names import nearest
from mxrun.io.files import MAXIMUM_BYTES, check_memory, fail

_CHUNK = 1 << 20
MAGIC = b"\x93NUMPY"
# Number of bytes of the header's length field, by format version.
_LENGTHS = {b"\x01\x00": 2, b"\x02\x00": 4, b"\x03\x00": 4}
_MAX_HEADER_BYTES = 1 << 16
_DESCR = re.compile(r"'descr'\s*:\s*('[^']{1,20}'|[^']{1,20}|.{1,20})")
_ORDER = re.compile(r"'fortran_order'\s*:\s*(True|False)\b")
_SHAPE = re.compile(r"'shape'\s*:\s*\(((?:\s*[0-9]{1,19}\s*,){0,32}\s*(?:[0-9]{1,19})?\s*)\)")
_NUMBERS = re.compile(r"'[<>|=]?(?:b1|[iu][1248]|f[248])'")
# Words of one length, shorter ones filled up with zeros: as bytes, or as characters of 4 bytes.
_WORDS = re.compile(r"'[<>|=]?[SU][1-9][0-9]{0,5}'")
_OBJECTS = re.compile(r"'\|?O8?'")


class NpyHeader(NamedTuple):
    """Header of an array: its shape, dtype and order, and the byte offset of its elements.

    column_major: whether the elements are in column-major (Fortran) order.
    """

    shape: tuple[int, ...]
    column_major: bool
    dtype: np.dtype[Any]
    offset: int

    @property
    def data_bytes(self) -> int:
        """Bytes of the elements."""
        return math.prod(self.shape) * self.dtype.itemsize


def read_npy(stream: IO[bytes], name: Path | str, words: bool = False) -> NDArray[Any]:
    """Read one array of integers, booleans or floating-point numbers, in C order.

    name: the file's name for error messages; words: whether it may also be one of words. Memory
    grows with the data that is present, not with the size in the header. Raises UserError naming
    file and byte offset.
    """
    shape, column_major, dtype, offset = read_npy_header(stream, name, words)
    expected = math.prod(shape) * dtype.itemsize
    if expected > MAXIMUM_BYTES:
        limit, got = f"at most {MAXIMUM_BYTES} bytes", f"{dtype} {list(shape)}"
        hint = "an array without compression is read while training runs: in_memory: false"
        fail(name, 0, "the header announces too much data", limit, got, hint=hint)
    content = bytearray()
    while len(content) < expected + 1:
        chunk = stream.read(min(_CHUNK, expected + 1 - len(content)))
        if not chunk:
            break
        content += chunk
    if len(content) != expected:
        problem = f"the header announces {dtype} {list(shape)}"
        got = "more" if len(content) > expected else f"{len(content)} bytes after the header"
        fail(name, offset + min(len(content), expected), problem, f"{expected} bytes", got)
    array = np.frombuffer(content, dtype).reshape(shape, order="F" if column_major else "C")
    # `ascontiguousarray` alone would turn a scalar into an array of one dimension.
    return np.ascontiguousarray(array, dtype.newbyteorder("=")).reshape(shape)


def read_npz(path: Path, names: tuple[str, ...], words: bool = False) -> dict[str, NDArray[Any]]:
    """Read the named arrays of an archive; raises UserError naming archive, array and byte offset.

    words: whether they may also be arrays of words. No data is read if the arrays, by their
    headers, do not fit into memory together.
    """
    with open_archive(path) as archive:
        check_memory(path, sum(_needed(archive, path, name, words) for name in names))
        return {name: _member(archive, path, name, words) for name in names}


def npz_shapes(
    path: Path, words: bool = False
) -> tuple[dict[str, tuple[tuple[int, ...], np.dtype[Any]]], list[Diagnostic]]:
    """Return shape and dtype of each array of numbers, and the problems of what is none.

    words: whether they may also be arrays of words. Headers alone are read. Raises UserError if the
    file cannot be read.
    """
    with open_archive(path) as archive:
        found, problems = {}, []
        for member in archive.namelist():
            if not member.endswith(".npy"):
                problem = f"{path}: {member}: not an array"
                problems.append(Diagnostic(problem, None, "files that end in .npy"))
                continue
            name = member.removesuffix(".npy")
            try:
                with _opened(archive, path, name) as (stream, shown):
                    header = read_npy_header(stream, shown, words)
                found[name] = (header.shape, header.dtype)
            except UserError as error:
                problems += error.diagnostics
        return found, problems


@contextmanager
def open_archive(path: Path) -> Iterator[zipfile.ZipFile]:
    """Open an archive; raises UserError if it cannot be read, now or in the context's block."""
    try:
        with zipfile.ZipFile(path) as archive:
            yield archive
    except zipfile.BadZipFile as error:
        fail(path, 0, f"not an archive of arrays: {error}", "a file that numpy.savez wrote")
    except (OSError, ValueError, NotImplementedError, RuntimeError, EOFError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UserError(f"{path}: cannot be read: {reason}") from error


def find_member(archive: zipfile.ZipFile, path: Path, name: str) -> zipfile.ZipInfo:
    """Return the entry of an array; raises UserError, listing the arrays, if there is none."""
    arrays = [each.removesuffix(".npy") for each in archive.namelist() if each.endswith(".npy")]
    if name not in arrays:
        has = f"one of {', '.join(arrays)}" if arrays else "an archive of arrays"
        hint = nearest(name, arrays)
        raise UserError(
            Diagnostic(f"{path}: no array is named {name!r}", None, has, name, hint=hint)
        )
    return archive.getinfo(f"{name}.npy")


@contextmanager
def _opened(archive: zipfile.ZipFile, path: Path, name: str) -> Iterator[tuple[IO[bytes], str]]:
    """Open an array's file in an archive; yields the stream and its name for error messages.

    Raises UserError if the archive has no such array, or if the data read from it is damaged.
    """
    find_member(archive, path, name)
    shown = f"{path}: {name}.npy"
    with archive.open(f"{name}.npy") as stream:
        try:
            yield stream, shown
        except (zipfile.BadZipFile, zlib.error, EOFError) as error:
            fail(shown, stream.tell(), f"damaged: {error}")


def _member(archive: zipfile.ZipFile, path: Path, name: str, words: bool) -> NDArray[Any]:
    with _opened(archive, path, name) as (stream, shown):
        return read_npy(stream, shown, words)


def _needed(archive: zipfile.ZipFile, path: Path, name: str, words: bool) -> int:
    """Return the bytes of memory needed to read an array.

    This is the array itself, its conversion to float32 or int32, and one boolean per number for the
    range check.
    """
    with _opened(archive, path, name) as (stream, shown):
        header = read_npy_header(stream, shown, words)
    stated, dtype = header.data_bytes, header.dtype
    info = archive.getinfo(f"{name}.npy")
    if info.compress_type == zipfile.ZIP_STORED:
        # The header may announce more data than the file has; that error is reported on reading.
        stated = min(stated, info.file_size)
    converted = dtype not in (np.dtype("u1"), np.dtype("f4"), np.dtype("i4"))
    return stated + stated // dtype.itemsize * (1 + 4 * converted)


def read_npy_header(stream: IO[bytes], name: Path | str, words: bool = False) -> NpyHeader:
    """Read the header of an array from the beginning of a stream.

    words: whether the array may be one of words. Raises UserError naming the byte at which it is
    damaged. The header is a Python literal. It is searched for its three entries and never
    evaluated.
    """
    start = stream.read(len(MAGIC) + 2)
    width = _LENGTHS.get(start[len(MAGIC) :], 0)
    if not start.startswith(MAGIC) or not width:
        fail(name, 0, "not a NumPy array", "a file that numpy.save wrote", start.hex(" "))
    length = int.from_bytes(stream.read(width), "little")
    text = stream.read(min(length, _MAX_HEADER_BYTES)).decode("latin-1")
    offset = len(start) + width
    found = [_match(pattern, text) for pattern in (_DESCR, _ORDER, _SHAPE)]
    if len(text) < length or None in found:
        fail(name, offset, "the header is damaged", "descr, fortran_order and shape", text[:80])
    descr, order, shape = map(str, found)
    if not (_NUMBERS.fullmatch(descr) or (words and _WORDS.fullmatch(descr))):
        expected = "integers or floating-point numbers" + ("; labels: words, too" if words else "")
        hint = "save labels of words with dtype=str" if _OBJECTS.fullmatch(descr) and words else ""
        fail(name, offset, "unsupported dtype", expected, descr, hint=hint)
    sizes = tuple(int(size) for size in shape.split(",") if size.strip())
    return NpyHeader(sizes, order == "True", np.dtype(descr.strip("'")), offset + length)


def _match(pattern: re.Pattern[str], text: str) -> str | None:
    found = pattern.search(text)
    return found[1] if found else None
