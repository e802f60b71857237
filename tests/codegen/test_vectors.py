"""Sixteen numbers at once, on memory of bfloat16."""

from __future__ import annotations

from typing import Any

import llvmlite.binding as llvm
import numpy as np
import numpy.typing as npt
import pytest

from mxrun.base.dtype import numpy_dtype
from mxrun.codegen.arguments import Arguments, BFloat16s, Float32s, Float64s, Floats, Integer
from mxrun.codegen.host_loop import HostLoop
from mxrun.codegen.jit import NativeFunction, native
from mxrun.codegen.vectors import (
    LANES,
    PANEL_COLUMNS,
    PANEL_ROWS,
    above,
    choose,
    exp2_lanes,
    keep_lanes,
    lanes,
    largest_lane,
    load_lanes,
    log_lanes,
    maximum_lanes,
    multiply_pair_panel,
    multiply_panel,
    narrow_lanes,
    pair_lanes,
    store_lanes,
    stored_lanes,
    subtract_lanes,
    sum_lanes,
    transpose_lanes,
)

BFLOAT16 = numpy_dtype("bfloat16")
PATTERNS = np.arange(1 << 16, dtype=np.uint32)
QUIET, INFINITY = 0x40, 0x7F80


class Widening(Arguments):
    count: Integer
    data: BFloat16s
    output: Float32s


@native
def widen_loop(call: Widening) -> None:
    """output = data for a number of elements."""
    for at in range(0, call.count, LANES):
        value = load_lanes(call.data, at, call.count - at)
        store_lanes(call.output, at, value, call.count - at)


@native
def first_lanes_loop(call: Widening) -> None:
    """output[:16] = the first lanes of data, the others 0."""
    store_lanes(call.output, 0, load_lanes(call.data, 0, call.count), LANES)


class Rounding(Arguments):
    count: Integer
    data: Float32s
    output: BFloat16s


@native
def round_loop(call: Rounding) -> None:
    """output = data for a number of elements."""
    for at in range(0, call.count, LANES):
        value = load_lanes(call.data, at, call.count - at)
        store_lanes(call.output, at, value, call.count - at)


class Storing(Arguments):
    """low: bfloat16 memory that is not accessed."""

    count: Integer
    data: Float32s
    narrow: Float32s
    wide: Float32s
    low: BFloat16s


@native
def stored_loop(call: Storing) -> None:
    """Write data rounded to bfloat16 memory to `narrow`, and to float32 memory to `wide`."""
    for at in range(0, call.count, LANES):
        value = load_lanes(call.data, at, call.count - at)
        store_lanes(call.narrow, at, stored_lanes(call.low, value), call.count - at)
        store_lanes(call.wide, at, stored_lanes(call.data, value), call.count - at)


class Widened(Arguments):
    count: Integer
    data: Float32s
    output: Float32s


class Pair(Arguments):
    left: Float32s
    right: Float32s
    output: Float32s


@native
def above_loop(call: Pair) -> None:
    """output = 1 where left > right, else 0."""
    one, zero = lanes(np.float32(1)), lanes(np.float32(0))
    mask = above(load_lanes(call.left, 0, LANES), load_lanes(call.right, 0, LANES))
    store_lanes(call.output, 0, choose(mask, one, zero), LANES)


@native
def pair_loop(call: Pair) -> None:
    """output = two times sixteen numbers, side by side."""
    pairs = pair_lanes(load_lanes(call.left, 0, LANES), load_lanes(call.right, 0, LANES))
    store_lanes(call.output, 0, pairs, LANES)


@native
def exp2_loop(call: Widened) -> None:
    """output = 2 ** data for a number of elements."""
    for at in range(0, call.count, LANES):
        value = exp2_lanes(load_lanes(call.data, at, call.count - at))
        store_lanes(call.output, at, value, call.count - at)


@native
def joined_loop(call: Pair) -> None:
    """output = the maxima, the first five of left, and the maximum."""
    left, right = load_lanes(call.left, 0, LANES), load_lanes(call.right, 0, LANES)
    store_lanes(call.output, 0, maximum_lanes(left, right), LANES)
    store_lanes(call.output, LANES, keep_lanes(left, 5, right), LANES)
    call.output[2 * LANES] = largest_lane(left)


class Transposition(Arguments):
    data: Float32s
    rows: Integer
    columns: Integer
    output: Float32s


@native
def transpose_loop(call: Transposition) -> None:
    """Transpose the given rows and columns, with strides that skip other elements."""
    transpose_lanes(call.data, 2, 19, call.rows, call.columns, call.output, 3, 21)


def run(
    loop: NativeFunction, kind: type[Arguments], **values: int | npt.NDArray[Any] | None
) -> None:
    """Run a loop with numbers and arrays."""
    HostLoop(loop, kind(**values))()


def rounded(values: npt.NDArray[Any]) -> npt.NDArray[np.uint16]:
    """The bits that float32 values, given by theirs, have as bfloat16."""
    data, output = values.astype(np.uint32), np.empty(len(values), np.uint16)
    run(round_loop, Rounding, count=len(data), data=data, output=output)
    return output


def widened(bits: npt.NDArray[np.uint16]) -> npt.NDArray[np.float32]:
    output = np.empty(len(bits), np.float32)
    run(widen_loop, Widening, count=len(bits), data=bits, output=output)
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
    run(round_loop, Rounding, count=count, data=data, output=output)
    np.testing.assert_array_equal(output[:count].view(BFLOAT16), data[:count].astype(BFLOAT16))
    assert (output[count:] == 0x1234).all()


@pytest.mark.parametrize("count", [0, 1, 7, 15, 16, 17])
def test_lanes_that_are_not_read_are_zero(count: int) -> None:
    data = np.full(LANES, 0x4049, np.uint16)
    output = np.ones(LANES, np.float32)
    run(first_lanes_loop, Widening, count=count, data=data, output=output)
    expected = np.where(np.arange(LANES) < count, np.float32(3.140625), np.float32(0))
    np.testing.assert_array_equal(output, expected)


class Summing(Arguments):
    count: Integer
    data: Float32s
    output: Float32s


@native
def sum_loop(call: Summing) -> None:
    """output[0] = sum of the first lanes of data."""
    call.output[0] = sum_lanes(load_lanes(call.data, 0, LANES), call.count)


@pytest.mark.parametrize("count", [0, 1, 7, 15, 16, 17])
def test_only_the_first_lanes_are_added(count: int) -> None:
    data, output = np.full(LANES, np.nan, np.float32), np.full(1, np.nan, np.float32)
    data[:count] = 2.0 ** np.arange(min(count, LANES))
    HostLoop(sum_loop, Summing(count=count, data=data, output=output))()
    assert output[0] == 2.0 ** min(count, LANES) - 1


def test_halves_of_a_vector_are_added_first() -> None:
    data, output = np.ones(LANES, np.float32), np.empty(1, np.float32)
    data[0], data[8] = 2.0**30, -(2.0**30)
    HostLoop(sum_loop, Summing(count=LANES, data=data, output=output))()
    assert output[0] == LANES - 2


def test_lanes_may_be_rounded_as_memory_would_round_them() -> None:
    """There is no bfloat16 memory: rounding must not access it."""
    data = (np.arange(1 << 16, dtype=np.uint32) << 16 | 0x8001).view(np.float32)
    narrow, wide = np.empty_like(data), np.empty_like(data)
    run(stored_loop, Storing, count=len(data), data=data, narrow=narrow, wide=wide, low=None)
    assert narrow.tobytes() == widened(rounded(data.view(np.uint32))).tobytes()
    assert wide.tobytes() == data.tobytes()


def test_nan_is_above_nothing_and_nothing_is_above_nan() -> None:
    values = np.array([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 1e-45], np.float32)
    for value in values:
        left = np.resize(values, LANES)
        right, output = np.full(LANES, value), np.empty(LANES, np.float32)
        run(above_loop, Pair, left=left, right=right, output=output)
        np.testing.assert_array_equal(output, left > right)


def test_pairs_lie_side_by_side_as_bfloat16_memory_has_them() -> None:
    random = np.random.default_rng(0)
    low, high = random.standard_normal((2, 16)).astype(np.float32)
    low[:3] = np.inf, np.nan, 1e-40
    output = np.empty(32, BFLOAT16)
    run(pair_loop, Pair, left=low, right=high, output=output)
    pairs = output.view(np.uint16).reshape(16, 2)
    np.testing.assert_array_equal(pairs[:, 0], rounded(low.view(np.uint32)))
    np.testing.assert_array_equal(pairs[:, 1], rounded(high.view(np.uint32)))


@pytest.mark.parametrize(("rows", "columns"), [(16, 16), (20, 40), (16, 9), (5, 16), (1, 1)])
def test_rows_become_columns_and_nothing_else_is_written(rows: int, columns: int) -> None:
    data = np.arange(16 * 19, dtype=np.float32).reshape(16, 19)
    output = np.full((16, 21), -1, np.float32)
    run(transpose_loop, Transposition, data=data, rows=rows, columns=columns, output=output)
    rows, columns = min(rows, 16), min(columns, 16)
    expected = np.full((16, 21), -1, np.float32)
    expected[:columns, 3 : 3 + rows] = data[:rows, 2 : 2 + columns].T
    np.testing.assert_array_equal(output, expected)


def test_powers_of_two_are_right_to_one_unit_in_the_last_place() -> None:
    data = np.linspace(-126, 127, 20_000, dtype=np.float32)
    data = np.concatenate([data, np.array([np.nan, -np.inf, -126.5, 0], np.float32)])
    output = np.zeros_like(data)
    HostLoop(exp2_loop, Widened(count=len(data), data=data, output=output))()
    exact = np.exp2(data[:-4].astype(np.float64))
    assert np.abs(output[:-4] / exact - 1).max() < 2.0**-23
    np.testing.assert_array_equal(output[-4:], np.array([np.nan, 0, 0, 1], np.float32))


class Wide(Arguments):
    left: Float64s
    right: Float64s
    output: Float64s
    narrow: Float32s


@native
def wide_loop(call: Wide) -> None:
    """output = the maxima, the differences and the logarithms of left; narrow = left."""
    left, right = load_lanes(call.left, 0, LANES), load_lanes(call.right, 0, LANES)
    store_lanes(call.output, 0, maximum_lanes(left, right), LANES)
    store_lanes(call.output, LANES, subtract_lanes(left, right), LANES)
    store_lanes(call.output, 2 * LANES, log_lanes(left), LANES)
    store_lanes(call.narrow, 0, narrow_lanes(left), LANES)


def test_float64_lanes_keep_their_bits_until_they_are_narrowed() -> None:
    random = np.random.default_rng(0)
    left, right = np.exp(random.uniform(-700, 700, (2, LANES)))
    left[:6], right[:3] = [np.inf, 0.0, 1.0, 1.0 + 2.0**-40, np.nan, -1.0], 3.0
    output, narrow = np.zeros((3, LANES)), np.zeros(LANES, np.float32)
    run(wide_loop, Wide, left=left, right=right, output=output, narrow=narrow)
    np.testing.assert_array_equal(output[0], np.where(left > right, left, right))
    np.testing.assert_array_equal(output[1], left - right)
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(output[2], np.log(left), rtol=1e-15)
        np.testing.assert_array_equal(narrow, left.astype(np.float32))


def test_vectors_are_joined_lane_by_lane() -> None:
    random = np.random.default_rng(0)
    left, right = random.standard_normal((2, LANES)).astype(np.float32)
    output = np.zeros(2 * LANES + 1, np.float32)
    HostLoop(joined_loop, Pair(left=left, right=right, output=output))()
    np.testing.assert_array_equal(output[:LANES], np.maximum(left, right))
    kept = np.concatenate([left[:5], right[5:]])
    np.testing.assert_array_equal(output[LANES : 2 * LANES], kept)
    assert output[-1] == left.max()


def test_a_maximum_ignores_nan_on_the_left() -> None:
    left, right = np.full(LANES, np.nan, np.float32), np.arange(LANES, dtype=np.float32)
    output = np.zeros(2 * LANES + 1, np.float32)
    HostLoop(joined_loop, Pair(left=left, right=right, output=output))()
    np.testing.assert_array_equal(output[:LANES], right)


class PanelProduct(Arguments):
    rows: Integer
    inner: Integer
    columns: Integer
    left: Floats
    panel: Float32s
    output: Float32s


@native
def panel_loop(call: PanelProduct) -> None:
    """output += left x panel, for rows of the output that are one element longer."""
    pitch = call.columns + 1
    inner, columns = call.inner, call.columns
    multiply_panel(
        call.output, 0, pitch, call.rows, call.left, 0, inner, inner, call.panel, 0, columns
    )


@native
def pair_panel_loop(call: PanelProduct) -> None:
    """The same of pairs."""
    pitch = call.columns + 1
    inner, columns = call.inner, call.columns
    multiply_pair_panel(
        call.output, 0, pitch, call.rows, call.left, 0, inner, inner, call.panel, 0, columns
    )


@pytest.mark.skipif(
    not llvm.get_host_cpu_features().get("avx512bf16"), reason="the processor has no such products"
)
@pytest.mark.parametrize("rows", [1, 2, 7, PANEL_ROWS])
@pytest.mark.parametrize("columns", [3, PANEL_COLUMNS])
def test_a_panel_of_pairs_is_multiplied_exactly(rows: int, columns: int) -> None:
    random = np.random.default_rng(rows)
    left = random.integers(-9, 10, (rows, 6)).astype(BFLOAT16)
    panel = random.integers(-9, 10, (6, PANEL_COLUMNS)).astype(BFLOAT16)
    pairs = panel.reshape(3, 2, PANEL_COLUMNS).swapaxes(1, 2).copy().view(np.float32)
    output = random.integers(-9, 10, (rows, columns + 1)).astype(np.float32)
    expected = output.copy()
    expected[:, :columns] += left.astype(np.float32) @ panel[:, :columns].astype(np.float32)
    product = PanelProduct(
        rows=rows, inner=6, columns=columns, left=left, panel=pairs, output=output
    )
    HostLoop(pair_panel_loop.bfloat16, product).call()
    assert np.array_equal(output, expected)


@pytest.mark.parametrize("rows", range(1, PANEL_ROWS + 1))
@pytest.mark.parametrize("columns", [1, LANES, PANEL_COLUMNS - 1, PANEL_COLUMNS])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_panel_is_multiplied_exactly(rows: int, columns: int, dtype: str) -> None:
    random = np.random.default_rng(rows)
    left = random.integers(-9, 10, (rows, 7)).astype(numpy_dtype(dtype))
    panel = random.integers(-9, 10, (7, PANEL_COLUMNS)).astype(np.float32)
    output = random.integers(-9, 10, (rows, columns + 1)).astype(np.float32)
    expected = output.copy()
    expected[:, :columns] += left.astype(np.float32) @ panel[:, :columns]
    loop = panel_loop if dtype == "float32" else panel_loop.bfloat16
    product = PanelProduct(
        rows=rows, inner=7, columns=columns, left=left, panel=panel, output=output
    )
    HostLoop(loop, product).call()
    assert np.array_equal(output, expected)
