"""Windows of images: what geometric transforms of a chunk of records come to, in vectors.

Crops, resizes, flips and borders change numbers alone. The pixels of each image are then moved
once: a source rectangle is resampled to a canvas, of which a rectangle is the result.
"""

from __future__ import annotations

from dataclasses import fields

import numpy as np
from numpy.typing import NDArray

from mxrun.base.dataclass import dataclass
from mxrun.io.images.decode import DIVISORS

Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]
Numbers = Int64 | int


@dataclass
class WindowAxis:
    """One axis of the windows of n images, in arrays [n].

    The source interval from `start`, of `length` pixels, is resampled to a canvas of `size` pixels;
    only pixels `low` .. `high` - 1 are read. The result is `out` pixels of the canvas from `offset`
    on. Outside of the canvas they are zero.
    """

    start: Float64
    length: Float64
    low: Int64
    high: Int64
    size: Int64
    offset: Int64
    out: Int64

    @classmethod
    def whole(cls, lengths: Int64) -> WindowAxis:
        """Return the axis of unchanged images of `lengths` pixels."""
        zero = np.zeros(len(lengths), np.int64)
        size = lengths.astype(np.float64)
        return cls(
            start=zero.astype(np.float64),
            length=size,
            low=zero,
            high=lengths,
            size=lengths,
            offset=zero,
            out=lengths,
        )

    @property
    def ratio(self) -> Float64:
        """Pixels of the source for each one of the canvas."""
        ratio: Float64 = self.length / np.maximum(self.size, 1)
        return ratio

    def crop(self, first: Numbers, count: Numbers) -> None:
        """Restrict the results to `count` of their pixels from `first` on, which may be outside."""
        self.offset = self.offset + first
        self.out = np.broadcast_to(np.asarray(count, np.int64), self.out.shape)

    def resize(self, size: Numbers) -> None:
        """Resize the results, which must lie within the canvas.

        Results that were resized already are computed from the source at once.
        """
        ratio = self.ratio
        self.start = self.start + self.offset * ratio
        self.length = self.out * ratio
        self.low = np.maximum(np.floor(self.start).astype(np.int64), self.low)
        self.high = np.minimum(np.ceil(self.start + self.length).astype(np.int64), self.high)
        self.size = self.out = np.broadcast_to(np.asarray(size, np.int64), self.out.shape)
        self.offset = np.zeros_like(self.offset)

    def part(self, rows: slice) -> WindowAxis:
        """Return the axis of some of the images."""
        return WindowAxis(*(getattr(self, each.name)[rows] for each in fields(self)))

    def reduced(self, divisors: Int64, decoded: Int64) -> WindowAxis:
        """Return the axis for images whose sizes were divided, to `decoded` pixels, rounded up."""
        low = self.low // divisors
        high = np.minimum(-(-self.high // divisors), decoded)
        start, length = self.start / divisors, self.length / divisors
        return WindowAxis(
            start, length, low=low, high=high, size=self.size, offset=self.offset, out=self.out
        )


@dataclass
class ImageWindows:
    """Windows of n images; `mirrored` results are flipped left and right at the end."""

    y: WindowAxis
    x: WindowAxis
    mirrored: NDArray[np.bool_]

    @classmethod
    def whole(cls, heights: Int64, widths: Int64) -> ImageWindows:
        """Return the windows that leave images unchanged."""
        return cls(
            WindowAxis.whole(heights), WindowAxis.whole(widths), np.zeros(len(heights), np.bool_)
        )

    def crop(self, top: Numbers, left: Numbers, height: Numbers, width: Numbers) -> None:
        """Cut a part out of each result, which may reach beyond its borders."""
        self.y.crop(top, height)
        # The canvas lies mirrored below a mirrored result.
        self.x.crop(np.where(self.mirrored, self.x.out - left - width, left), width)

    def resize(self, height: Numbers, width: Numbers) -> None:
        """Resize each result."""
        self.y.resize(height)
        self.x.resize(width)

    def flip(self, mask: NDArray[np.bool_]) -> None:
        """Mirror the results of the mask left and right."""
        self.mirrored = self.mirrored ^ mask

    def divisors(self) -> Int64:
        """Return the largest divisors of the images' sizes that leave the canvas no larger."""
        ratio = np.minimum(self.y.ratio, self.x.ratio)
        found = np.ones(len(ratio), np.int64)
        for divisor in DIVISORS:
            found = np.where((found == 1) & (ratio >= divisor), divisor, found)
        return found

    def part(self, rows: slice) -> ImageWindows:
        """Return the windows of some of the images."""
        return ImageWindows(self.y.part(rows), self.x.part(rows), self.mirrored[rows])

    def reduced(self, divisors: Int64, decoded: tuple[Int64, Int64]) -> ImageWindows:
        """Return the windows for images decoded at parts of their sizes: [heights, widths]."""
        y, x = self.y.reduced(divisors, decoded[0]), self.x.reduced(divisors, decoded[1])
        return ImageWindows(y, x, self.mirrored)
