"""RecordIO files (.rec) and their index files (.idx), as MXNet writes and reads them.

A record is one part, or several if its payload contains the magic number at a multiple of 4 bytes:
the payload is split there, and the magic numbers in it are left out. A part is the magic number, a
word whose upper 3 bits tell which part of a record it is and whose lower 29 bits are the part's
length in bytes, and the bytes, padded with zeros to a multiple of 4. Words are little-endian. An
index file has a line of key, tab and byte offset for each record. Source of the format: dmlc-core's
`recordio.h`.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np

from mxrun.base.errors import Diagnostic, UserError
from mxrun.io.files import fail, read_all_bytes
from mxrun.io.formats.byte_file import ByteFile

MAXIMUM_PAYLOAD = (1 << 29) - 1
MAGIC = b"\x0a\x23\xd7\xce"
_HEADER = struct.Struct("<4sI")
PART_HEADER_BYTES = _HEADER.size
_MAGIC_WORD = np.uint32(int.from_bytes(MAGIC, "little"))
_LENGTH_BITS = 29
_LENGTH = (1 << _LENGTH_BITS) - 1
# Which part of a record a part is.
_WHOLE, _FIRST, _MIDDLE, _LAST = 0, 1, 2, 3
# The parts that may follow outside of a record, and within one.
_STARTS, _CONTINUATIONS = (_WHOLE, _FIRST), (_MIDDLE, _LAST)
_INDEX_LINE = re.compile(rb"([^\t\n]+)\t([0-9]{1,18})", re.ASCII)


class RecordWriter:
    """Writer of a RecordIO file, and of its index file.

    The streams are open for writing and empty; they belong to the caller, who closes them.
    """

    def __init__(self, records: BinaryIO, index: BinaryIO | None = None) -> None:
        self._records = records
        self._index = index
        self._offset = 0

    def write(self, key: int, payload: bytes) -> int:
        """Append a record; returns the byte offset at which it begins.

        key: number of the record in the index file. Raises UserError for a payload of more than
        MAXIMUM_PAYLOAD bytes.
        """
        content = encode_record(payload)
        start = self._offset
        self._records.write(content)
        self._offset += len(content)
        if self._index is not None:
            self._index.write(b"%d\t%d\n" % (key, start))
        return start


def encode_record(payload: bytes) -> bytes:
    """Return the bytes of one record; raises UserError for more than MAXIMUM_PAYLOAD bytes."""
    if len(payload) > MAXIMUM_PAYLOAD:
        expected, got = f"at most {MAXIMUM_PAYLOAD:,} bytes", f"{len(payload):,} bytes"
        raise UserError(Diagnostic("the record is too large for RecordIO", None, expected, got))
    pieces: list[bytes] = []
    start = 0
    at = payload.find(MAGIC)
    while at >= 0:
        if at % 4:
            at = payload.find(MAGIC, at + 1)
            continue
        kind = _MIDDLE if pieces else _FIRST
        # Parts before the last have a length that is a multiple of 4: no padding.
        pieces += (_part_header(kind, at - start), payload[start:at])
        start = at + 4
        at = payload.find(MAGIC, start)
    kind = _LAST if pieces else _WHOLE
    padding = b"\0" * (-len(payload) % 4)
    pieces += (_part_header(kind, len(payload) - start), payload[start:], padding)
    return b"".join(pieces)


def _part_header(kind: int, length: int) -> bytes:
    return _HEADER.pack(MAGIC, kind << _LENGTH_BITS | length)


class RecordHead(NamedTuple):
    """Extent of a record in its file, and the first bytes of its payload.

    start, size: byte offset and number of bytes, with headers and padding. payload: number of bytes
    of the payload.
    """

    start: int
    size: int
    payload: int
    head: bytes


def scan_records(file: ByteFile, head_bytes: int) -> Iterator[RecordHead]:
    """Yield the extent of each record of a file, reading the headers of its parts.

    head_bytes: number of bytes to return of each payload; fewer where it, or its first part, is
    shorter. Raises UserError naming the byte at which the file does not hold complete records.
    """
    start = 0
    while start < file.size:
        kind, length, head = _read_part(file, start, _STARTS, head_bytes)
        end = start + PART_HEADER_BYTES + _padded(length)
        payload = length
        while kind in (_FIRST, _MIDDLE):
            kind, length, _ = _read_part(file, end, _CONTINUATIONS, 0)
            end += PART_HEADER_BYTES + _padded(length)
            payload += len(MAGIC) + length
        yield RecordHead(start, end - start, payload, head)
        start = end


def read_record(file: ByteFile, start: int, size: int) -> memoryview:
    """Return the payload of the record whose `size` bytes begin at `start`.

    Raises UserError unless these bytes are one record. A part that contains the magic number at a
    multiple of 4 is not one: its length is damaged, and it reaches into the records after it.
    """
    content = file.read(start, size)
    view = memoryview(content)
    pieces: list[memoryview] = []
    at = 0
    kinds: tuple[int, ...] = _STARTS
    while at < size:
        kind, length = _parse_header(file, start + at, view[at:], kinds)
        first = at + PART_HEADER_BYTES
        if first + length > size or _has_magic(content, first, first + length):
            fail(file.path, start + at + 4, "the length of a record is damaged", got=f"{length:,}")
        pieces.append(view[first : first + length])
        at = first + _padded(length)
        kinds = _CONTINUATIONS if kind in (_FIRST, _MIDDLE) else ()
    if at != size or kinds:
        fail(file.path, start, "the record changed after the file was opened", f"{size} bytes")
    return pieces[0] if len(pieces) == 1 else memoryview(MAGIC.join(pieces))


def _has_magic(content: bytes, start: int, end: int) -> bool:
    """Return whether the magic number is at a multiple of 4 bytes from `start`, before `end`."""
    # A tenth of the time of a search for bytes, and without the interpreter lock.
    words = np.frombuffer(content, "<u4", (end - start) // 4, start)
    return bool((words == _MAGIC_WORD).any())


def read_index(path: Path) -> dict[str, int]:
    """Read an index file: byte offset of each record by its key, in the file's order.

    Raises UserError naming the line that is not key, tab and offset, or whose key occurred before.
    """
    offsets: dict[str, int] = {}
    lines = bytes(read_all_bytes(path)).split(b"\n")
    if lines[-1]:
        problem = f"{path}:{len(lines)}: the last line is incomplete"
        raise UserError(Diagnostic(problem, None, "a line end", lines[-1][:80].decode("latin-1")))
    for number, line in enumerate(lines[:-1], 1):
        found = _INDEX_LINE.fullmatch(line.strip())
        shown = line[:80].decode("latin-1")
        if found is None:
            problem = f"{path}:{number}: not a line of an index file"
            raise UserError(Diagnostic(problem, None, "key, tab, byte offset", shown))
        key = found[1].decode("latin-1")
        if key in offsets:
            problem = f"{path}:{number}: the key {key} occurs twice"
            raise UserError(Diagnostic(problem, None, "a key of its own for each record", shown))
        offsets[key] = int(found[2])
    return offsets


def _read_part(
    file: ByteFile, start: int, kinds: tuple[int, ...], head_bytes: int
) -> tuple[int, int, bytes]:
    """Read a part's header and the first bytes after it; checks that the part is complete."""
    content = file.read(start, min(PART_HEADER_BYTES + head_bytes, file.size - start))
    kind, length = _parse_header(file, start, content, kinds)
    end = start + PART_HEADER_BYTES + _padded(length)
    if end > file.size:
        got = f"{file.size - start - PART_HEADER_BYTES:,} bytes"
        fail(file.path, start, "the file ends within a record", f"{length:,} bytes", got)
    return kind, length, content[PART_HEADER_BYTES : PART_HEADER_BYTES + length]


def _parse_header(
    file: ByteFile, start: int, content: bytes | memoryview, kinds: tuple[int, ...]
) -> tuple[int, int]:
    """Return which part of a record a part is, one of `kinds`, and its length."""
    if len(content) < PART_HEADER_BYTES:
        got = f"{len(content)} bytes"
        fail(file.path, start, "the file ends within a record's header", "8 bytes", got)
    magic, word = _HEADER.unpack_from(content)
    if magic != MAGIC:
        problem = "no record begins here" if start else "not a RecordIO file"
        fail(file.path, start, problem, MAGIC.hex(" "), magic.hex(" "))
    kind, length = word >> _LENGTH_BITS, word & _LENGTH
    if kind not in kinds:
        expected = f"part of kind {' or '.join(map(str, kinds))}"
        fail(file.path, start + 4, "the parts of a record are incomplete", expected, str(kind))
    if kind in (_FIRST, _MIDDLE) and length % 4:
        fail(file.path, start + 4, "wrong length of a part", "a multiple of 4", str(length))
    return kind, length


def _padded(length: int) -> int:
    return length + -length % 4
