"""Sixteen numbers at once, on memory of bfloat16."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from mxrun.backend.jit import Block, HostLoop, bfloat16s, float32s, integer, native
from mxrun.backend.vectors import (
    LANES,
    above,
    choose,
    lanes,
    load_lanes,
    pair_lanes,
    store_lanes,
    stored_lanes,
    transpose_lanes,
)
from mxrun.base.dtype import numpy_dtype

BFLOAT16 = numpy_dtype("bfloat16")
PATTERNS = np.arange(1 << 16, dtype=np.uint32)
QUIET, INFINITY = 0x40, 0x7F80


@native
def widen_loop(block: Block) -> None:
    """output = data for a number of elements."""
    count, data, output = integer(block, 0), bfloat16s(block, 1), float32s(block, 2)
    for at in range(0, count, LANES):
        store_lanes(output, at, load_lanes(data, at, count - at), count - at)


@native
def round_loop(block: Block) -> None:
    """output = data for a number of elements."""
    count, data, output = integer(block, 0), float32s(block, 1), bfloat16s(block, 2)
    for at in range(0, count, LANES):
        store_lanes(output, at, load_lanes(data, at, count - at), count - at)


@native
def first_lanes_loop(block: Block) -> None:
    """output[:16] = the first lanes of data, the others 0."""
    count, data, output = integer(block, 0), bfloat16s(block, 1), float32s(block, 2)
    store_lanes(output, 0, load_lanes(data, 0, count), LANES)


@native
def stored_loop(block: Block) -> None:
    """Write data rounded to float32 memory to one output, and to bfloat16 memory to the other."""
    count, data = integer(block, 0), float32s(block, 1)
    narrow, wide, low = float32s(block, 2), float32s(block, 3), bfloat16s(block, 4)
    for at in range(0, count, LANES):
        value = load_lanes(data, at, count - at)
        store_lanes(narrow, at, stored_lanes(low, value), count - at)
        store_lanes(wide, at, stored_lanes(data, value), count - at)


@native
def above_loop(block: Block) -> None:
    """output = 1 where left > right, else 0."""
    left, right, output = float32s(block, 0), float32s(block, 1), float32s(block, 2)
    one, zero = lanes(np.float32(1)), lanes(np.float32(0))
    mask = above(load_lanes(left, 0, LANES), load_lanes(right, 0, LANES))
    store_lanes(output, 0, choose(mask, one, zero), LANES)


@native
def pair_loop(block: Block) -> None:
    """output = two times sixteen numbers, side by side."""
    low, high, output = float32s(block, 0), float32s(block, 1), float32s(block, 2)
    pairs = pair_lanes(load_lanes(low, 0, LANES), load_lanes(high, 0, LANES))
    store_lanes(output, 0, pairs, LANES)


@native
def transpose_loop(block: Block) -> None:
    """Transpose the given rows and columns, with strides that skip other elements."""
    data, output = float32s(block, 0), float32s(block, 3)
    transpose_lanes(data, 2, 19, integer(block, 1), integer(block, 2), output, 3, 21)


def rounded(values: npt.NDArray[Any]) -> npt.NDArray[np.uint16]:
    """The bits that float32 values, given by theirs, have as bfloat16."""
    data, output = values.astype(np.uint32), np.empty(len(values), np.uint16)
    HostLoop(round_loop, (len(data), data.ctypes.data, output.ctypes.data))()
    return output


def widened(bits: npt.NDArray[np.uint16]) -> npt.NDArray[np.float32]:
    output = np.empty(len(bits), np.float32)
    HostLoop(widen_loop, (len(bits), bits.ctypes.data, output.ctypes.data))()
    return output


def test_every_bfloat16_is_the_upper_half_of_its_float32() -> None:
    bits = PATTERNS.astype(np.uint16)
    got = widened(bits)
    np.testing.assert_array_equal(got.view(np.uint32), PATTERNS << 16)
    np.testing.assert_array_equal(got, bits.view(BFLOAT16).astype(np.float32))


@pytest.mark.parametrize(
    "lower", [0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF], ids=lambda lower: f"{lower:#x}"
)
def test_float32_is_rounded_to_the_nearest_bfloat16_and_ties_to_even(lower: int) -> None:
    """Every upper half, also of the smallest numbers and those that become infinite."""
    bits = PATTERNS << 16 | lower
    values = bits.view(np.float32)
    got, number = rounded(bits), ~np.isnan(values)
    expected = values[number].astype(BFLOAT16).view(np.uint16)
    np.testing.assert_array_equal(got[number], expected)
    # NaN keeps its sign and as much of its payload as fits, and becomes quiet.
    missing = PATTERNS[~number] | QUIET
    np.testing.assert_array_equal(got[~number], missing)
    assert (missing & 0x7FFF > INFINITY).all()


@pytest.mark.parametrize("count", [0, 1, 7, 15, 16, 17, 37])
def test_nothing_is_stored_behind_the_last_element(count: int) -> None:
    data = np.linspace(-3, 5, 48, dtype=np.float32)
    output = np.full(48, 0x1234, np.uint16)
    HostLoop(round_loop, (count, data.ctypes.data, output.ctypes.data))()
    np.testing.assert_array_equal(output[:count].view(BFLOAT16), data[:count].astype(BFLOAT16))
    assert (output[count:] == 0x1234).all()


@pytest.mark.parametrize("count", [0, 1, 7, 15, 16, 17])
def test_lanes_that_are_not_read_are_zero(count: int) -> None:
    data = np.full(LANES, 0x4049, np.uint16)
    output = np.ones(LANES, np.float32)
    HostLoop(first_lanes_loop, (count, data.ctypes.data, output.ctypes.data))()
    expected = np.where(np.arange(LANES) < count, np.float32(3.140625), np.float32(0))
    np.testing.assert_array_equal(output, expected)


def test_lanes_may_be_rounded_as_memory_would_round_them() -> None:
    """The address of the bfloat16 memory is 0: rounding must not access it."""
    data = (np.arange(1 << 16, dtype=np.uint32) << 16 | 0x8001).view(np.float32)
    narrow, wide = np.empty_like(data), np.empty_like(data)
    addresses = [array.ctypes.data for array in (data, narrow, wide)]
    HostLoop(stored_loop, (len(data), *addresses, 0))()
    assert narrow.tobytes() == widened(rounded(data.view(np.uint32))).tobytes()
    assert wide.tobytes() == data.tobytes()


def test_nan_is_above_nothing_and_nothing_is_above_nan() -> None:
    values = np.array([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 1e-45], np.float32)
    for value in values:
        left = np.resize(values, LANES)
        right, output = np.full(LANES, value), np.empty(LANES, np.float32)
        HostLoop(above_loop, tuple(array.ctypes.data for array in (left, right, output)))()
        np.testing.assert_array_equal(output, left > right)


def test_pairs_lie_side_by_side_as_bfloat16_memory_has_them() -> None:
    random = np.random.default_rng(0)
    low, high = random.standard_normal((2, 16)).astype(np.float32)
    low[:3] = np.inf, np.nan, 1e-40
    output = np.empty(32, BFLOAT16)
    HostLoop(pair_loop, (low.ctypes.data, high.ctypes.data, output.ctypes.data))()
    pairs = output.view(np.uint16).reshape(16, 2)
    np.testing.assert_array_equal(pairs[:, 0], rounded(low.view(np.uint32)))
    np.testing.assert_array_equal(pairs[:, 1], rounded(high.view(np.uint32)))


@pytest.mark.parametrize(("rows", "columns"), [(16, 16), (20, 40), (16, 9), (5, 16), (1, 1)])
def test_rows_become_columns_and_nothing_else_is_written(rows: int, columns: int) -> None:
    data = np.arange(16 * 19, dtype=np.float32).reshape(16, 19)
    output = np.full((16, 21), -1, np.float32)
    addresses = data.ctypes.data, output.ctypes.data
    HostLoop(transpose_loop, (addresses[0], rows, columns, addresses[1]))()
    rows, columns = min(rows, 16), min(columns, 16)
    expected = np.full((16, 21), -1, np.float32)
    expected[:columns, 3 : 3 + rows] = data[:rows, 2 : 2 + columns].T
    np.testing.assert_array_equal(output, expected)
