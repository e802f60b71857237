"""Count of the scans of a JPEG file, a measure of its decoding cost, without decoding it.

Source of the format: ITU-T T.81, annex B.
"""

from __future__ import annotations

import re

_START = b"\xff\xd8"
# A marker is FF and another byte. FF 00 is data, and restart markers occur within data.
_MARKER = re.compile(rb"\xff+([^\x00\xff\xd0-\xd7])")
_NO_LENGTH = (0x01, 0xD8)
_END, _SCAN = 0xD9, 0xDA


def is_jpeg(content: bytes) -> bool:
    """Return whether bytes begin like a JPEG file."""
    return content.startswith(_START)


def count_scans(content: bytes, limit: int) -> int:
    """Count the scans of a JPEG file up to its end marker; the decoder runs each over all pixels.

    The count stops at `limit` + 1.
    """
    scans, position = 0, len(_START)
    while scans <= limit and (found := _MARKER.search(content, position)):
        marker, position = found[1][0], found.end()
        if marker == _END:
            break
        if marker not in _NO_LENGTH:
            # The length includes its own two bytes; a smaller one is false.
            position += max(2, int.from_bytes(content[position : position + 2], "big"))
        scans += marker == _SCAN
    return scans
