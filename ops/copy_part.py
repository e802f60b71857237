"""Copy of a tensor that may already be where it is needed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mxrun.backend.call import NativeCall
from mxrun.operator import scalar
from mxrun.operator.kernel import Buffers, OpReqType
from mxrun.operator.native_kernel import LoopPart, Slot, bound

COPY = scalar.compile(lambda x: x)


@dataclass(frozen=True)
class _CopyPart(LoopPart):
    """Loop of `COPY`, skipped if its output and its operand are the same memory."""

    def calls(self, buffers: Buffers, scratch: int) -> tuple[NativeCall, ...]:
        """Return one copy, or none."""
        assert isinstance(self.arguments, tuple)
        _, output, operand = (bound(argument, buffers) for argument in self.arguments)
        return () if output == operand else super().calls(buffers, scratch)


def copy_part(
    source: Slot,
    target: Slot,
    count: int,
    threads: int,
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
        threads=threads,
        requests=[request],
        stored=stored,
        # No prefetching for writes, with which 3 million floats take up to 1.5 times as long.
        in_place=True,
    )
    plain = request is not OpReqType.ADD and len(set(stored)) < 2
    return _CopyPart(part.function, part.arguments, part.threads) if plain else part
