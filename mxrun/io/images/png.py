"""Chunks of PNG files: whether they hold all pixels, which Pillow does not check, and metadata.

Source of the format: W3C, Portable Network Graphics (PNG) Specification, second edition.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator

PNG = b"\x89PNG\r\n\x1a\n"
# Channels by colour type.
_CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
# First row and column, and their steps, of the passes of Adam7 interlacing.
_PASSES = (
    (0, 0, 8, 8),
    (0, 4, 8, 8),
    (4, 0, 8, 4),
    (0, 2, 4, 4),
    (2, 0, 4, 2),
    (0, 1, 2, 2),
    (1, 0, 2, 1),
)
_PIECE = 1 << 18
# Beginnings of texts that hold XMP, or EXIF data in hexadecimal digits, as ImageMagick writes
# them, compressed: line end, "exif", line end, length, line end.
_XMP, _RAW_EXIF = b"XML:com.adobe.xmp\0", b"Raw profile type exif\0\0"
_MAX_RAW = 1 << 18


def missing_rows(content: bytes | memoryview) -> int:
    """Return how many bytes of filtered pixels a PNG file lacks after a complete data stream.

    0 for files whose stream is damaged or truncated, which the decoder refuses.
    """
    expected = _expected(content)
    found = zlib.decompressobj()
    try:
        for piece in (body for kind, body in _chunks(content) if kind == b"IDAT"):
            # Once more than there is input left: the stream may hold back a part of its output.
            while expected > 0 and (made := len(found.decompress(piece, _PIECE))):
                expected -= made
                piece = found.unconsumed_tail
    except zlib.error:
        return 0
    return max(expected, 0) if found.eof else 0


def metadata(content: bytes | memoryview) -> Iterator[bytes | memoryview]:
    """Yield the blocks of EXIF and XMP data of a PNG file, which may be after the pixels."""
    for kind, body in _chunks(content):
        if kind == b"eXIf" or (kind == b"iTXt" and body[: len(_XMP)] == _XMP):
            yield body
        elif kind == b"zTXt" and body[: len(_RAW_EXIF)] == _RAW_EXIF:
            try:
                text = zlib.decompressobj().decompress(body[len(_RAW_EXIF) :], _MAX_RAW)
                yield bytes.fromhex("".join(text.decode("ascii").split("\n")[3:]))
            except (zlib.error, ValueError):
                # A profile that nobody can read.
                continue


def _expected(content: bytes | memoryview) -> int:
    """Return the bytes of filtered pixels that a file's header asks for: a filter's byte a row."""
    width, height = (int.from_bytes(content[at : at + 4], "big") for at in (16, 20))
    bits = content[24] * _CHANNELS.get(content[25], 1)
    passes = _PASSES if content[28] else ((0, 0, 1, 1),)
    total = 0
    for top, left, down, right in passes:
        rows, columns = -(-(height - top) // down), -(-(width - left) // right)
        if rows > 0 and columns > 0:
            total += rows * (1 + (columns * bits + 7) // 8)
    return total


def _chunks(content: bytes | memoryview) -> Iterator[tuple[bytes, bytes | memoryview]]:
    """Yield the kind and the content of each chunk."""
    position = len(PNG)
    while position + 8 <= len(content):
        length = int.from_bytes(content[position : position + 4], "big")
        kind = bytes(content[position + 4 : position + 8])
        yield kind, content[position + 8 : position + 8 + length]
        position += 12 + length
