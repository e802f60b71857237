"""Images of a chunk before geometric transforms: their sizes, and pixels when they are due."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mxrun.base.errors import UserError
from mxrun.base.tensor import Shape
from mxrun.io.images.decode import ImageHeader, decode_pixels, read_image_header
from mxrun.io.images.encoded import EncodedImage
from mxrun.io.transforms.chunk import Items, RecordChunk, Stack

# Raises UserError for the shape of a record that is no image.
ShapeCheck = Callable[[Shape], None]


class Sources:
    """Images of a chunk, [n] of each number: channels, heights and widths by headers and shapes.

    alive: those that did not fail. The others have the size 1 x 1.
    """

    def __init__(self, items: Items, chunk: RecordChunk, check: ShapeCheck | None) -> None:
        """check: for records that are no images; without it they have any shape."""
        self._items, self._chunk, self._check = items, chunk, check
        self._headers: dict[int, ImageHeader] = {}
        count = len(items)
        self.channels, self.heights, self.widths = numbers = np.ones((3, count), np.int64)
        self.alive = np.ones(count, np.bool_)
        self.alive[list(chunk.failed)] = False
        if isinstance(items, Stack):
            shape = self._shape(range(count), items.records.shape[1:])
            numbers[:] = np.array(shape)[:, np.newaxis]
            return
        for row, item in enumerate(items):
            if isinstance(item, EncodedImage):
                numbers[:, row] = self._header(row, item)
            elif item is not None:
                numbers[:, row] = self._shape((row,), item.shape)

    def fail(self, row: int, error: UserError) -> None:
        """Leave out a record, with its error."""
        self._chunk.failed[row] = error
        self.alive[row] = False

    def shape(self, row: int) -> Shape | None:
        """Return the shape of a record that is no image; None for an image."""
        if isinstance(self._items, Stack):
            shape: Shape = self._items.records.shape[1:]
            return shape if len(shape) != 3 else None
        item = self._items[row]
        return item.shape if isinstance(item, np.ndarray) and item.ndim != 3 else None

    def is_image(self) -> NDArray[np.bool_]:
        """Return which records are images, [n]."""
        if isinstance(self._items, Stack):
            return np.full(len(self.alive), self.shape(0) is None)
        return np.array([self.shape(row) is None for row in range(len(self.alive))])

    def reducible(self) -> NDArray[np.bool_]:
        """Return which images can be decoded at a part of their size, [n]."""
        found = np.zeros(len(self.alive), np.bool_)
        found[[row for row, header in self._headers.items() if header.jpeg is not None]] = True
        return found

    def is_interleaved(self) -> NDArray[np.bool_]:
        """Return which images are decoded as [height, width, channels], [n]."""
        found = np.zeros(len(self.alive), np.bool_)
        found[list(self._headers)] = True
        return found

    def pixels(self, row: int, divisor: int, buffer: NDArray[np.uint8]) -> NDArray[Any] | None:
        """Return the pixels of an image, in row-major order: bytes or float32.

        A file is decoded, at its size divided by `divisor` if its decoder can, into `buffer` if
        there is enough of it: [height, width, channels]. None for a file that cannot be decoded.
        """
        assert not isinstance(self._items, Stack)
        item = self._items[row]
        if isinstance(item, EncodedImage):
            channels = int(self.channels[row])
            try:
                pixels = decode_pixels(item, self._headers[row], channels, divisor, buffer)
            except UserError as error:
                self.fail(row, error)
                return None
            if self._chunk.decoded is not None:
                self._chunk.decoded.keep(int(self._chunk.records[row]), pixels)
            return pixels
        assert item is not None
        return np.ascontiguousarray(item if item.dtype == np.uint8 else self._chunk.values(item))

    def _header(self, row: int, image: EncodedImage) -> Shape:
        try:
            header = self._headers[row] = read_image_header(image)
        except UserError as error:
            self.fail(row, error)
            return 1, 1, 1
        return self._chunk.channels, header.height, header.width

    def _shape(self, rows: range | tuple[int], shape: Shape) -> Shape:
        """Return a shape as that of an image; note an error if the records must be images."""
        if len(shape) == 3:
            return shape
        try:
            if self._check is not None:
                self._check(shape)
        except UserError as error:
            for row in rows:
                self.fail(row, error)
            return 1, 1, 1
        return as_image(shape)


def as_image(shape: Shape) -> tuple[int, int, int]:
    """Return a shape of any rank as [channels, height, width] of as many elements."""
    if len(shape) == 3:
        return shape
    return shape[0] if shape else 1, 1, math.prod(shape[1:])
