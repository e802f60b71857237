"""Sliding windows over spatial axes, shared by convolutions and pooling."""

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
    """Geometry of a sliding window: one number per spatial axis in each field."""

    kernel: Shape
    stride: Shape
    dilate: Shape
    pad: Shape

    def extent(self, axis: int) -> int:
        """Return dilate * (kernel - 1) + 1: the span of the dilated kernel."""
        return self.dilate[axis] * (self.kernel[axis] - 1) + 1

    def output_size(self, axis: int, size: int, round_up: bool = False) -> int:
        """Return the number of windows: (size + 2 * pad - extent) / stride + 1, rounded down or up.

        Returns 0 if the kernel exceeds the padded input.
        """
        room = size + 2 * self.pad[axis] - self.extent(axis)
        if room < 0:
            return 0
        stride = self.stride[axis]
        return (-(-room // stride) if round_up else room // stride) + 1

    def regions(self, inputs: Shape, outputs: Shape) -> Iterator[tuple[int, Region, Region]]:
        """Yield for each kernel position its row-major index, input region and output region.

        The input region holds the elements read at this kernel position. The output region holds
        the elements whose windows read them. Padding is in neither.
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
