"""Files that are not text in UTF-8, and what their first bytes say they are."""

from __future__ import annotations

import codecs
from pathlib import Path
from typing import NoReturn

from mxrun.io.files import fail

HEAD_BYTES = 16
"""Number of bytes at a file's beginning that tell what it is."""

_UTF_32 = ("text in UTF-32", "convert it: iconv -f UTF-32 -t UTF-8")
_UTF_16 = ("text in UTF-16", "convert it: iconv -f UTF-16 -t UTF-8")
# The mark of UTF-32 begins with that of UTF-16.
_MARKS = (
    (codecs.BOM_UTF32_LE, *_UTF_32),
    (codecs.BOM_UTF32_BE, *_UTF_32),
    (codecs.BOM_UTF16_LE, *_UTF_16),
    (codecs.BOM_UTF16_BE, *_UTF_16),
    (b"\x1f\x8b", "a file compressed by gzip", "decompress it: gunzip FILE"),
    (b"\x28\xb5\x2f\xfd", "a file compressed by zstd", "decompress it: unzstd FILE"),
    (b"\xfd7zXZ\x00", "a file compressed by xz", "decompress it: unxz FILE"),
    (b"PK\x03\x04", "a zip archive", "unpack it: unzip FILE"),
)
_LATIN1 = "convert it: iconv -f LATIN1 -t UTF-8"


def refuse_encoding(
    path: Path, offset: int, byte: int, head: bytes, otherwise: str = ""
) -> NoReturn:
    """Raise UserError for a file whose `byte` at `offset` is not UTF-8.

    head: the first `HEAD_BYTES` of the file. otherwise: another way to use a text of an encoding
    that these do not tell, for the hint.
    """
    problem, got = "not UTF-8 text", f"the byte 0x{byte:02x}"
    for mark, what, hint in _MARKS:
        if head.startswith(mark):
            fail(path, offset, problem, "UTF-8", what, hint)
    fail(path, offset, problem, "UTF-8", got, _LATIN1 + otherwise)
