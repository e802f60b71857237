"""Pieces of a kernel that hand tensors to one another in scratch."""

from __future__ import annotations

from dataclasses import dataclass, replace

from mxrun.backend.call import NativeCall
from mxrun.base.tensor import align
from mxrun.operator.kernel import Buffers
from mxrun.operator.native_kernel import KernelPart, Slot, extra


def between(index: int) -> Slot:
    """The chain's scratch tensor `index`, for the slots of its parts."""
    return extra(index)


@dataclass(frozen=True)
class ChainPart:
    """Parts one after the other, with scratch tensors of so many bytes that `between` names.

    The parts must all want one team, but for loops, which bring their own. They see no extra
    outputs of the kernel.
    """

    parts: tuple[KernelPart, ...]
    between_bytes: tuple[int, ...]

    @property
    def team(self) -> int | None:
        """The team of the parts that need one set."""
        return next((part.team for part in self.parts if part.team is not None), None)

    @property
    def scratch_bytes(self) -> int:
        """The tensors between the parts, then the most that one of the parts needs."""
        own = max(part.scratch_bytes for part in self.parts)
        return sum(map(align, self.between_bytes)) + own

    def calls(self, buffers: Buffers, scratch: int) -> tuple[NativeCall, ...]:
        """The parts' calls in order."""
        addresses = []
        for nbytes in self.between_bytes:
            addresses.append(scratch)
            scratch += align(nbytes)
        inside = replace(buffers, extra_outputs=tuple(addresses))
        return tuple(call for part in self.parts for call in part.calls(inside, scratch))
