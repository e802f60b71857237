"""Sequences of kernel parts that pass tensors to each other in scratch space."""

from __future__ import annotations

from dataclasses import dataclass, replace

from mxrun.backend.call import NativeCall
from mxrun.base.tensor import align
from mxrun.operator.kernel import Buffers
from mxrun.operator.native_kernel import KernelPart, Slot, extra


def between(index: int) -> Slot:
    """Return the slot of the chain's scratch tensor `index`."""
    return extra(index)


@dataclass(frozen=True)
class ChainPart:
    """Sequence of parts with scratch tensors of `between_bytes`, whose slots `between` returns.

    The parts must all require the same team size, except loops, which start their own team. The
    parts cannot use the kernel's extra outputs.
    """

    parts: tuple[KernelPart, ...]
    between_bytes: tuple[int, ...]

    @property
    def team(self) -> int | None:
        """Team size of the parts that require one."""
        return next((part.team for part in self.parts if part.team is not None), None)

    @property
    def scratch_bytes(self) -> int:
        """Size of the tensors between the parts plus the maximum scratch space of one part."""
        own = max(part.scratch_bytes for part in self.parts)
        return sum(map(align, self.between_bytes)) + own

    def calls(self, buffers: Buffers, scratch: int) -> tuple[NativeCall, ...]:
        """Return the parts' calls in order."""
        addresses = []
        for nbytes in self.between_bytes:
            addresses.append(scratch)
            scratch += align(nbytes)
        inside = replace(buffers, extra_outputs=tuple(addresses))
        return tuple(call for part in self.parts for call in part.calls(inside, scratch))
