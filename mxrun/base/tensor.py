"""What is known of a tensor before it has an address: shape, data type and physical layout."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

from mxrun.base.dtype import item_size

Shape = tuple[int, ...]
# None stands for what inference has not found yet: the rank, or one dimension.
PartialShape = tuple[int | None, ...] | None

# Every block of an arena starts and ends at a multiple of a cache line, in bytes.
ALIGNMENT = 64


def align(nbytes: int) -> int:
    """`nbytes` rounded up to the next multiple of 64."""
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


@dataclass(frozen=True)
class Layout:
    """How the elements of a logical shape lie in memory.

    `plain` is row-major in the logical order, `channels_last` stores axis 1 innermost
    (NCHW as NHWC), any other name is a kernel's own packing, whose size in bytes only that
    kernel knows: `nbytes`.
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

    def laid_out(self, layout: Layout) -> TensorSpec:
        """The same tensor in another layout."""
        return self if layout == self.layout else TensorSpec(self.shape, self.dtype, layout)

    def same_bytes(self, other: TensorSpec) -> bool:
        """Whether both specs describe the same bytes, so that no reorder is needed.

        Channels-last and plain agree where there is one channel or one position per channel.
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
    """The tensor in a layout that has strides: its own if that has, else the plain one."""
    return spec if spec.layout in (PLAIN, CHANNELS_LAST) else spec.laid_out(PLAIN)
