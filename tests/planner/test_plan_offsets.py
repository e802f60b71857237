"""Offsets of the pinned tensors by name, and the alignment of all blocks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from mxrun.base.device import CPU, DeviceDescription, NumpyBodies
from mxrun.base.errors import InternalError
from mxrun.compiler.compile import compile_plan
from mxrun.compiler.verify import verify_plan
from mxrun.config.bundled import find_config
from mxrun.device.cuda.card import Card
from mxrun.device.cuda.recorded_cards import recorded_card
from mxrun.graph.graph import MemoryClass
from mxrun.planner.plan import Block, Plan
from mxrun.preparation.planning import load, request_for


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


def planned(device: DeviceDescription) -> Plan:
    """Plan the training of a bundled network for a device."""
    built = load(find_config("digits_lenet"))
    return compile_plan(
        built.model.symbol, replace(request_for(built, training=True), device=device)
    )


def test_blocks_begin_at_multiples_of_the_devices_alignment() -> None:
    on_card = planned(Card.recorded(recorded_card("h100").properties).description(0))
    on_cpu = planned(DeviceDescription(CPU, numpy_bodies=NumpyBodies.FLOAT32))
    for plan, alignment in ((on_card, 256), (on_cpu, 64)):
        blocks = [*plan.pinned, *(each for p in plan.phases.values() for each in p.blocks)]
        assert any(each.memory_class is MemoryClass.WORKSPACE for each in blocks)
        multiples = {each.offset % alignment for each in blocks}
        multiples |= {each.nbytes % alignment for each in blocks}
        assert multiples == {0}
        # Nothing is aligned further than it must be.
        assert any(each.offset % (2 * alignment) for each in blocks)
        verify_plan(plan)
    with pytest.raises(InternalError, match="is not aligned"):
        verify_plan(replace(on_cpu, device=on_card.device))
