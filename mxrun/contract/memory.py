"""Memory for checked calls: aligned, filled with garbage, with guard bytes at both ends."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from mxrun.base.dtype import item_size, numpy_dtype
from mxrun.base.tensor import ALIGNMENT, TensorSpec
from mxrun.device.host_memory import HostMemory
from mxrun.device.layouts import logical_view
from mxrun.operator.launch import Handle

Array = npt.NDArray[Any]

# Guard bytes on either side of a tensor: more than a vector register holds.
GUARD = 4 * ALIGNMENT
_GUARD_BYTE = 0xA5
_GUARD = bytes([_GUARD_BYTE]) * GUARD
# Elements before and after each row of a slice, chosen so that rows begin at unaligned addresses.
_LEFT, _RIGHT = 3, 6


class GuardedMemory:
    """Aligned bytes that hold one tensor in some layout.

    fill: initial byte of the content; 0xFF makes floats NaN. with_guards: the bytes and the `GUARD`
    bytes on either side of them.
    """

    def __init__(self, spec: TensorSpec, value: Array | None = None, fill: int = 0xFF) -> None:
        self.spec = spec
        owner = np.full(spec.nbytes + 2 * GUARD + ALIGNMENT, _GUARD_BYTE, np.uint8)
        start = GUARD + -(owner.ctypes.data + GUARD) % ALIGNMENT
        self.with_guards: Array = owner[start - GUARD : start + spec.nbytes + GUARD]
        self.bytes: Array = owner[start : start + spec.nbytes]
        self._before = owner[start - GUARD : start]
        self._after = owner[start + spec.nbytes : start + spec.nbytes + GUARD]
        self.bytes[:] = fill
        self._memory = HostMemory.of(self.bytes)
        if value is not None:
            self.store(value)

    @property
    def handle(self) -> Handle:
        """Place of the tensor as passed to a kernel."""
        return Handle(self._memory, 0)

    def under(self, spec: TensorSpec) -> GuardedMemory:
        """Return the same bytes with another spec."""
        view = object.__new__(GuardedMemory)
        view.__dict__.update(self.__dict__)
        view.spec = spec
        return view

    def elements(self) -> Array:
        """Return a view of the tensor's elements in the order of memory."""
        return self.bytes.view(numpy_dtype(self.spec.dtype))

    def logical(self) -> Array:
        """Return a view of the tensor in its logical shape; row-major layouts only."""
        return logical_view(self.elements(), self.spec)

    def store(self, value: Array) -> None:
        """Write the logical value in this memory's layout; row-major layouts only."""
        self.logical()[...] = value

    def overrun(self) -> str:
        """Return where a call wrote outside the tensor; empty if it did not."""
        if self._before.tobytes() != _GUARD:
            first = int(np.argmax(self._before != _GUARD_BYTE))
            return f"{GUARD - first} bytes before its beginning"
        if self._after.tobytes() != _GUARD:
            return f"{int(np.flatnonzero(self._after != _GUARD_BYTE)[-1]) + 1} bytes beyond its end"
        return ""


class PitchedMemory(GuardedMemory):
    """Memory of one tensor as rows of `width` elements within wider rows filled with NaN."""

    def __init__(self, spec: TensorSpec, width: int, value: Array | None = None) -> None:
        self.width, self.pitch = width, _LEFT + width + _RIGHT
        rows = spec.elements // width if width else 0
        super().__init__(TensorSpec((rows, self.pitch), spec.dtype))
        if value is not None:
            self._rows[...] = value.reshape(rows, width)

    @property
    def handle(self) -> Handle:
        """Place of the first row, with the pitch of all rows."""
        return Handle(self._memory, _LEFT * item_size(self.spec.dtype), self.pitch)

    def elements(self) -> Array:
        """Return a copy of the tensor's elements in the order of memory."""
        return self._rows.ravel()

    @property
    def _rows(self) -> Array:
        padded = super().elements().reshape(-1, self.pitch)
        return padded[:, _LEFT : _LEFT + self.width]

    def overrun(self) -> str:
        """Return where a call wrote outside the tensor; empty if it did not."""
        beside = np.delete(self.bytes.reshape(len(self._rows), -1), self._own_bytes, axis=1)
        return super().overrun() or ("between its rows" if (beside != 0xFF).any() else "")

    @property
    def _own_bytes(self) -> slice:
        size = item_size(self.spec.dtype)
        return slice(_LEFT * size, (_LEFT + self.width) * size)
