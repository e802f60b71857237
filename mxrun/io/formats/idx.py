"""Reader of the IDX file format: magic number, big-endian dimensions, row-major elements.

Bytes 0-1 are zero, byte 2 is the element type (0x08: unsigned byte), byte 3 is the number of
dimensions, and each dimension takes 4 bytes. Source: Y. LeCun's description of the MNIST files.
"""

from __future__ import annotations

import gzip
import math
import zlib
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from mxrun.io.files import fail, unreadable_error

Stream = BinaryIO | gzip.GzipFile

# Upper bound on the size that a header announces, against decompression bombs; MNIST's largest file
# holds 47 MB.
MAXIMUM_BYTES = 1 << 30

_GZIP_MAGIC = b"\x1f\x8b"
_CHUNK = 1 << 16
_TYPES = {0x08: "uint8", 0x09: "int8", 0x0B: "int16", 0x0C: "int32", 0x0D: "float", 0x0E: "double"}


def read_idx(path: Path, dimensions: tuple[int | None, ...]) -> NDArray[np.uint8]:
    """Read a file of unsigned bytes, plain or gzip as detected from its content, as a read-only
    array.

    `dimensions` are the expected ones, None where any size is allowed. Memory grows with the data
    that is present, not with the size in the header. Raises UserError naming the file and the
    offset (into the decompressed data) unless the file holds one complete array.
    """
    try:
        with path.open("rb") as file:
            packed = file.read(2) == _GZIP_MAGIC
            file.seek(0)
            if not packed:
                return _parse(file, path, dimensions)
            with gzip.GzipFile(fileobj=file, mode="rb") as unpacked:
                return _parse(unpacked, path, dimensions)
    except OSError as error:
        raise unreadable_error(path, error) from error


def _parse(stream: Stream, path: Path, expected_shape: tuple[int | None, ...]) -> NDArray[np.uint8]:
    size = 4 + 4 * len(expected_shape)
    header = _read(stream, path, 0, size)
    if not header:
        expected = f"an IDX file of {len(expected_shape)} dimensions"
        fail(path, 0, "the file is empty", expected, "0 bytes")
    _check_magic(path, header, len(expected_shape))
    if len(header) < size:
        fail(path, len(header), "the file ends inside the header", f"{size} bytes", f"{header!r}")
    shape = tuple(
        int.from_bytes(header[offset : offset + 4], "big") for offset in range(4, size, 4)
    )
    for axis, (have, want) in enumerate(zip(shape, expected_shape, strict=True)):
        if have == 0 or (want is not None and have != want):
            expected = "at least 1" if want is None else str(want)
            fail(path, 4 + 4 * axis, f"dimension {axis} is wrong", expected, str(have))
    count = math.prod(shape)
    if count > MAXIMUM_BYTES:
        fail(path, 4, "the header announces too much data", f"<= {MAXIMUM_BYTES} bytes", f"{count}")
    # Requesting one byte more than expected also makes gzip reach its end and verify its checksum.
    body = _read(stream, path, size, count + 1)
    if len(body) < count:
        problem = f"the file ends early: the header announces {list(shape)}"
        fail(path, size + len(body), problem, f"{size + count} bytes", f"{size + len(body)} bytes")
    if len(body) > count:
        problem = f"the file has more data than the header announces, {list(shape)}"
        fail(path, size + count, problem, f"{size + count} bytes", "more")
    records = np.frombuffer(body, np.uint8).reshape(shape)
    records.setflags(write=False)
    return records


def _check_magic(path: Path, header: bytearray, rank: int) -> None:
    if header[:2] != b"\0\0"[: len(header)]:
        got = header[:4].hex(" ")
        fail(path, 0, "not an IDX file", f"00 00 08 {rank:02x}", got)
    if len(header) > 2 and header[2] != 0x08:
        got = _TYPES.get(header[2], f"0x{header[2]:02x}")
        fail(path, 2, "wrong element type", "uint8 (0x08)", got)
    if len(header) > 3 and header[3] != rank:
        fail(path, 3, "wrong number of dimensions", str(rank), str(header[3]))


def _read(stream: Stream, path: Path, offset: int, limit: int) -> bytearray:
    """Read up to `limit` bytes in chunks."""
    data = bytearray()
    try:
        while len(data) < limit:
            chunk = stream.read(min(_CHUNK, limit - len(data)))
            if not chunk:
                break
            data += chunk
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        fail(path, offset + len(data), f"damaged gzip data follows: {error}")
    return data
