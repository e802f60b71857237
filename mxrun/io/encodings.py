"""Encodings of text files: UTF-8, what a mark at the beginning says, or what a config declares."""

from __future__ import annotations

import codecs
from pathlib import Path
from typing import Annotated, BinaryIO, NoReturn, Protocol

from pydantic import AfterValidator, StringConstraints

from mxrun.base.errors import Diagnostic, UserError
from mxrun.base.validation import custom_error
from mxrun.io.files import fail

HEAD_BYTES = 16
"""Number of bytes at a file's beginning that tell what it is."""

GZIP = b"\x1f\x8b"
_UTF_8, _UTF_16, _UTF_32 = "utf-8", "utf-16", "utf-32"
# The mark of UTF-32 begins with that of UTF-16.
_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, _UTF_32),
    (codecs.BOM_UTF32_BE, _UTF_32),
    (codecs.BOM_UTF16_LE, _UTF_16),
    (codecs.BOM_UTF16_BE, _UTF_16),
)
_COMPRESSED = (
    (GZIP, "a file compressed by gzip", "decompress it: gunzip FILE"),
    (b"\x28\xb5\x2f\xfd", "a file compressed by zstd", "decompress it: unzstd FILE"),
    (b"\xfd7zXZ\x00", "a file compressed by xz", "decompress it: unxz FILE"),
    *(
        (b"BZh%d1AY&SY" % level, "a file compressed by bzip2", "decompress it: bunzip2 FILE")
        for level in range(1, 10)
    ),
    (b"\x04\x22\x4d\x18", "a file compressed by lz4", "decompress it: unlz4 FILE"),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive", "unpack it: 7z x FILE"),
    (b"PK\x03\x04", "a zip archive", "unpack it: unzip FILE"),
)
# Codecs of parts of internet addresses, not of texts: their errors name no byte.
_NAMES_OF_HOSTS = ("idna", "punycode")
DECLARE = "write its encoding, such as encoding: "
"""Beginning of the hint where a config can declare the encoding."""


def _known(name: str) -> str:
    """Return the name of an encoding of text that Python reads."""
    try:
        "0".encode(name)
        codecs.getincrementaldecoder(name)
        if codecs.lookup(name).name in _NAMES_OF_HOSTS:
            raise LookupError
    except (LookupError, ValueError):
        expected = "an encoding that Python knows, such as cp1252, latin-1, utf-16-le or shift_jis"
        raise custom_error("encoding", expected) from None
    return name


Encoding = Annotated[str, StringConstraints(min_length=1), AfterValidator(_known)]
ENCODING_DOC = (
    "Encoding of the file's characters, as of Python's codecs; default: that of the mark at the "
    "file's beginning (UTF-8, UTF-16 or UTF-32), or UTF-8 without one."
)


def marked_encoding(head: bytes) -> str:
    """Return the encoding that the mark at a file's beginning says; empty if there is none."""
    return next((name for mark, name in _MARKS if head.startswith(mark)), "")


def refuse_compressed(path: Path | str, head: bytes, expected: str = "text") -> None:
    """Raise UserError if a file's first bytes are those of a compressed one or of an archive."""
    for mark, what, hint in _COMPRESSED:
        if head.startswith(mark):
            fail(path, 0, "not a text file", expected, what, hint=hint)


def decoded(
    content: bytes | bytearray, path: Path | str, encoding: str = "", declare: str = ""
) -> str:
    """Return a file's text without a mark at its beginning.

    encoding: the one that is declared, which a mark overrules; empty for UTF-8. declare: beginning
    of the hint, if it can be. Raises UserError naming the byte that the encoding does not have.
    """
    head = bytes(content[:HEAD_BYTES])
    name = marked_encoding(head) or encoding or _UTF_8
    try:
        return content.decode(name)
    except UnicodeDecodeError as error:
        refuse_compressed(path, head)
        # The codec of UTF-8 with a mark counts from behind it.
        where = f"{path}: byte {error.start + len(content) - len(error.object)}"
        refuse_byte(where, error.object[error.start], name, declare)


def refuse_text(path: Path | str, at: int, byte: int, head: bytes, otherwise: str = "") -> NoReturn:
    """Raise UserError for a file read as UTF-8 alone, whose `byte` at an offset is not that.

    head: the first `HEAD_BYTES` of the file; otherwise: another way to use such a text, for the
    hint.
    """
    refuse_compressed(path, head)
    marked = marked_encoding(head).upper()
    if marked.startswith(("UTF-16", "UTF-32")):
        hint = f"convert it: iconv -f {marked} -t UTF-8"
        fail(path, at, "not UTF-8 text", "UTF-8", f"text in {marked}", hint=hint)
    refuse_byte(f"{path}: byte {at}", byte, otherwise=otherwise)


def refuse_byte(
    where: str, byte: int, encoding: str = _UTF_8, declare: str = "", otherwise: str = ""
) -> NoReturn:
    """Raise UserError for a byte that the encoding does not have, or that is 0.

    where: its place. declare, otherwise: beginning and end of the hint.
    """
    name = encoding.upper().removesuffix("-SIG")
    hint = "the file is damaged, or its encoding is another one"
    if name == _UTF_8.upper():
        other = "CP1252" if byte else "UTF-16LE"
        declared = f"{declare}{other.lower()}, or " if declare else ""
        hint = f"{declared}convert it: iconv -f {other} -t UTF-8{otherwise}"
    problem, got = f"{where}: not {name} text", f"the byte 0x{byte:02x}"
    raise UserError(Diagnostic(problem, None, name, got, hint=hint))


class TextBytes(Protocol):
    """Binary stream as the readers of tables need it."""

    def read(self, size: int, /) -> bytes:
        """Return the next bytes, at most `size` of them or about as many; none at the end."""


def text_stream(stream: BinaryIO, name: str, encoding: str) -> TextBytes:
    """Return a text file's UTF-8 bytes, of a mark or of the encoding that is declared.

    stream: at the file's beginning. Raises UserError for a compressed file.
    """
    head = stream.read(HEAD_BYTES)
    stream.seek(0)
    refuse_compressed(name, head)
    found = marked_encoding(head) or encoding or _UTF_8
    is_read = codecs.lookup(found.removesuffix("-sig")).name == _UTF_8
    return stream if is_read else DecodedStream(stream, name, found)


class DecodedStream:
    """Binary stream of the UTF-8 bytes of a file in another encoding, without its mark."""

    def __init__(self, stream: TextBytes, path: Path | str, encoding: str) -> None:
        self._stream, self._path, self._encoding = stream, path, encoding
        self._decoder = codecs.getincrementaldecoder(encoding)()
        self._offset = 0

    def read(self, size: int) -> bytes:
        """Return the UTF-8 bytes of about `size` bytes of the file; nothing at its end."""
        while True:
            content = self._stream.read(size)
            try:
                text = self._decoder.decode(content, final=not content)
            except UnicodeDecodeError as error:
                # The decoder's bytes begin with those that it kept of the block before.
                at = self._offset - (len(error.object) - len(content)) + error.start
                where = f"{self._path}: byte {at}"
                refuse_byte(where, error.object[error.start], self._encoding)
            self._offset += len(content)
            if text or not content:
                return text.encode()
