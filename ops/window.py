"""Sliding windows over spatial axes, shared by convolutions and pooling."""

from __future__ import annotations

from collections.abc import Iterator
from types import EllipsisType
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from mxrun.base.dataclass import dataclass
from mxrun.base.params import Int32
from mxrun.base.tensor import Shape
from mxrun.operator.shape import Dimensions, ShapeContradiction, show

Positive = Annotated[Int32, Field(ge=1)]
NonNegative = Annotated[Int32, Field(ge=0)]
# Logical axis orders by number of spatial axes.
AxisOrder = Literal["NCW", "NCHW", "NCDHW"]
_LAYOUTS: dict[int, AxisOrder] = {1: "NCW", 2: "NCHW", 3: "NCDHW"}
Region = tuple[EllipsisType | slice, ...]


def require_axes(rank: int, **parameters: Shape) -> None:
    """Raise ValueError if a parameter is given, but not one number for each axis of the kernel."""
    for name, numbers in parameters.items():
        if len(numbers) not in (0, rank):
            raise ValueError(f"{name} has {len(numbers)} numbers, but kernel has {rank}")


def require_layout(layout: AxisOrder | None, rank: int) -> None:
    """Raise ValueError if a layout is given, but not the one of `rank` spatial axes."""
    if layout not in (None, _LAYOUTS[rank]):
        raise ValueError(f"layout {layout} does not fit {rank} kernel axes; use {_LAYOUTS[rank]}")


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

    def count(self, axis: int, data: Dimensions, round_up: bool = False) -> int | None:
        """Return the number of windows along a spatial axis of data [N, C, spatial...].

        Returns None if the size is not known. Raises ShapeContradiction if the kernel exceeds the
        padded input.
        """
        size = data[axis + 2]
        if size is None:
            return None
        windows = self.output_size(axis, size, round_up)
        if windows < 1:
            rule = f"kernel {list(self.kernel)} within the padded input"
            raise ShapeContradiction("data", show(data), f"at least {self.extent(axis)}", rule)
        return windows

    def regions(self, inputs: Shape, outputs: Shape) -> Iterator[tuple[int, Region, Region]]:
        """Yield for each kernel position its row-major index, input region and output region.

        The input region holds the elements read at this kernel position. The output region holds
        the elements whose windows read them. Padding is in neither.
        """
        axes = range(len(self.kernel))
        for number, position in enumerate(np.ndindex(*self.kernel)):
            pairs = [
                self._span(
                    axis=axis, position=position[axis], size=inputs[axis], count=outputs[axis]
                )
                for axis in axes
            ]
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
