"""Image decoding: bytes of a file to uint8 [channels, height, width]."""

from __future__ import annotations

import struct
import zlib
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from mxrun.base.errors import Diagnostic, InternalError, UserError
from mxrun.base.tensor import TensorSpec
from mxrun.io.files import fail
from mxrun.io.images.encoded import EncodedImage
from mxrun.io.images.jpeg import count_scans, is_jpeg
from mxrun.io.transforms.base import RecordShape

# 8,192 x 8,192. An image is decoded in one piece, and the size in its header may be false.
MAXIMUM_PIXELS = 1 << 26
# Limit for JPEG images: each scan processes all pixels, and 64 million pixels take up to 0.2 s.
# Images have about ten scans, and fewer than a hundred after the most thorough optimisers.
MAXIMUM_SCANS = 500
MAXIMUM_SCANNED_PIXELS = 1 << 30
SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".ppm", ".pgm", ".webp")

_FORMATS = ("PNG", "JPEG", "BMP", "PPM", "WEBP")
_EIGHT_BITS = ("1", "L", "LA", "La", "P", "PA", "RGB", "RGBA", "RGBa", "RGBX", "CMYK", "YCbCr")

# Exceptions that Pillow's parsers raise on damaged bytes, besides OSError; some parsers only warn.
_DAMAGED = (
    OSError,
    ValueError,
    SyntaxError,
    EOFError,
    ArithmeticError,
    LookupError,
    TypeError,
    AttributeError,
    MemoryError,
    RuntimeError,
    Warning,
    struct.error,
    zlib.error,
)


def image_channels(spec: TensorSpec | None) -> int:
    """Return the channels of images for an input: 1 for grey, 3 for colour, also without `spec`.

    Raises UserError for an input that does not take images.
    """
    if spec is None:
        return 3
    if len(spec.shape) != 3 or spec.shape[0] not in (1, 3):
        problem = "the network's input 'data' is not an image"
        expected = "[1, height, width] for grey or [3, height, width] for colour"
        raise UserError(Diagnostic(problem, None, expected, str(list(spec.shape))))
    return spec.shape[0]


def decoded(record: NDArray[Any] | EncodedImage, shape: RecordShape) -> NDArray[Any]:
    """Return a record as an array; an image is decoded to the channels of its column's `shape`."""
    if isinstance(record, EncodedImage):
        return decode_image(BytesIO(record.content), record.source, shape[0] or 3)
    return record


def decode_image(stream: BinaryIO, name: Path | str, channels: int) -> NDArray[np.uint8]:
    """Decode a PNG, JPEG, BMP, PPM or WebP image as grey (1 channel) or red, green, blue (3).

    name: the file's name for error messages. Returns uint8 [channels, height, width]. Raises
    UserError unless the stream holds one complete image.
    """
    # The import registers the WebP format. Without it Pillow would load the parsers of forty
    # formats to find it.
    from PIL import Image, WebPImagePlugin  # noqa: F401

    if channels not in (1, 3):
        raise InternalError(f"an image of {channels} channels")
    try:
        image = Image.open(stream, formats=_FORMATS)
        _check(image.width, image.height, image.mode, name)
        _check_scans(stream, image.width * image.height, name)
        pixels = np.asarray(image.convert("L" if channels == 1 else "RGB"))
    except (*_DAMAGED, Image.DecompressionBombError) as error:
        if not stream.closed and stream.seekable() and stream.seek(0, 2) == 0:
            fail(name, 0, "the file is empty", "an image")
        fail(name, _position(stream), f"cannot be decoded as an image: {_reason(error, name)}")
    return _planes(pixels)


def _check(width: int, height: int, mode: str, name: Path | str) -> None:
    """Raise UserError if the header's size or pixel mode is not supported, before decoding."""
    if width * height > MAXIMUM_PIXELS:
        limit, got = f"at most {MAXIMUM_PIXELS} pixels", f"{width} x {height}"
        fail(name, 0, "the image is too large", limit, got)
    if mode not in _EIGHT_BITS:
        fail(name, 0, "unsupported pixel format", "8 bits per channel", f"Pillow's mode {mode}")


def _check_scans(stream: BinaryIO, pixels: int, name: Path | str) -> None:
    """Raise UserError for a JPEG file whose number of scans would make decoding far too slow."""
    position = stream.tell()
    stream.seek(0)
    start = stream.read(2)
    content = stream.read() if is_jpeg(start) else b""
    stream.seek(position)
    limit = min(MAXIMUM_SCANS, MAXIMUM_SCANNED_PIXELS // max(pixels, 1))
    if count_scans(start + content, limit) > limit:
        fail(name, 0, "the image has too many scans", f"at most {limit} over {pixels} pixels")


def _planes(pixels: NDArray[Any]) -> NDArray[np.uint8]:
    """Convert [height, width] or [height, width, 3] to [channels, height, width] in C order."""
    planes = pixels[np.newaxis] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)
    return np.ascontiguousarray(planes, np.uint8)


def _position(stream: BinaryIO) -> int:
    """Return the decoder's byte offset; 0 for a stream that is closed or not seekable."""
    return stream.tell() if not stream.closed and stream.seekable() else 0


def _reason(error: Exception, name: Path | str) -> str:
    """Return Pillow's reason in one line, without the object representations that it prints."""
    if type(error).__name__ == "UnidentifiedImageError":
        return "not a PNG, JPEG, BMP, PPM or WebP file"
    return str(error).partition("\n")[0].replace(str(name), "the file") or type(error).__name__
