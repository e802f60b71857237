"""Image decoding: bytes of a file to uint8 pixels.

JPEG images are decoded by simplejpeg (libjpeg-turbo), optionally at a half, a quarter or an eighth
of their size; PNG, BMP, PPM and WebP images, and JPEG images of CMYK or with recoverable damage, by
Pillow.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mxrun.base.errors import Diagnostic, InternalError, UserError
from mxrun.base.tensor import TensorSpec
from mxrun.io.files import fail
from mxrun.io.images import pillow
from mxrun.io.images.encoded import EncodedImage
from mxrun.io.images.jpeg import JpegHeader, count_scans, is_jpeg, read_header

# 8,192 x 8,192. An image is decoded in one piece, and the size in its header may be false.
MAXIMUM_PIXELS = 1 << 26
# Limit for JPEG images: each scan processes all pixels, and 64 million pixels take up to 0.1 s.
# Images have about ten scans, and fewer than a hundred after the most thorough optimisers.
MAXIMUM_SCANS = 500
MAXIMUM_SCANNED_PIXELS = 1 << 30
SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".ppm", ".pgm", ".webp")
# Divisors of the size at which JPEG images are decoded. libjpeg-turbo has fast code for these
# alone: at 5/8 of its size an image takes longer than at full size.
DIVISORS = (8, 4, 2)


@dataclass(frozen=True, slots=True)
class ImageHeader:
    """Size of an image by its header, which may be false; `jpeg` for what simplejpeg decodes."""

    height: int
    width: int
    jpeg: JpegHeader | None = None


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


def takes_images(spec: TensorSpec) -> bool:
    """Return whether an input takes images: grey or colour, [channels, height, width]."""
    return len(spec.shape) == 3 and spec.shape[0] in (1, 3) and spec.dtype == "float32"


def decoded(record: NDArray[Any] | EncodedImage, shape: tuple[int | None, ...]) -> NDArray[Any]:
    """Return a record as an array; an image is decoded to the channels of its column's `shape`."""
    return decode_image(record, shape[0] or 3) if isinstance(record, EncodedImage) else record


def read_image_header(image: EncodedImage) -> ImageHeader:
    """Return the size of an image without decoding it.

    Raises UserError for one that is too large to be decoded, or that is no image.
    """
    header = read_header(image.content) if is_jpeg(image.content) else None
    if header is None:
        height, width = pillow.image_size(image)
        _check_size(height, width, image)
        return ImageHeader(height, width)
    _check_size(header.height, header.width, image)
    if not header.is_decodable:
        problem, expected = "unsupported JPEG coding", "8 bits per channel in Huffman codes"
        fail(image.source, 0, problem, expected, "another one, such as arithmetic coding")
    _check_scans(header, image)
    turbo = header if header.components in (1, 3) else None
    return ImageHeader(header.height, header.width, turbo)


def decode_pixels(
    image: EncodedImage,
    header: ImageHeader,
    channels: int,
    divisor: int = 1,
    buffer: NDArray[np.uint8] | None = None,
) -> NDArray[np.uint8]:
    """Decode an image as grey (1 channel) or red, green, blue (3): uint8 [height, width, channels].

    divisor: one of `DIVISORS`, by which height and width of a JPEG image may be divided (rounded
    up). buffer: memory that is used for the pixels if it is large enough. Raises UserError unless
    the file holds one complete image.
    """
    if channels not in (1, 3):
        raise InternalError(f"an image of {channels} channels")
    if header.jpeg is not None:
        import simplejpeg

        height, width = -(-header.height // divisor), -(-header.width // divisor)
        size = height * width * channels
        space = None if buffer is None or buffer.size < size else buffer[:size]
        try:
            pixels: NDArray[np.uint8] = simplejpeg.decode_jpeg(
                image.content,
                "GRAY" if channels == 1 else "RGB",
                min_height=height if divisor > 1 else 0,
                min_width=width if divisor > 1 else 0,
                min_factor=divisor,
                buffer=space,
            )
        except ValueError:
            # Pillow accepts damage that leaves no pixel undefined, and says what is wrong.
            return pillow.decode(image, channels)
        return pixels
    return pillow.decode(image, channels)


def decode_image(image: EncodedImage, channels: int) -> NDArray[np.uint8]:
    """Decode an image as uint8 [channels, height, width]; raises UserError as `decode_pixels`."""
    pixels = decode_pixels(image, read_image_header(image), channels)
    return np.ascontiguousarray(pixels.transpose(2, 0, 1))


def _check_size(height: int, width: int, image: EncodedImage) -> None:
    """Raise UserError if the size is not supported, before decoding."""
    if height * width > MAXIMUM_PIXELS:
        limit, got = f"at most {MAXIMUM_PIXELS} pixels", f"{width} x {height}"
        fail(image.source, 0, "the image is too large", limit, got)


def _check_scans(header: JpegHeader, image: EncodedImage) -> None:
    """Raise UserError for a JPEG file whose number of scans would make decoding far too slow."""
    if not header.may_have_scans:
        return
    pixels = header.height * header.width
    limit = min(MAXIMUM_SCANS, MAXIMUM_SCANNED_PIXELS // max(pixels, 1))
    if count_scans(image.content, limit) > limit:
        expected = f"at most {limit} over {pixels} pixels"
        fail(image.source, 0, "the image has too many scans", expected)
