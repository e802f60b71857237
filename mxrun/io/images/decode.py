"""Image decoding: bytes of a file to uint8 pixels.

JPEG images are decoded by simplejpeg (libjpeg-turbo), optionally at a half, a quarter or an eighth
of their size; images of other kinds, and JPEG images of CMYK or with recoverable damage, by Pillow.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mxrun.base.dataclass import dataclass
from mxrun.base.errors import Diagnostic, InternalError, UserError
from mxrun.base.tensor import TensorSpec
from mxrun.io.files import fail
from mxrun.io.images import pillow
from mxrun.io.images.encoded import EncodedImage
from mxrun.io.images.jpeg import JpegHeader, count_scans, read_header
from mxrun.io.images.kinds import image_kind
from mxrun.io.images.orientation import UPRIGHT, orientation_of, upright, upright_sides

# 8,192 x 8,192. An image is decoded in one piece, and the size in its header may be false.
MAXIMUM_PIXELS = 1 << 26
# Limit for JPEG images: each scan processes all pixels, and 64 million pixels take up to 0.1 s.
# Images have about ten scans, and fewer than a hundred after the most thorough optimisers.
MAXIMUM_SCANS = 500
MAXIMUM_SCANNED_PIXELS = 1 << 30
# Divisors of the size at which JPEG images are decoded. libjpeg-turbo has fast code for these
# alone: at 5/8 of its size an image takes longer than at full size.
DIVISORS = (8, 4, 2)


@dataclass(frozen=True, slots=True)
class ImageHeader:
    """Size of an image as it is decoded, by its header, which may be false.

    orientation: EXIF's number of how the stored pixels are turned. jpeg: for
    what simplejpeg decodes.
    """

    height: int
    width: int
    orientation: int = UPRIGHT
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


def is_turned(record: NDArray[Any] | EncodedImage) -> bool:
    """Return whether a record is an image whose pixels are turned when it is decoded."""
    return isinstance(record, EncodedImage) and read_image_header(record).orientation != UPRIGHT


def has_frames(record: NDArray[Any] | EncodedImage) -> bool:
    """Return whether a record is an image with several pages or frames, whose first one is read."""
    if not isinstance(record, EncodedImage):
        return False
    kind = image_kind(record.content)
    return kind is not None and kind.may_have_frames and pillow.has_frames(record)


def read_image_header(image: EncodedImage) -> ImageHeader:
    """Return the size and orientation of an image without decoding it.

    Raises UserError for one that is too large to be decoded, or that is no image.
    """
    kind = image_kind(image.content)
    is_jpeg = kind is not None and kind.format == "JPEG"
    header = read_header(image.content) if is_jpeg else None
    if header is None:
        height, width, number = pillow.read_header(image)
        _check_size(height, width, image)
        return _header(height, width, UPRIGHT if image.as_stored else number)
    _check_size(header.height, header.width, image)
    if not header.is_decodable:
        problem, expected = "unsupported JPEG coding", "8 bits per channel in Huffman codes"
        fail(image.source, 0, problem, expected, "another one, such as arithmetic coding")
    _check_scans(header, image)
    turbo = header if header.components in (1, 3) else None
    number = UPRIGHT if image.as_stored else orientation_of(header.metadata)
    return _header(header.height, header.width, number, turbo)


def decode_pixels(
    image: EncodedImage,
    header: ImageHeader,
    channels: int,
    divisor: int = 1,
    buffer: NDArray[np.uint8] | None = None,
) -> NDArray[np.uint8]:
    """Decode an image as grey (1 channel) or red, green, blue (3): uint8 [height, width, channels].

    It is turned as `header` says. divisor: one of `DIVISORS`, by which height and width of a JPEG
    image may be divided (rounded up). buffer: memory that is used for the pixels if it is large
    enough. Raises UserError unless the file holds one complete image.
    """
    if channels not in (1, 3):
        raise InternalError(f"an image of {channels} channels")
    if header.jpeg is None:
        pixels = pillow.decode(image, channels)
    else:
        pixels = _decode_jpeg(image, header.jpeg, channels, divisor, buffer)
    return upright(pixels, header.orientation)


def decode_image(image: EncodedImage, channels: int) -> NDArray[np.uint8]:
    """Decode an image as uint8 [channels, height, width]; raises UserError as `decode_pixels`."""
    pixels = decode_pixels(image, read_image_header(image), channels)
    return np.ascontiguousarray(pixels.transpose(2, 0, 1))


def _header(
    height: int, width: int, orientation: int, jpeg: JpegHeader | None = None
) -> ImageHeader:
    """Return the header of an image whose stored pixels have this size."""
    return ImageHeader(*upright_sides(height, width, orientation), orientation, jpeg)


def _decode_jpeg(
    image: EncodedImage,
    header: JpegHeader,
    channels: int,
    divisor: int,
    buffer: NDArray[np.uint8] | None,
) -> NDArray[np.uint8]:
    """Decode a JPEG image as it is stored; see `decode_pixels`."""
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
