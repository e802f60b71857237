"""Decoding of all images but usual JPEG images by Pillow."""

from __future__ import annotations

import io
import struct
import sys
import zlib
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from mxrun.base.errors import Diagnostic, UserError
from mxrun.io.files import fail
from mxrun.io.images.encoded import EncodedImage
from mxrun.io.images.kinds import KINDS, image_kind
from mxrun.io.images.orientation import UPRIGHT, as_upright, orientation_of, upright
from mxrun.io.images.png import PNG, metadata, missing_rows

_UNDECODABLE = "cannot be decoded as an image"
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


def read_header(image: EncodedImage) -> tuple[int, int, int]:
    """Return height and width as stored, and the orientation, by an image's header.

    Raises UserError for what is no image.
    """
    found = _opened(image, io.BytesIO(image.content))
    # Of a PNG file Pillow knows only what is before the pixels.
    if found.format == "PNG":
        blocks = metadata(image.content)
    elif found.format == "TIFF":
        blocks = iter([image.content])
    else:
        blocks = (found.info[key] for key in ("exif", "xmp") if key in found.info)
    return found.height, found.width, orientation_of(blocks)


def has_frames(image: EncodedImage) -> bool:
    """Return whether a file holds several pages or frames.

    Raises UserError for what is no image.
    """
    return bool(getattr(_opened(image, io.BytesIO(image.content)), "is_animated", False))


def decode(image: EncodedImage, channels: int) -> NDArray[np.uint8]:
    """Decode an image of a size that was checked: uint8 [height, width, channels], 1 or 3 channels.

    Raises UserError unless the file holds one complete image.
    """
    stream = io.BytesIO(image.content)
    found = _opened(image, stream)
    if image.content[: len(PNG)] == PNG and (lacking := missing_rows(image.content)):
        fail(image.source, 0, f"the image ends {lacking} bytes of pixels too early")
    try:
        return _pixels(found, channels)
    except _DAMAGED as error:
        _fail(image, stream, error)


def is_pillow_image(value: object) -> bool:
    """Return whether a value is an image of Pillow, which its caller then has imported."""
    module = sys.modules.get("PIL.Image")
    return module is not None and isinstance(value, module.Image)


def image_pixels(image: Any, channels: int, source: str, as_stored: bool) -> NDArray[np.uint8]:
    """Return the pixels of an image of Pillow, as those of a file: uint8 [channels, height, width].

    It is turned as its EXIF data say, unless `as_stored`. Raises UserError for pixels of more than
    8 bits, and for a file that turns out to be damaged.
    """
    if image.mode not in _EIGHT_BITS:
        got = f"Pillow's mode {image.mode}"
        problem = f"{source}: unsupported pixel format"
        raise UserError(Diagnostic(problem, None, "8 bits per channel", got))
    try:
        pixels = _pixels(image, channels)
    except _DAMAGED as error:
        raise UserError(Diagnostic(f"{source}: {_UNDECODABLE}: {_reason(error)}")) from error
    number = UPRIGHT if as_stored else orientation_of([image.getexif().tobytes()])
    return np.ascontiguousarray(upright(pixels, number).transpose(2, 0, 1))


def _pixels(image: Any, channels: int) -> NDArray[np.uint8]:
    """Return the pixels of Pillow's image as they are stored, uint8 [height, width, channels]."""
    pixels = np.asarray(image.convert("L" if channels == 1 else "RGB"))
    return pixels.reshape(*pixels.shape[:2], channels)


def _opened(image: EncodedImage, stream: io.BytesIO) -> Any:
    """Return Pillow's image, whose pixels are not yet decoded."""
    # The imports register formats. Without them Pillow would load the parsers of forty to find one.
    from PIL import Image, TiffImagePlugin, WebPImagePlugin  # noqa: F401

    if not image.content:
        fail(image.source, 0, "the file is empty", "an image")
    kind = image_kind(image.content)
    if kind is None:
        formats = ", ".join(dict.fromkeys(each.format for each in KINDS))
        fail(image.source, 0, f"{_UNDECODABLE}: not a file of {formats}")
    if kind.format == "TIFF":
        # Pillow would turn the image.
        stream = io.BytesIO(as_upright(bytes(image.content)))
    try:
        found = Image.open(stream, formats=[kind.format])
    except (*_DAMAGED, Image.DecompressionBombError) as error:
        _fail(image, stream, error)
    if found.mode not in _EIGHT_BITS:
        got = f"Pillow's mode {found.mode}"
        fail(image.source, 0, "unsupported pixel format", "8 bits per channel", got)
    return found


def _fail(image: EncodedImage, stream: io.BytesIO, error: Exception) -> NoReturn:
    reason = _reason(error)
    at = 0 if stream.closed else stream.tell()
    fail(image.source, at, f"{_UNDECODABLE}: {reason}")


def _reason(error: Exception) -> str:
    """Return Pillow's reason in one line, without the object representations that it prints."""
    if type(error).__name__ == "UnidentifiedImageError":
        return "its header is damaged"
    return str(error).partition("\n")[0] or type(error).__name__
