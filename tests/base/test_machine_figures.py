"""Machine figures: interpolation between sizes, and rejection of invalid figures."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import pytest

from mxrun.base.machine import Bandwidth, Machine

MACHINE = Machine(
    threads=2,
    flops_per_s={"float32": 4e11, "bfloat16": 4e12},
    bandwidths=(
        Bandwidth(1 << 10, update=8e10, copy=4e10, read=6e10),
        Bandwidth(1 << 14, update=4e10, copy=2e10, read=3e10),
        Bandwidth(1 << 20, update=2e10, copy=1e10, read=1e10),
    ),
    loop_s=1e-8,
    primitive_s=2e-7,
    tasks_s=1e-6,
    cache_bytes=(1 << 11, 1 << 15),
)


def test_bandwidth_lies_between_the_sizes_measured() -> None:
    for row in MACHINE.bandwidths:
        assert MACHINE.bandwidth(row.nbytes) == row
    assert MACHINE.bandwidth(1) == replace(MACHINE.bandwidths[0], nbytes=1)
    assert MACHINE.bandwidth(1 << 30) == replace(MACHINE.bandwidths[-1], nbytes=1 << 30)
    # Half of the way from 2^10 to 2^14, and a third of the way from 2^14 to 2^20.
    assert MACHINE.bandwidth(1 << 12) == Bandwidth(1 << 12, 6e10, 3e10, 4.5e10)
    third = MACHINE.bandwidth(1 << 16)
    assert third.copy == pytest.approx(2e10 - 1e10 / 3)
    assert third.read == pytest.approx(3e10 - 2e10 / 3)


def test_bytes_move_as_updates_copies_and_reads() -> None:
    assert MACHINE.seconds_to_move(0, 0) == 0
    assert MACHINE.seconds_to_move(512, 512) == pytest.approx(1024 / 4e10)
    assert MACHINE.seconds_to_move(1024, 0) == pytest.approx(1024 / 6e10)
    assert MACHINE.seconds_to_move(0, 1024) == pytest.approx(1024 / 4e10)
    # 1,024 bytes brought up to date are a working set of 1,024 and 2,048 bytes moved.
    assert MACHINE.seconds_to_move(1024, 1024, 1024) == pytest.approx(2048 / 8e10)
    mixed = 2 * 100 / 8e10 + 2 * 200 / 4e10 + 300 / 6e10
    assert MACHINE.seconds_to_move(600, 300, 100) == pytest.approx(mixed)


def test_factors_without_instructions_count_as_float32() -> None:
    assert MACHINE.flops("bfloat16") == 4e12
    assert replace(MACHINE, flops_per_s={"float32": 4e11}).flops("bfloat16") == 4e11


def test_threads_that_waited_for_other_work_are_told() -> None:
    assert not MACHINE.disturbed
    assert replace(MACHINE, tasks_s=2e-4).disturbed


def test_figures_come_back_from_json() -> None:
    text = json.dumps(MACHINE.to_json())
    assert Machine.from_json(json.loads(text)) == MACHINE


def damaged(**changes: Any) -> Any:
    return MACHINE.to_json() | changes


ROW = {"nbytes": 1, "update": 1.0, "copy": 1.0, "read": 1.0}


@pytest.mark.parametrize(
    "value",
    [
        None,
        [],
        "text",
        {},
        {name: value for name, value in MACHINE.to_json().items() if name != "tasks_s"},
        damaged(threads="many"),
        damaged(flops_per_s={}),
        damaged(flops_per_s={"bfloat16": 1e12}),
        damaged(flops_per_s={"float32": 0.0}),
        damaged(flops_per_s={"float32": math.nan}),
        damaged(flops_per_s=[1.0]),
        damaged(bandwidths=[]),
        damaged(bandwidths=[ROW, ROW]),
        damaged(bandwidths=[ROW | {"nbytes": 2}, ROW]),
        damaged(bandwidths=[ROW | {"copy": -1.0}]),
        damaged(bandwidths=[ROW | {"copy": "fast"}]),
        damaged(bandwidths=[ROW | {"more": 1.0}]),
        damaged(loop_s=math.inf),
        damaged(primitive_s=0.0),
        damaged(tasks_s=-1.0),
        damaged(cache_bytes=None),
        damaged(cache_bytes=[1e400]),
    ],
)
def test_damaged_figures_are_none(value: Any) -> None:
    assert Machine.from_json(value) is None
