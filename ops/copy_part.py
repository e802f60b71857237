"""Copy of a tensor to memory that a later part of the kernel overwrites."""

from __future__ import annotations

from dataclasses import dataclass

from mxrun.backend import jit
from mxrun.backend.arguments import Arguments, Float32s, Integer
from mxrun.backend.call import NativeCall
from mxrun.backend.jit import native, share
from mxrun.operator.kernel import Buffers
from mxrun.operator.native_kernel import Slot


class Copy(Arguments):
    """Arguments of `copy_loop`."""

    count: Integer
    data: Float32s
    output: Float32s


@native
def copy_loop(call: Copy) -> None:
    """output[i] = data[i]."""
    begin, end = share(call.count)
    for i in range(begin, end):
        call.output[i] = call.data[i]


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
        copy = Copy(count=self.count, data=old, output=new)
        return (jit.bind(copy_loop, copy, self.threads),)
