"""Tensor specifications: shape, data type and physical layout, without an address."""

from __future__ import annotations

import math

from mxrun.base.dataclass import dataclass
from mxrun.base.dtype import item_size
from mxrun.base.errors import InternalError
from mxrun.base.once import cached_property

Shape = tuple[int, ...]
# None stands for a rank or a dimension that inference has not determined yet.
PartialShape = tuple[int | None, ...] | None

# Every block of an arena starts and ends at a multiple of a cache line (bytes).
ALIGNMENT = 64


def align(nbytes: int, alignment: int = ALIGNMENT) -> int:
    """Return `nbytes` rounded up to the next multiple of `alignment`."""
    return -(-nbytes // alignment) * alignment


@dataclass(frozen=True)
class Layout:
    """Physical order of a tensor's elements in memory.

    `plain` is row-major in the logical order. `channels_last` stores axis 1 innermost (NCHW as
    NHWC). Any other name is a kernel's own packing, of `nbytes` bytes, a size that only the kernel
    can compute.
    """

    name: str = "plain"
    nbytes: int | None = None

    def __str__(self) -> str:
        return self.name


PLAIN = Layout("plain")
CHANNELS_LAST = Layout("channels_last")


@dataclass(frozen=True)
class TensorSpec:
    """Logical shape, element type and physical layout of one tensor."""

    shape: Shape
    dtype: str = "float32"
    layout: Layout = PLAIN

    @cached_property
    def elements(self) -> int:
        """Number of logical elements."""
        return math.prod(self.shape)

    @cached_property
    def nbytes(self) -> int:
        """Bytes the tensor occupies in its layout."""
        if self.layout.nbytes is not None:
            return self.layout.nbytes
        return self.elements * item_size(self.dtype)

    def with_layout(self, layout: Layout) -> TensorSpec:
        """Return the same tensor in another layout."""
        return self if layout == self.layout else TensorSpec(self.shape, self.dtype, layout)

    def same_bytes(self, other: TensorSpec) -> bool:
        """Return whether both specs describe the same bytes, so that no reorder is needed.

        Channels-last and plain are the same if there is one channel or one position per channel.
        """
        if (self.shape, self.dtype) != (other.shape, other.dtype):
            return False
        if self.layout == other.layout:
            return True
        named = {self.layout, other.layout} <= {PLAIN, CHANNELS_LAST}
        return named and (self.shape[1] == 1 or math.prod(self.shape[2:]) == 1)

    def __str__(self) -> str:
        text = f"{self.dtype}{list(self.shape)}"
        return text if self.layout == PLAIN else f"{text}@{self.layout}"


def unpacked(spec: TensorSpec) -> TensorSpec:
    """Return the tensor in a layout with strides: its own if it has strides, else plain."""
    return spec if spec.layout in (PLAIN, CHANNELS_LAST) else spec.with_layout(PLAIN)


def strides_of(shape: Shape, layout: Layout) -> Shape:
    """Return the element strides of a plain or channels-last tensor, one per logical axis.

    Raises InternalError for any other layout.
    """
    order = list(range(len(shape)))
    if layout == CHANNELS_LAST and len(shape) > 2:
        order = [0, *order[2:], 1]
    elif layout not in (PLAIN, CHANNELS_LAST):
        raise InternalError(f"layout {layout} has no strides")
    strides, step = [0] * len(shape), 1
    for axis in reversed(order):
        strides[axis] = step
        step *= shape[axis]
    return tuple(strides)
