"""cupy.cuda.pinned_memory: blocks of the host from which the card copies."""

from __future__ import annotations

import ctypes

from cupy.cuda.card import CARD


class PinnedMemoryPointer:
    """Block of `size` bytes at `ptr`, which others get once this object is gone.

    CuPy's pool does not wait for copies that were started; the bytes change at once.
    """

    def __init__(self, size: int) -> None:
        free = CARD.pool.get(size)
        self._bytes = free.pop() if free else (ctypes.c_char * size)()
        self.ptr, self.size = ctypes.addressof(self._bytes), size
        CARD.pinned[self.ptr] = size

    def __del__(self) -> None:
        ctypes.memset(self.ptr, 0xA5, self.size)
        CARD.pool.setdefault(self.size, []).append(self._bytes)


def alloc_pinned_memory(size: int) -> PinnedMemoryPointer:
    """Allocate pinned memory."""
    CARD.require()
    CARD.forbid_in_capture()
    return PinnedMemoryPointer(size)
