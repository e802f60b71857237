"""Loads and stores of a number of lanes, known or unknown to the compiler, next to other data."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from mxrun.base.dtype import numpy_dtype
from mxrun.codegen.arguments import Arguments, Float32s, Floats, Int32s, Integer, Uint8s
from mxrun.codegen.host_loop import HostLoop
from mxrun.codegen.jit import NativeFunction, inlined, native
from mxrun.codegen.vectors import LANES, load_lanes, store_lanes

COUNTS = range(LANES + 2)
SIZE = 4 * LANES
UNTOUCHED = 99


class Copying(Arguments):
    """source, target: first elements. loaded, stored: numbers of lanes. width: of a row."""

    source: Integer
    target: Integer
    loaded: Integer
    stored: Integer
    width: Integer


class FromFloat32(Copying):
    data: Float32s
    output: Floats


class ToFloat32(Copying):
    data: Floats
    output: Float32s


class Int32ToInt32(Copying):
    data: Int32s
    output: Int32s


class Int32ToBytes(Copying):
    data: Int32s
    output: Uint8s


class BytesToInt32(Copying):
    data: Uint8s
    output: Int32s


@inlined
def copied_lanes(call: Copying) -> None:
    """Store the loaded lanes."""
    value = load_lanes(call.data, call.source, call.loaded)
    store_lanes(call.output, call.target, value, call.stored)


@inlined
def copied_row(call: Copying) -> None:
    """Store the elements of a row."""
    for j in range(0, call.width, LANES):
        value = load_lanes(call.data, call.source + j, call.width - j)
        store_lanes(call.output, call.target + j, value, call.width - j)


@native
def from_float32(call: FromFloat32) -> None:
    copied_lanes(call)


@native
def to_float32(call: ToFloat32) -> None:
    copied_lanes(call)


@native
def int32_to_int32(call: Int32ToInt32) -> None:
    copied_lanes(call)


@native
def int32_to_bytes(call: Int32ToBytes) -> None:
    copied_lanes(call)


@native
def bytes_to_int32(call: BytesToInt32) -> None:
    copied_lanes(call)


@native
def row_from_float32(call: FromFloat32) -> None:
    copied_row(call)


@native
def row_to_bytes(call: Int32ToBytes) -> None:
    copied_row(call)


KNOWN = pytest.mark.parametrize("is_known", [False, True], ids=["unknown", "known"])
STORES = [
    pytest.param(from_float32, "float32", "float32", id="float32"),
    pytest.param(from_float32.bfloat16, "float32", "bfloat16", id="bfloat16"),
    pytest.param(int32_to_int32, "int32", "int32", id="int32"),
    pytest.param(int32_to_bytes, "int32", "uint8", id="uint8"),
]
LOADS = [
    pytest.param(to_float32, "float32", "float32", id="float32"),
    pytest.param(to_float32.bfloat16, "bfloat16", "float32", id="bfloat16"),
    pytest.param(int32_to_int32, "int32", "int32", id="int32"),
    pytest.param(bytes_to_int32, "uint8", "int32", id="uint8"),
]
ROWS = [
    pytest.param(row_from_float32, "float32", "float32", id="float32"),
    pytest.param(row_from_float32.bfloat16, "float32", "bfloat16", id="bfloat16"),
    pytest.param(row_to_bytes, "int32", "uint8", id="uint8"),
]


def check(
    function: NativeFunction, read: str, written: str, copied: int, length: int, **numbers: int
) -> None:
    """Check the entire output: `copied` elements, zeros up to `length`, and what was there."""
    numbers = {"loaded": LANES, "stored": LANES, "width": LANES, **numbers}
    data = np.arange(1, SIZE + 1).astype(numpy_dtype(read))
    for source, target in itertools.product((0, 1), (0, 1, 2, 5)):
        output = np.full(SIZE, UNTOUCHED).astype(numpy_dtype(written))
        expected = output.copy()
        expected[target : target + length] = 0
        expected[target : target + copied] = data[source : source + copied]
        places = {"source": source, "target": target}
        HostLoop(function, function.declared(**places, **numbers, data=data, output=output))()
        np.testing.assert_array_equal(output, expected, f"{places} {numbers}")


@KNOWN
@pytest.mark.parametrize(("function", "read", "written"), STORES)
def test_only_the_counted_lanes_are_stored(
    function: NativeFunction, read: str, written: str, is_known: bool
) -> None:
    for count in COUNTS:
        own = function.with_constants(stored=count) if is_known else function
        number = min(count, LANES)
        check(own, read, written, copied=number, length=number, stored=count)


@KNOWN
@pytest.mark.parametrize(("function", "read", "written"), LOADS)
def test_lanes_that_are_not_counted_are_loaded_as_zero(
    function: NativeFunction, read: str, written: str, is_known: bool
) -> None:
    for count in COUNTS:
        own = function.with_constants(loaded=count) if is_known else function
        check(own, read, written, copied=min(count, LANES), length=LANES, loaded=count)


@KNOWN
@pytest.mark.parametrize("width", [1, 2 * LANES, 2 * LANES + 1])
@pytest.mark.parametrize(("function", "read", "written"), ROWS)
def test_a_row_ends_with_its_last_element(
    function: NativeFunction, read: str, written: str, width: int, is_known: bool
) -> None:
    """The count of the last vector of a row of known width is known after unrolling."""
    own = function.with_constants(width=width) if is_known else function
    check(own, read, written, copied=width, length=width, width=width)
