"""Tar files whose members with a common name are one record, in WebDataset's layout.

A record is a run of members `NAME.EXTENSION` with the same name up to the first dot of the last
part of the path: `train/000017.jpg` and `train/000017.cls`. Source of the format: POSIX.1-2001,
`pax` (ustar and extended headers), GNU tar for long names, and the description of WebDataset.
"""

from __future__ import annotations

import tarfile
from collections.abc import Iterator, Mapping
from io import BytesIO
from types import TracebackType
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

from mxrun.base.errors import Diagnostic, UserError
from mxrun.io.files import fail, is_hidden
from mxrun.io.formats.byte_file import ByteFile

if TYPE_CHECKING:
    from typing_extensions import Self

_BLOCK = 512
# Longest name and longest extended header that are read.
_MAX_NAME, _MAX_EXTENDED = 1 << 15, 1 << 20
_REGULAR, _GNU_NAME, _EXTENDED, _SPARSE = (b"0", b"\0", b"7"), b"L", b"x", b"S"
_IS_SPARSE = "the member is a sparse file, which is not supported"
# Names of links, and settings for all members, among the headers of a member.
_IGNORED = (b"K", b"g")
# Links, devices, folders and pipes.
_WITHOUT_CONTENT = (b"1", b"2", b"3", b"4", b"5", b"6")
_GZIP_MAGIC, _ZSTD_MAGIC = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"


class TarWriter:
    """Writer of a tar file whose bytes depend on names and contents alone.

    The stream is open for writing and empty; it belongs to the caller. `close` writes the end mark;
    as a context manager, the writer does so unless an exception ends the block.
    """

    def __init__(self, stream: BinaryIO) -> None:
        self._tar = tarfile.TarFile(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT)

    def write(self, name: str, contents: Mapping[str, bytes]) -> None:
        """Append a record: a member `name.extension` for each extension and its content.

        The last part of `name` has no dot, as the extension begins at the first one.
        """
        if "." in name.rpartition("/")[2]:
            raise UserError(Diagnostic("a record's name has a dot", None, "no dot", name))
        for extension, content in contents.items():
            member = tarfile.TarInfo(f"{name}.{extension}")
            member.size = len(content)
            self._tar.addfile(member, BytesIO(content))
        # tarfile retains every member otherwise.
        self._tar.members = []  # type: ignore[attr-defined]

    def close(self) -> None:
        """Write the end of the tar file."""
        self._tar.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            self.close()


class TarMember(NamedTuple):
    """Regular file in a tar file: its name, and the byte offset and number of its bytes."""

    name: str
    start: int
    size: int


class TarRecord(NamedTuple):
    """Members of one record by extension, in lower case, and the name that they share."""

    name: str
    members: Mapping[str, TarMember]


def scan_tar(file: ByteFile) -> Iterator[TarMember]:
    """Yield the regular files of a tar file, reading its headers alone.

    Raises UserError naming the byte at which the file is damaged, and for a file without the end
    mark that every complete tar file has, so that a cut file is not taken for a shorter one.
    """
    _check_uncompressed(file)
    offset, name, size = 0, "", -1
    while True:
        block = _block(file, offset)
        if not any(block):
            break
        _check_sum(file, offset, block)
        kind = block[156:157]
        start, stored = offset + _BLOCK, _stored(file, offset, block, size)
        if kind == _GNU_NAME:
            name = _text(_content(file, start, stored, _MAX_NAME).rstrip(b"\0"))
        elif kind == _EXTENDED:
            name, size = _extended(file, start, _content(file, start, stored, _MAX_EXTENDED))
        elif kind == _SPARSE:
            fail(file.path, offset, _IS_SPARSE)
        elif kind not in _IGNORED:
            if kind in _REGULAR:
                yield TarMember(name or _name(block), start, stored)
            name, size = "", -1
        offset = start + stored + -stored % _BLOCK
    _check_end(file, offset)


def scan_tar_records(file: ByteFile) -> Iterator[TarRecord]:
    """Yield the records of a tar file; hidden files and folders are left out.

    Raises UserError as `scan_tar` does, and for two members of a record with one extension.
    """
    name, members = "", dict[str, TarMember]()
    for member in scan_tar(file):
        folder, slash, base = member.name.removeprefix("./").rpartition("/")
        stem, dot, extension = base.partition(".")
        if is_hidden(member.name) or not stem or not dot or base.startswith("__"):
            continue
        own = f"{folder}{slash}{stem}"
        if own != name:
            if members:
                yield TarRecord(name, members)
            name, members = own, {}
        extension = extension.lower()
        if extension in members:
            problem = "the record has two members with one extension"
            fail(file.path, member.start - _BLOCK, problem, got=member.name)
        members[extension] = member
    if members:
        yield TarRecord(name, members)


def _check_uncompressed(file: ByteFile) -> None:
    start = file.read(0, min(4, file.size))
    for magic, name in ((_GZIP_MAGIC, "gzip"), (_ZSTD_MAGIC, "zstandard")):
        if start.startswith(magic):
            problem = f"the tar file is compressed ({name}): its members cannot be read one by one"
            hint = "uncompress it; images are compressed already"
            fail(file.path, 0, problem, "a tar file without compression", hint=hint)


def _block(file: ByteFile, offset: int) -> bytes:
    """Return the header at `offset`; raises UserError if the file ends before it."""
    if not file.size:
        fail(file.path, 0, "the file is empty", "a tar file")
    if file.size < _BLOCK:
        fail(file.path, 0, "not a tar file", "a header of 512 bytes", f"{file.size} bytes")
    if offset + _BLOCK > file.size:
        problem = "the file is cut: it has no end mark"
        fail(file.path, offset, problem, "1,024 zero bytes at the end", hint="copy it again")
    return file.read(offset, _BLOCK)


def _check_sum(file: ByteFile, offset: int, block: bytes) -> None:
    """Raise UserError unless the header has the sum of its bytes in it, with blanks for the sum."""
    stated = block[148:156].strip(b"\0 ")
    total = sum(block) - sum(block[148:156]) + 8 * ord(" ")
    if stated.isdigit() and not stated.strip(b"01234567") and int(stated, 8) == total:
        return
    if offset:
        problem = "the member's header is damaged: wrong checksum"
        fail(file.path, offset, problem, f"{total:o}", stated.decode("latin-1"))
    fail(file.path, 0, "not a tar file", "a header of 512 bytes with its checksum")


def _stored(file: ByteFile, offset: int, block: bytes, size: int) -> int:
    """Return the bytes of a member's content; size: that of an extended header, or -1.

    Raises UserError if the file ends before them.
    """
    kind = block[156:157]
    if kind in _WITHOUT_CONTENT:
        return 0
    stored = size if kind in _REGULAR and size >= 0 else _number(file, offset, block[124:136])
    rest = file.size - offset - _BLOCK
    if stored > rest:
        problem = "the file ends within a member"
        fail(file.path, offset, problem, f"{stored:,} bytes", f"{rest:,} bytes")
    return stored


def _number(file: ByteFile, offset: int, field: bytes) -> int:
    """Return a size: octal digits, or, if the upper bit is set, a big-endian number (GNU tar)."""
    if field[0] & 0x80:
        value = int.from_bytes(bytes([field[0] & 0x7F]) + field[1:], "big")
        return value if value <= file.size else file.size + 1
    digits = field.strip(b"\0 ")
    if digits.strip(b"01234567"):
        fail(file.path, offset + 124, "the member's size is damaged", "octal digits", repr(field))
    return int(digits or b"0", 8)


def _content(file: ByteFile, start: int, size: int, limit: int) -> bytes:
    if size > limit:
        fail(file.path, start, "the member's name is too long", f"at most {limit:,} bytes")
    return file.read(start, size)


def _extended(file: ByteFile, start: int, content: bytes) -> tuple[str, int]:
    """Return path and size of the next member from an extended header, "" and -1 without them.

    Its entries are `LENGTH KEY=VALUE` and a line end, where the length includes everything.
    """
    name, size, at = "", -1, 0
    while at < len(content):
        digits, blank, _ = content[at : at + 12].partition(b" ")
        length = int(digits) if blank and digits.isdigit() else 0
        entry = content[at + len(digits) + 1 : at + length]
        key, equals, value = entry.partition(b"=")
        if not equals or len(content) < at + length or not value.endswith(b"\n"):
            fail(file.path, start + at, "the extended header is damaged")
        if key == b"path":
            name = _text(value[:-1])
        elif key.startswith(b"GNU.sparse."):
            fail(file.path, start + at, _IS_SPARSE)
        elif key == b"size":
            if not value[:-1].isdigit() or len(value) > 20:
                fail(file.path, start + at, "the extended header is damaged")
            size = int(value)
        at += length
    return name, size


def _name(block: bytes) -> str:
    """Return the name in a header, with the prefix that ustar splits off."""
    name = _text(block[:100].partition(b"\0")[0])
    prefix = block[345:500].partition(b"\0")[0] if block[257:263] == b"ustar\0" else b""
    return f"{_text(prefix)}/{name}" if prefix else name


def _text(name: bytes) -> str:
    return name.decode("utf-8", "surrogateescape")


def _check_end(file: ByteFile, offset: int) -> None:
    """Raise UserError unless the second block of the end mark and all that follows are zero."""
    if offset + 2 * _BLOCK > file.size:
        expected = "1,024 zero bytes at the end of a tar file"
        fail(file.path, offset, "the file is cut within its end mark", expected)
    for start in range(offset + _BLOCK, file.size, _MAX_EXTENDED):
        rest = file.read(start, min(_MAX_EXTENDED, file.size - start))
        if rest.strip(b"\0"):
            problem = "data follows the end of the tar file"
            hint = "give several tar files as a list or a pattern, do not join them"
            fail(file.path, start, problem, "zero bytes", hint=hint)
