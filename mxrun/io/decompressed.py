"""Text files that are compressed: gzip, bzip2, xz, or a zip archive of one file."""

from __future__ import annotations

import bz2
import gzip
import lzma
import zipfile
import zlib
from typing import BinaryIO, cast

from mxrun.base.errors import Diagnostic, UserError
from mxrun.base.near_names import listed

SUFFIXES = (".gz", ".bz2", ".xz", ".zip")
"""Endings of the names of compressed files."""

# Of an archive with files, and of an empty one.
_ZIP, _EMPTY_ZIP = b"PK\x03\x04", b"PK\x05\x06"
_HEAD = 16
DAMAGES = (zlib.error, lzma.LZMAError, zipfile.BadZipFile)
"""Errors of damaged compressed data, beside EOFError and OSError."""


def is_compressed(head: bytes) -> bool:
    """Return whether a file's first bytes are those of one that `decompressed` decompresses."""
    return _kind(head) != ""


def _kind(head: bytes) -> str:
    marks = (
        *((b"\x1f\x8b", "gzip"), (b"\xfd7zXZ\x00", "xz")),
        *((_ZIP, "zip"), (_EMPTY_ZIP, "zip")),
    )
    if head[:3] == b"BZh" and head[4:10] == b"1AY&SY":
        return "bzip2"
    return next((kind for mark, kind in marks if head.startswith(mark)), "")


def decompressed(stream: BinaryIO, name: str) -> BinaryIO:
    """Return the content of a file, decompressed if it is compressed.

    stream: at the file's beginning. Raises UserError for an archive of several files.
    """
    kind = _kind(stream.read(_HEAD))
    stream.seek(0)
    if kind == "gzip":
        return cast("BinaryIO", gzip.GzipFile(fileobj=stream, mode="rb"))
    if kind == "bzip2":
        return cast("BinaryIO", bz2.BZ2File(stream))
    if kind == "xz":
        return cast("BinaryIO", lzma.LZMAFile(stream))
    return _only_member(stream, name) if kind == "zip" else stream


def _only_member(stream: BinaryIO, name: str) -> BinaryIO:
    archive = zipfile.ZipFile(stream)
    members = [each for each in archive.namelist() if not each.endswith("/")]
    # macOS writes a folder of its own data beside the file.
    members = [each for each in members if not each.startswith("__MACOSX/")]
    if len(members) != 1:
        problem = f"{name}: the archive does not hold one file"
        got = listed(members) or "none"
        raise UserError(Diagnostic(problem, None, "a zip archive of one table", got))
    return cast("BinaryIO", archive.open(members[0]))
