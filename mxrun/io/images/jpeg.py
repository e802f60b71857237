"""JPEG headers, read without decoding: size, colours, and what the scans cost.

Source of the format: ITU-T T.81, annex B.
"""

from __future__ import annotations

import re

from mxrun.base.dataclass import dataclass

_START = b"\xff\xd8"
# A marker is FF and another byte. FF 00 is data, and restart markers occur within data.
_MARKER = re.compile(rb"\xff+([^\x00\xff\xd0-\xd7])")
_NO_LENGTH = (0x01, 0xD8)
_END, _SCAN = 0xD9, 0xDA
# Application segment 1, of EXIF and XMP data.
_METADATA = 0xE1
# Start of frame: baseline, extended sequential and progressive, all of Huffman codes. The others
# are lossless, hierarchical or arithmetic, which browsers refuse as well.
_SEQUENTIAL, _PROGRESSIVE = (0xC0, 0xC1), 0xC2
_FRAMES = frozenset({*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC})


@dataclass(frozen=True, slots=True)
class JpegHeader:
    """Header of a JPEG file up to its first scan.

    components: of a pixel: 1 grey, 3 colour, 4 CMYK. is_decodable: whether its coding is one that
    is decoded. may_have_scans: whether the decoder takes more than one scan. metadata: blocks of
    EXIF and XMP data.
    """

    height: int
    width: int
    components: int
    is_decodable: bool
    may_have_scans: bool
    metadata: tuple[bytes | memoryview, ...]


def read_header(content: bytes | memoryview) -> JpegHeader | None:
    """Return the header of a JPEG file; None if it has none or an incomplete one."""
    position, count = len(_START), len(content)
    frame: tuple[int, int, int, bool] | None = None
    progressive = False
    metadata: list[bytes | memoryview] = []
    while position + 4 <= count and content[position] == 0xFF:
        marker = content[position + 1]
        if marker == 0xFF or marker in _NO_LENGTH:
            position += 1 if marker == 0xFF else 2
            continue
        body = position + 4
        position += 2 + (content[position + 2] << 8 | content[position + 3])
        if position < body or position > count:
            return None
        if marker in _FRAMES and position >= body + 6:
            height, width = (content[at] << 8 | content[at + 1] for at in (body + 1, body + 3))
            known = marker in _SEQUENTIAL or marker == _PROGRESSIVE
            is_decodable = known and content[body] == 8
            frame = height, width, content[body + 5], is_decodable
            progressive = marker == _PROGRESSIVE
        elif marker == _METADATA:
            metadata.append(content[body:position])
        elif marker == _SCAN:
            if frame is None:
                return None
            may_have_scans = progressive or content[body] < frame[2]
            return JpegHeader(*frame, may_have_scans, tuple(metadata))
    return None


def count_scans(content: bytes | memoryview, limit: int) -> int:
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
