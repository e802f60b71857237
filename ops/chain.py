"""SequenceArguments of kernel parts that pass tensors to each other in scratch space."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import accumulate

from mxrun.base.tensor import align
from mxrun.operator.kernel import Handles
from mxrun.operator.launch import Handle, Launch
from mxrun.operator.native_kernel import KernelPart, Slot, extra


def between(index: int) -> Slot:
    """Return the slot of the chain's scratch tensor `index`."""
    return extra(index)


@dataclass(frozen=True)
class ChainPart:
    """Sequence of parts with scratch tensors of `between_bytes`, whose slots `between` returns.

    kept: number of the kernel's extra outputs, whose slots come before those of the scratch
    tensors.
    """

    parts: tuple[KernelPart, ...]
    between_bytes: tuple[int, ...]
    kept: int = 0

    @property
    def scratch_bytes(self) -> int:
        """Size of the tensors between the parts plus the maximum scratch space of one part."""
        own = max(part.scratch_bytes for part in self.parts)
        return sum(map(align, self.between_bytes)) + own

    def slots(self) -> Iterator[Slot]:
        """Yield the parts' slots, except those of the scratch tensors."""
        for part in self.parts:
            yield from (
                slot
                for slot in part.slots()
                if slot.group != "extra_outputs" or slot.index < self.kept
            )

    def launches(self, handles: Handles, scratch: Handle | None) -> tuple[Launch, ...]:
        """Return the parts' launches in order."""
        offsets = accumulate(map(align, self.between_bytes), initial=0)
        *places, own = (None if scratch is None else scratch + offset for offset in offsets)
        kept = handles.extra_outputs[: self.kept]
        inside = replace(handles, extra_outputs=(*kept, *places))
        return tuple(launch for part in self.parts for launch in part.launches(inside, own))
