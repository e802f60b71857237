"""JPEG files whose scans need more work than an image are refused before decoding."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from mxrun.base.errors import UserError
from mxrun.io.images.decode import MAXIMUM_SCANNED_PIXELS, MAXIMUM_SCANS, decode_image
from mxrun.io.images.encoded import EncodedImage
from mxrun.io.images.jpeg import count_scans

SCAN = b"\xff\xda"
END = b"\xff\xd9"


def jpeg(side: int, mode: str = "RGB", **options: object) -> bytes:
    pixels = np.arange(side * side * len(mode), dtype=np.uint32) * 2654435761 >> 24
    stream = io.BytesIO()
    image = Image.fromarray(pixels.astype(np.uint8).reshape(side, side, -1).squeeze())
    image.save(stream, "JPEG", **options)
    return stream.getvalue()


def with_scans(side: int, count: int) -> bytes:
    """Return a grey image whose last scan is repeated `count` more times."""
    stream = io.BytesIO()
    Image.new("L", (side, side), 100).save(stream, "JPEG", progressive=True)
    content = stream.getvalue()
    last = content[content.rindex(SCAN) : -2]
    return content[:-2] + last * count + END


@pytest.mark.parametrize(
    ("options", "scans"),
    [({}, 1), ({"progressive": True}, 10), ({"restart_marker_blocks": 1}, 1)],
)
def test_scans_are_counted_without_decoding(options, scans):
    content = jpeg(40, **options)
    assert count_scans(content, 1000) == scans
    assert count_scans(content, 0) == 1
    # Bytes in a comment or after the end that look like scans are not scans.
    hidden = SCAN * 100
    comment = b"\xff\xfe" + (len(hidden) + 2).to_bytes(2, "big") + hidden
    assert count_scans(content[:2] + comment + content[2:] + hidden, 1000) == scans
    for cut in range(0, len(content), 7):
        assert 0 <= count_scans(content[:cut], 1000) <= scans


def test_a_bomb_of_scans_is_refused_and_real_images_are_not():
    for content in (jpeg(40, progressive=True), with_scans(16, 80)):
        assert decode_image(EncodedImage(content, "x.jpg"), 1).dtype == np.uint8
    for side, scans in ((16, MAXIMUM_SCANS), (4096, MAXIMUM_SCANNED_PIXELS >> 24)):
        with pytest.raises(UserError, match=r"x\.jpg: byte 0: the image has too many scans"):
            decode_image(EncodedImage(with_scans(side, scans), "x.jpg"), 1)


def test_an_empty_file_is_said_to_be_empty():
    with pytest.raises(UserError, match=r"x\.jpg: byte 0: the file is empty"):
        decode_image(EncodedImage(b"", "x.jpg"), 3)
