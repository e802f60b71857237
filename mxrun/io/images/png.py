"""Check that a PNG file holds all its pixels, which Pillow does not.

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


def missing_rows(content: bytes | memoryview) -> int:
    """Return how many bytes of filtered pixels a PNG file lacks after a complete data stream.

    0 for files whose stream is damaged or truncated, which the decoder refuses.
    """
    expected = _expected(content)
    found = zlib.decompressobj()
    try:
        for piece in _data(content):
            # Once more than there is input left: the stream may hold back a part of its output.
            while expected > 0 and (made := len(found.decompress(piece, _PIECE))):
                expected -= made
                piece = found.unconsumed_tail
    except zlib.error:
        return 0
    return max(expected, 0) if found.eof else 0


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


def _data(content: bytes | memoryview) -> Iterator[bytes | memoryview]:
    """Yield the contents of the IDAT chunks."""
    position = len(PNG)
    while position + 8 <= len(content):
        length = int.from_bytes(content[position : position + 4], "big")
        if content[position + 4 : position + 8] == b"IDAT":
            yield content[position + 8 : position + 8 + length]
        position += 12 + length
