"""Runs of reductions: their bits are those of the documented order on every processor."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from mxrun.codegen.arguments import Arguments, Float32s, Float64s, Integer, Real
from mxrun.codegen.host_loop import HostLoop
from mxrun.codegen.intrinsics import reduced_run
from mxrun.codegen.jit import native

Doubles = npt.NDArray[np.float64]
Join = Callable[[Any, Any], Any]
SHIFT = 0.3


class Run(Arguments):
    """Arguments of `run_loop`: the total is both read and written."""

    kind: Integer
    count: Integer
    data: Float32s
    shift: Real
    total: Float64s


@native
def run_loop(call: Run) -> None:
    call.total[0] = reduced_run(call.kind, call.total[0], call.data, 0, call.count, call.shift, 0)


def in_order(values: Doubles, join: Join, start: float, total: float) -> float:
    """Combine values in 32 lanes, halve these until one is left, and combine it with the total."""
    lanes = np.full(32, start)
    for first in range(0, len(values), 32):
        part = values[first : first + 32]
        lanes[: len(part)] = join(lanes[: len(part)], part)
    while len(lanes) > 1:
        half = len(lanes) // 2
        lanes = join(lanes[:half], lanes[half:])
    return float(join(total, lanes[0]))


KINDS: dict[int, tuple[Callable[[Doubles], Doubles], Join, float]] = {
    0: (lambda x: x, np.add, 0.0),
    3: (lambda x: x, np.multiply, 1.0),
    4: (lambda x: np.where(np.isnan(x), 0.0, x), np.add, 0.0),
    5: (lambda x: np.where(np.isnan(x), 1.0, x), np.multiply, 1.0),
    6: (np.abs, np.add, 0.0),
    7: (np.square, np.add, 0.0),
    8: (lambda x: np.square(x - np.float32(SHIFT)), np.add, 0.0),
    9: (lambda x: x - np.float32(SHIFT), np.add, 0.0),
}


def reduced(kind: int, values: npt.NDArray[np.float32], total: float) -> float:
    result = np.array([total])
    HostLoop(run_loop, Run(kind=kind, count=len(values), data=values, shift=SHIFT, total=result))()
    return float(result[0])


@pytest.mark.parametrize("count", [1, 3, 31, 32, 33, 511, 512, 544, 1000, 5003])
@pytest.mark.parametrize("kind", KINDS)
def test_a_run_has_the_bits_of_its_order(kind: int, count: int) -> None:
    take, join, start = KINDS[kind]
    generator = np.random.default_rng(count)
    scale = 0.01 if kind in (3, 5) else 1e3
    values = (1 + scale * generator.normal(size=count)).astype(np.float32)
    if kind in (4, 5):
        values[::7] = np.nan
    wanted = in_order(take(values.astype(np.float64)), join, start, 1.5)
    assert reduced(kind, values, 1.5) == wanted


@pytest.mark.parametrize("kind", [0, 3, 6, 7, 8, 9])
@pytest.mark.parametrize("place", [0, 600, 999])
def test_nan_and_infinity_are_not_lost(kind: int, place: int) -> None:
    for extreme in (math.nan, math.inf):
        values = np.ones(1000, np.float32)
        values[place] = extreme
        found = reduced(kind, values, 1.0)
        assert math.isnan(found) if math.isnan(extreme) else found == math.inf


def test_a_sum_of_negative_zeros_is_that_of_numpy() -> None:
    zeros = np.full(100, -0.0, np.float32)
    assert math.copysign(1.0, reduced(0, zeros, 0.0)) == 1.0
    assert reduced(0, np.array([3e38, 3e38, -3e38], np.float32), 0.0) == float(np.float32(3e38))
