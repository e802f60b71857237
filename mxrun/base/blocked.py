"""Packed layouts that consist of strides and inner blocks.

Panels are the one that this program's own products read: a matrix [rows, columns] in panels of
PANEL rows. The words of a panel, which are elements of 32 bits or two neighbours of 16, are stored
column by column.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from mxrun.base.dataclass import dataclass
from mxrun.base.dtype import item_size
from mxrun.base.tensor import Layout, Shape, TensorSpec

PANEL = 64
# Words of columns that a panel is padded to.
_COLUMNS = 16
_NAME = "panels"


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


def in_panels(matrix: TensorSpec) -> TensorSpec:
    """Return a matrix in panels; rows and columns are padded with zeros."""
    rows, columns = matrix.shape
    block = _COLUMNS * _word(matrix)
    padded = -(-rows // PANEL) * PANEL * (-(-columns // block) * block)
    name = f"{_NAME}:{rows}x{columns}"
    return matrix.with_layout(Layout(name, padded * item_size(matrix.dtype)))


def panels_of(matrix: TensorSpec) -> Blocked | None:
    """Return the strides and blocks of a matrix in panels; None for any other layout."""
    if matrix.layout.name.partition(":")[0] != _NAME:
        return None
    word = _word(matrix)
    block = _COLUMNS * word
    columns = -(-matrix.shape[1] // block) * block
    inner = ((word, 1),) if word > 1 else ()
    blocks = ((_COLUMNS, 1), (PANEL, 0), *inner)
    return Blocked(matrix.shape, (PANEL * columns, PANEL * block), blocks)


def _word(matrix: TensorSpec) -> int:
    return 4 // item_size(matrix.dtype)
