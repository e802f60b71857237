"""cupy.cuda.pinned_memory: blocks of the host from which the card copies."""

from __future__ import annotations

import ctypes

from cupy.cuda.card import CARD


class PinnedMemoryPointer:
    """Block of `size` bytes at `ptr`, freed with this object."""

    def __init__(self, size: int) -> None:
        self._bytes = (ctypes.c_char * size)()
        self.ptr = ctypes.addressof(self._bytes)
        CARD.pinned[self.ptr] = size

    def __del__(self) -> None:
        for stream in CARD.streams:
            stream.drain()
        CARD.pinned.pop(self.ptr, None)


def alloc_pinned_memory(size: int) -> PinnedMemoryPointer:
    """Allocate pinned memory."""
    CARD.require()
    CARD.forbid_in_capture()
    return PinnedMemoryPointer(size)
