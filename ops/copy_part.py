"""Copy of a tensor to memory that a later part of the kernel overwrites."""

from __future__ import annotations

from dataclasses import dataclass

from mxrun.backend import jit
from mxrun.backend.call import NativeCall
from mxrun.backend.jit import Block, float32s, integer, native, share
from mxrun.operator.kernel import Buffers
from mxrun.operator.native_kernel import Slot


@native
def copy_loop(block: Block) -> None:
    """output[i] = input[i]."""
    data, output = float32s(block, 1), float32s(block, 2)
    begin, end = share(block, integer(block, 0))
    for i in range(begin, end):
        output[i] = data[i]


@dataclass(frozen=True)
class InPlaceCopyPart:
    """Copy of `count` floats, or of as many bytes, to memory that a loop overwrites.

    Skipped if source and target are the same memory.
    """

    count: int
    source: Slot
    target: Slot
    threads: int
    scratch_bytes: int = 0

    @property
    def team(self) -> None:
        """None: the loop starts its own team."""
        return

    def calls(self, buffers: Buffers, scratch: int) -> tuple[NativeCall, ...]:
        """Return one copy, or none."""
        old, new = self.source.address(buffers), self.target.address(buffers)
        if old == new:
            return ()
        return (jit.bind(copy_loop, (self.count, old, new), self.threads),)
