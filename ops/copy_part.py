"""Copy of a tensor that may already be where it is needed."""

from __future__ import annotations

from collections.abc import Sequence

from mxrun.base.dataclass import dataclass
from mxrun.base.device import DeviceDescription
from mxrun.operator import scalar
from mxrun.operator.kernel import Handles, OpReqType
from mxrun.operator.launch import Handle, Launch
from mxrun.operator.native_kernel import LoopPart, Slot

COPY = scalar.compile(lambda x: x)


@dataclass(frozen=True)
class _CopyPart(LoopPart):
    """Loop of `COPY`, skipped if its output and its operand are the same memory."""

    def launches(self, handles: Handles, scratch: Handle | None) -> tuple[Launch, ...]:
        """Return one copy, or none."""
        output, operand = (slot.handle(handles) for slot in self.slots())
        in_place = output is not None and operand is not None and output.is_at(operand)
        return () if in_place else super().launches(handles, scratch)


def copy_part(
    source: Slot,
    target: Slot,
    count: int,
    device: DeviceDescription,
    request: OpReqType = OpReqType.WRITE,
    stored: Sequence[str] = (),
) -> LoopPart:
    """Return target = source for `count` floats, or for as many bytes.

    A plain copy is skipped in place. request, stored: as in `MapKernel.multi_output_part`.
    """
    part = COPY.multi_output_part(
        [target],
        [source],
        count,
        device=device,
        requests=[request],
        stored=stored,
        # No prefetching for writes, with which 3 million floats take up to 1.5 times as long.
        in_place=True,
    )
    plain = request is not OpReqType.ADD and len(set(stored)) < 2
    return _CopyPart(part.function, part.arguments, part.tasks) if plain else part
