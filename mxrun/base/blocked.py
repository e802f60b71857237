"""Packed layouts that consist of strides and inner blocks."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from mxrun.base.tensor import Shape


@dataclass(frozen=True)
class Blocked:
    """Layout of strides and inner blocks.

    sizes: of the axes as the kernel that packs them sees them. strides: elements from one block of
    an axis to its next. blocks: (size, axis) of the inner blocks, the outermost first, stored
    densely. Blocks are padded to full size with zeros.
    """

    sizes: Shape
    strides: Shape
    blocks: tuple[tuple[int, int], ...]

    def offsets(self, axis: int) -> npt.NDArray[np.int64]:
        """Return the element offset of each position along an axis, padding positions included."""
        block_size = math.prod(size for size, owner in self.blocks if owner == axis)
        rest = np.arange(-(-self.sizes[axis] // block_size) * block_size)
        offsets, dense = np.zeros_like(rest), 1
        for size, owner in reversed(self.blocks):
            if owner == axis:
                offsets += rest % size * dense
                rest //= size
            dense *= size
        return offsets + rest * self.strides[axis]
