"""Images as records of container files hold them: image files, or arrays that need no decoding."""

from __future__ import annotations

import io
import math
from array import array
from dataclasses import field
from functools import lru_cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mxrun.base.dataclass import dataclass
from mxrun.base.errors import Diagnostic, UserError
from mxrun.base.tensor import Shape
from mxrun.io.dataset.fields import LazyField
from mxrun.io.formats.image_table import ImageTable
from mxrun.io.formats.npy import MAGIC, NpyHeader, read_npy_header
from mxrun.io.images.encoded import EncodedImage

# Number of bytes of a content that hold the header of an array, as numpy.save writes it.
HEAD_BYTES = 128
# Length of the header in version 1 of the format, in which NumPy writes all but huge headers.
_LENGTH = slice(len(MAGIC) + 2, len(MAGIC) + 4)


@dataclass
class ScannedImages:
    """Numbers, extents, shapes and headers of images while their files are scanned.

    The columns are those of `ImageTable`.
    """

    numbers: array[int] = field(default_factory=lambda: array("q"))
    starts: array[int] = field(default_factory=lambda: array("q"))
    sizes: array[int] = field(default_factory=lambda: array("q"))
    shapes: set[Shape | None] = field(default_factory=set)
    headers: set[bytes] = field(default_factory=set)

    def add(self, number: int, start: int, size: int) -> None:
        """Append the extent of a record."""
        self.numbers.append(number)
        self.starts.append(start)
        self.sizes.append(size)

    def add_content(self, head: bytes | memoryview, size: int, where: object) -> None:
        """Add the shape and the header of an image; the arguments are those of `array_shape`."""
        shape = array_shape(head, size, where)
        self.shapes.add(shape)
        if shape is not None:
            self.headers.add(bytes(head[: size - math.prod(shape)]))

    def columns(self, rows: NDArray[np.int64] | slice) -> dict[str, Any]:
        """Return the columns of some records, by the table's fields."""
        return {
            "numbers": np.array(self.numbers, np.int64)[rows],
            "starts": np.array(self.starts, np.int64)[rows],
            "sizes": np.array(self.sizes, np.int64)[rows],
            "shapes": frozenset(self.shapes),
            "headers": frozenset(self.headers),
        }


def stored_column(table: ImageTable, channels: int) -> LazyField:
    """Return the images of a table as a column that is scaled to 0..1.

    Its shape is [channels, any, any], or that of all images if they are arrays of one shape.
    """
    (shape,) = table.shapes if len(table.shapes) == 1 else (None,)
    return LazyField.images(
        partial(table.image, channels),
        len(table),
        (channels, None, None) if shape is None else shape,
        content=table.digest,
        locate=table.locate,
        read_arrays=table.array_reader(shape) if shape and shape[0] == channels else None,
    )


def array_shape(head: bytes | memoryview, size: int, where: object) -> Shape | None:
    """Return the shape [channels, height, width] of an array from the beginning of a content.

    Returns None for the content of an image file. size: number of bytes of the complete content.
    Raises UserError, beginning with `where`, for an array of another dtype or number of axes.
    """
    if head[: len(MAGIC)] != MAGIC:
        return None
    length = int.from_bytes(head[_LENGTH], "little")
    text = bytes(head[: _LENGTH.stop + length])
    header = _intact_header(text) or read_npy_header(io.BytesIO(head), str(where))
    fits = header.dtype == np.uint8 and len(header.shape) in (2, 3) and not header.column_major
    if not fits or 0 in header.shape or header.offset + header.data_bytes != size:
        problem = f"{where}: the array is no image"
        expected = "uint8 [channels, height, width] in C order, and nothing after it"
        raise UserError(Diagnostic(problem, None, expected, f"{header.dtype} {list(header.shape)}"))
    return (1, *header.shape) if len(header.shape) == 2 else header.shape


@lru_cache(maxsize=256)
def _intact_header(text: bytes) -> NpyHeader | None:
    """Return a header, parsed once for all arrays that have the same; None if it is not intact."""
    try:
        return read_npy_header(io.BytesIO(text), "")
    except UserError:
        return None


def stored_image(content: memoryview, channels: int, where: str) -> EncodedImage | NDArray[Any]:
    """Return an image file's content to be decoded, or the array uint8 [channels, height, width].

    Raises UserError, beginning with `where`, for an array that is no image of so many channels.
    """
    shape = array_shape(content[:HEAD_BYTES], len(content), where)
    if shape is None:
        return EncodedImage(content, where)
    if shape[0] != channels:
        problem = f"{where}: the image has the wrong number of channels"
        raise UserError(Diagnostic(problem, None, str(channels), str(shape[0])))
    count = math.prod(shape)
    return np.frombuffer(content, np.uint8, count, len(content) - count).reshape(shape)
