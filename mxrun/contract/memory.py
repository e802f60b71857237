"""Memory of the checker's own: aligned, filled with garbage and guarded at both ends."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from mxrun.base.dtype import item_size, numpy_dtype
from mxrun.base.tensor import ALIGNMENT, CHANNELS_LAST, PLAIN, TensorSpec

Array = npt.NDArray[Any]

# Bytes on either side of a tensor that no call may touch: more than a vector register holds.
GUARD = 4 * ALIGNMENT
_GUARD_BYTE = 0xA5
_GUARD = bytes([_GUARD_BYTE]) * GUARD
# Elements of a wider row before and after a tensor's own: rows begin at no place that is even.
_LEFT, _RIGHT = 3, 6


class GuardedMemory:
    """Aligned bytes that hold one tensor in some layout.

    `fill` is the byte that everything holds before a value is stored: of 0xFF floats are NaN.
    pitch: as a kernel is told of it, 0 for what lies in one piece.
    """

    pitch = 0

    def __init__(self, spec: TensorSpec, value: Array | None = None, fill: int = 0xFF) -> None:
        self.spec = spec
        owner = np.full(spec.nbytes + 2 * GUARD + ALIGNMENT, _GUARD_BYTE, np.uint8)
        start = GUARD + -(owner.ctypes.data + GUARD) % ALIGNMENT
        self.bytes: Array = owner[start : start + spec.nbytes]
        self._before = owner[start - GUARD : start]
        self._after = owner[start + spec.nbytes : start + spec.nbytes + GUARD]
        self.bytes[:] = fill
        if value is not None:
            self.store(value)

    @property
    def address(self) -> int:
        """Where the tensor begins."""
        return int(self.bytes.ctypes.data)

    @property
    def is_row_major(self) -> bool:
        """Whether NumPy can see the tensor: packings are known to their kernels alone."""
        return self.spec.layout in (PLAIN, CHANNELS_LAST)

    def under(self, spec: TensorSpec) -> GuardedMemory:
        """The same bytes under another spec."""
        view = object.__new__(GuardedMemory)
        view.__dict__.update(self.__dict__)
        view.spec = spec
        return view

    def elements(self) -> Array:
        """The tensor's elements in the order of memory, over the same memory."""
        return self.bytes.view(numpy_dtype(self.spec.dtype))

    def logical(self) -> Array:
        """The tensor in its logical shape, over the same memory; row-major layouts only."""
        typed, shape = self.elements(), self.spec.shape
        if self.spec.layout == CHANNELS_LAST:
            return np.moveaxis(typed.reshape(shape[0], *shape[2:], shape[1]), -1, 1)
        return typed.reshape(shape)

    def store(self, value: Array) -> None:
        """Write the logical value in this memory's layout; row-major layouts only."""
        self.logical()[...] = value

    def overrun(self) -> str:
        """How a call wrote beyond the tensor; empty where it did not."""
        if self._before.tobytes() != _GUARD:
            first = int(np.argmax(self._before != _GUARD_BYTE))
            return f"{GUARD - first} bytes before its beginning"
        if self._after.tobytes() != _GUARD:
            return f"{int(np.flatnonzero(self._after != _GUARD_BYTE)[-1]) + 1} bytes beyond its end"
        return ""


class Within(GuardedMemory):
    """Memory that holds one tensor in rows of `width` elements amid wider ones, full of NaN."""

    def __init__(self, spec: TensorSpec, width: int, value: Array | None = None) -> None:
        self.width, self.pitch = width, _LEFT + width + _RIGHT
        rows = spec.elements // width if width else 0
        super().__init__(TensorSpec((rows, self.pitch), spec.dtype))
        if value is not None:
            self._rows[...] = value.reshape(rows, width)

    @property
    def address(self) -> int:
        """Where the tensor begins."""
        return super().address + _LEFT * item_size(self.spec.dtype)

    def elements(self) -> Array:
        """The tensor's elements in the order of memory, copied."""
        return self._rows.ravel()

    @property
    def _rows(self) -> Array:
        whole = super().elements().reshape(-1, self.pitch)
        return whole[:, _LEFT : _LEFT + self.width]

    def overrun(self) -> str:
        """How a call wrote beside the tensor; empty where it did not."""
        beside = np.delete(self.bytes.reshape(len(self._rows), -1), self._own_bytes, axis=1)
        return super().overrun() or ("between its rows" if (beside != 0xFF).any() else "")

    @property
    def _own_bytes(self) -> slice:
        size = item_size(self.spec.dtype)
        return slice(_LEFT * size, (_LEFT + self.width) * size)
