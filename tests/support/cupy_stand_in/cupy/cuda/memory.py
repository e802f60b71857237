"""cupy.cuda.memory: blocks of the card, which the host cannot access."""

from __future__ import annotations

from cupy.cuda.card import CARD


class Memory:
    """Block of `size` bytes at `ptr`, freed with this object."""

    ptr = 0

    def __init__(self, size: int) -> None:
        self.size = size
        self.ptr = CARD.allocate(size)

    def __del__(self) -> None:
        if self.ptr:
            CARD.release(self.ptr)
