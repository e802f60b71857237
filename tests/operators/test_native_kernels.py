"""Kernels composed of parts: an input that a part reads must be one of the kernel's."""

from __future__ import annotations

import pytest
from executors import cpu

from mxrun.base.errors import InternalError
from mxrun.base.tensor import TensorSpec
from mxrun.operator.kernel import OpReqType
from mxrun.operator.native_kernel import (
    Addition,
    LoopPart,
    Slot,
    add_loop,
    native_kernel,
    source,
    target,
)
from mxrun.ops.copy_part import COPY

SPEC = TensorSpec((4,))


def part_of(named: bool, place: Slot) -> LoopPart:
    if named:
        return LoopPart(add_loop, Addition(count=4, source=place, target=target(0)), 1)
    return COPY.part(target(0), [place], 4, device=cpu())


@pytest.mark.parametrize("named", [False, True])
def test_a_part_that_reads_an_absent_input_is_refused(named: bool) -> None:
    requests = [OpReqType.WRITE]
    kernel = native_kernel(
        "own", [part_of(named, source(1))], (None, SPEC), (SPEC,), requests, cpu()
    )
    assert kernel.inputs == (None, SPEC)
    with pytest.raises(InternalError, match="a part of own reads input 0, which is None"):
        native_kernel("own", [part_of(named, source(0))], (None, SPEC), (SPEC,), requests, cpu())
