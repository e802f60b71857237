"""Memory of the checker's own: aligned, filled with garbage and guarded at both ends."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from mxrun.base.dtype import numpy_dtype
from mxrun.base.tensor import ALIGNMENT, CHANNELS_LAST, PLAIN, TensorSpec

Array = npt.NDArray[Any]

# Bytes on either side of a tensor that no call may touch: more than a vector register holds.
GUARD = 4 * ALIGNMENT
_GUARD_BYTE = 0xA5
_GUARD = bytes([_GUARD_BYTE]) * GUARD


class Memory:
    """Aligned bytes that hold one tensor in some layout.

    `fill` is the byte that everything holds before a value is stored: of 0xFF floats are NaN.
    """

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

    def under(self, spec: TensorSpec) -> Memory:
        """The same bytes under another spec."""
        view = object.__new__(Memory)
        view.__dict__.update(self.__dict__)
        view.spec = spec
        return view

    def logical(self) -> Array:
        """The tensor in its logical shape, over the same memory; row-major layouts only."""
        typed, shape = self.bytes.view(numpy_dtype(self.spec.dtype)), self.spec.shape
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
