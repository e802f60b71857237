"""Offsets of the pinned tensors by name."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from mxrun.base.device import CPU, DeviceDescription
from mxrun.graph.graph import MemoryClass
from mxrun.planner.plan import Block, Plan


class Counted(tuple[Block, ...]):
    """Blocks that count how often they are gone through."""

    __slots__ = ()
    read = 0

    def __iter__(self) -> Iterator[Block]:
        Counted.read += 1
        return super().__iter__()


def test_the_pinned_blocks_are_gone_through_once_for_all_offsets() -> None:
    blocks = Counted(
        Block(f"w{i}", MemoryClass.PARAMETERS, 64 * i, 64, 0, 1, ()) for i in range(200)
    )
    plan = Plan({}, blocks, {}, device=DeviceDescription(CPU), planning_ms=0.0)
    assert [plan.offset(f"w{i}") for i in range(200)] == [64 * i for i in range(200)]
    assert Counted.read == 1
    with pytest.raises(KeyError):
        plan.offset("nothing")
