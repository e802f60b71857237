"""Products of grouped convolutions by NumPy, with unfolded windows (im2col)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from mxrun.base.dataclass import dataclass
from mxrun.base.dtype import item_size
from mxrun.base.tensor import Shape
from mxrun.ops.window import Window

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class WindowProducts:
    """The three products of a grouped convolution, on columns in `memory`.

    images [N, C, spatial...], weight [O, C / groups, kernel...], windows [N, O, positions...]: each
    is the product of the other two. memory: bytes for the columns of one or more images; the
    results do not depend on their number.
    """

    window: Window
    groups: int
    memory: Array

    def windows(self, images: Array, weight: Array, positions: Shape) -> Array:
        """Return the convolution: weight x columns(images)."""
        matrix = self._matrices(weight)
        result = np.empty((len(images), *matrix.shape[:2], math.prod(positions)), images.dtype)
        for some, columns in self._chunks(images.shape, images.dtype, positions):
            self._unfold(images[some], columns, positions)
            np.matmul(matrix, _as_matrices(columns), out=result[some])
        return result.reshape(len(images), len(weight), *positions)

    def images(self, windows: Array, weight: Array, spatial: Shape) -> Array:
        """Return the transposed convolution: weight^T x windows, folded back to the images."""
        channels = weight.shape[1] * self.groups
        result = np.zeros((len(windows), channels, *spatial), windows.dtype)
        positions = windows.shape[2:]
        grouped = self._grouped(windows)
        transposed = self._matrices(weight).swapaxes(-1, -2)
        for some, columns in self._chunks(result.shape, result.dtype, positions):
            np.matmul(transposed, grouped[some], out=_as_matrices(columns))
            self._fold(columns, result[some], positions)
        return result

    def weight(self, images: Array, windows: Array) -> Array:
        """Return windows x columns(images)^T, summed over the images."""
        positions = windows.shape[2:]
        grouped = self._grouped(windows)
        rows = images.shape[1] // self.groups * math.prod(self.window.kernel)
        result = np.zeros((self.groups, grouped.shape[2], rows), images.dtype)
        for some, columns in self._chunks(images.shape, images.dtype, positions):
            self._unfold(images[some], columns, positions)
            # One image at a time, so that the sum does not depend on the memory size.
            for image, unfolded in zip(grouped[some], _as_matrices(columns), strict=True):
                result += np.matmul(image, unfolded.swapaxes(-1, -2))
        channels = images.shape[1] // self.groups
        return result.reshape(windows.shape[1], channels, *self.window.kernel)

    def _matrices(self, weight: Array) -> Array:
        return weight.reshape(self.groups, len(weight) // self.groups, math.prod(weight.shape[1:]))

    def _grouped(self, windows: Array) -> Array:
        images, channels, *positions = windows.shape
        return windows.reshape(images, self.groups, channels // self.groups, math.prod(positions))

    def _chunks(self, images: Shape, dtype: Any, positions: Shape) -> list[tuple[slice, Array]]:
        """Return slices of the batch with their columns [images, group, channel, kernel, y...]."""
        batch, channels = images[:2]
        one = (self.groups, channels // self.groups, math.prod(self.window.kernel), *positions)
        memory = self.memory.view(dtype)
        step = memory.size // math.prod(one)
        columns = memory[: step * math.prod(one)].reshape(step, *one)
        return [
            (slice(start, start + step), columns[: min(step, batch - start)])
            for start in range(0, batch, max(step, 1))
        ]

    def _unfold(self, images: Array, columns: Array, positions: Shape) -> None:
        columns[:] = 0
        grouped = images.reshape(*columns.shape[:3], *images.shape[2:])
        for number, read, written in self.window.regions(images.shape[2:], positions):
            columns[:, :, :, number][written] = grouped[read]

    def _fold(self, columns: Array, images: Array, positions: Shape) -> None:
        grouped = images.reshape(*columns.shape[:3], *images.shape[2:])
        for number, read, written in self.window.regions(images.shape[2:], positions):
            grouped[read] += columns[:, :, :, number][written]


def _as_matrices(columns: Array) -> Array:
    images, groups, channels, kernel, *positions = columns.shape
    return columns.reshape(images, groups, channels * kernel, math.prod(positions))


def columns_space(images: Shape, dtype: str, window: Window, positions: Shape, limit: int) -> int:
    """Return the bytes of the columns of as many images as fit in `limit` bytes, at least one."""
    one = images[1] * math.prod(window.kernel) * math.prod(positions) * item_size(dtype)
    return one * min(max(1, limit // one), images[0])
