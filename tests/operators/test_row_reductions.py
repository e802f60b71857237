"""Typed reductions of rows against NumPy in float64, for sizes that fill no vector or block."""

from __future__ import annotations

import math

import numpy as np
import pytest

from mxrun.codegen.arguments import Arguments, Float32s, Float64s, Integer
from mxrun.codegen.host_loop import HostLoop
from mxrun.codegen.jit import native
from mxrun.codegen.vectors import load_lanes, multiply_lanes
from mxrun.ops.row_reduction import row_maximum, row_sum


class Reduced(Arguments):
    """Arguments of `reduced_loop`: a run of two arrays."""

    begin: Integer
    end: Integer
    left: Float32s
    right: Float32s
    results: Float64s


@native
def reduced_loop(call: Reduced) -> None:
    """results = the sum of products of the run, and the largest element of left in it."""
    left, right = call.left, call.right
    call.results[0] = row_sum(
        call.begin,
        call.end,
        lambda j, count: multiply_lanes(load_lanes(left, j, count), load_lanes(right, j, count)),
    )
    call.results[1] = row_maximum(call.begin, call.end, lambda j, count: load_lanes(left, j, count))


@pytest.mark.parametrize("begin", [0, 3])
@pytest.mark.parametrize("size", [1, 15, 16, 17, 63, 65, 127, 2047, 2048, 2049, 2113, 5001])
def test_runs_of_any_size_are_reduced(size: int, begin: int) -> None:
    left, right = np.random.default_rng(size).normal(size=(2, begin + size + 20)).astype(np.float32)
    # What lies outside of the run, and NaN within it, changes no maximum.
    left[begin + size :], left[:begin] = 1e9, 1e9
    results = np.zeros(2)
    loop = HostLoop(
        reduced_loop,
        Reduced(begin=begin, end=begin + size, left=left, right=right, results=results),
    )
    loop()
    run = slice(begin, begin + size)
    products = np.float64(left[run]) * np.float64(right[run])
    assert abs(results[0] - math.fsum(products)) <= 1e-6 * np.abs(products).sum()
    assert results[1] == left[run].max()
    left[begin + size // 2] = np.nan
    loop()
    assert results[1] == np.nanmax(left[run], initial=-np.inf)
    assert math.isnan(results[0])
