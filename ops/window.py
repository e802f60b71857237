"""Sliding windows over the spatial axes: what convolution and pooling share."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from types import EllipsisType
from typing import Annotated

import numpy as np
from pydantic import Field

from mxrun.base.params import Int32
from mxrun.base.tensor import Shape

Positive = Annotated[Int32, Field(ge=1)]
NonNegative = Annotated[Int32, Field(ge=0)]
Region = tuple[EllipsisType | slice, ...]


@dataclass(frozen=True)
class Window:
    """Geometry of a window: one number per spatial axis in each field."""

    kernel: Shape
    stride: Shape
    dilate: Shape
    pad: Shape

    def extent(self, axis: int) -> int:
        """Positions between the outermost kernel elements, both counted."""
        return self.dilate[axis] * (self.kernel[axis] - 1) + 1

    def output_size(self, axis: int, size: int, round_up: bool = False) -> int:
        """How many windows fit: (size + 2 * pad - extent) / stride + 1, rounded down or up.

        Zero or less when the kernel exceeds the padded input.
        """
        room = size + 2 * self.pad[axis] - self.extent(axis)
        if room < 0:
            return 0
        stride = self.stride[axis]
        return (-(-room // stride) if round_up else room // stride) + 1

    def regions(self, inputs: Shape, outputs: Shape) -> Iterator[tuple[int, Region, Region]]:
        """For each kernel position: its row-major number, the input elements it reads, and the
        output elements whose windows read them there (padding is in neither).
        """
        axes = range(len(self.kernel))
        for number, position in enumerate(np.ndindex(*self.kernel)):
            pairs = [self._span(axis, position[axis], inputs[axis], outputs[axis]) for axis in axes]
            yield number, (..., *(read for read, _ in pairs)), (..., *(out for _, out in pairs))

    def _span(self, axis: int, position: int, size: int, count: int) -> tuple[slice, slice]:
        stride = self.stride[axis]
        shift = position * self.dilate[axis] - self.pad[axis]
        first = max(0, -(shift // stride))
        last = min(count - 1, (size - 1 - shift) // stride)
        if last < first:
            return slice(0, 0), slice(0, 0)
        start = first * stride + shift
        return slice(start, last * stride + shift + 1, stride), slice(first, last + 1)
