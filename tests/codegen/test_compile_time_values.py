"""What is decided when a native function is compiled: named tuples, known arguments, size."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest

from mxrun.codegen import object_cache
from mxrun.codegen.arguments import Arguments, Float32s, Int64s, Integer
from mxrun.codegen.code_identity import identity_of
from mxrun.codegen.host_loop import HostLoop
from mxrun.codegen.jit import NativeFunction, compact, inlined, native
from mxrun.codegen.sequential.arithmetic import Untyped
from mxrun.codegen.vectors import LANES, add_lanes, load_lanes, store_lanes


class Numbers(Arguments):
    low: Integer
    high: Integer
    output: Int64s


class Interval(NamedTuple):
    first: int
    last: int


@inlined
def wider(interval: Interval, by: int) -> Interval:
    return Interval(last=interval.last + by, first=interval.first - by)


@native
def interval_loop(call: Numbers) -> None:
    interval = Interval(call.low, call.high)
    for _ in range(2):
        interval = wider(interval, 10)
    first, last = interval
    call.output[0], call.output[1] = first, interval.last
    call.output[2] = last + interval[0]


@native
def misnamed_loop(call: Numbers) -> None:
    call.output[0] = Interval(call.low, call.high).middle  # type: ignore[attr-defined]


@native
def short_loop(call: Numbers) -> None:
    call.output[0] = Interval(call.low).first  # type: ignore[call-arg]


@native
def branches_loop(call: Numbers) -> None:
    call.output[0] = 1 if call.low else print()  # type: ignore[func-returns-value]
    if call.low:
        call.output[1] = call.low
    else:
        print()


def results(function: NativeFunction, low: int, high: int) -> list[int]:
    output = np.zeros(3, np.int64)
    HostLoop(function, Numbers(low=low, high=high, output=output))()
    return list(output)


def test_named_tuples_have_the_values_that_python_gives_them() -> None:
    assert results(interval_loop, 3, 9) == [-17, 29, 12]


@pytest.mark.parametrize(
    ("function", "words"), [(misnamed_loop, "no field middle"), (short_loop, "'last'")]
)
def test_other_fields_are_refused(function: NativeFunction, words: str) -> None:
    with pytest.raises(Untyped, match=words):
        _ = function.address


def test_the_order_of_fields_belongs_to_the_key() -> None:
    body = interval_loop.body
    before = identity_of(body, frozenset())
    names = {**body.__globals__, "Interval": NamedTuple("Turned", [("last", int), ("first", int)])}
    turned = type(body)(body.__code__, names)
    assert before != identity_of(turned, frozenset())


def test_code_for_other_values_of_a_known_argument_is_left_out() -> None:
    with pytest.raises(Untyped, match="print"):
        _ = branches_loop.address
    assert results(branches_loop.with_constants(low=5), 5, 0) == [1, 5, 0]


def test_each_known_value_has_one_function_with_a_key_of_its_own() -> None:
    five, six = (interval_loop.with_constants(low=low) for low in (5, 6))
    assert five is interval_loop.with_constants(low=5)
    assert five.bfloat16 is interval_loop.bfloat16.with_constants(low=5)
    assert len({interval_loop.key, five.key, six.key}) == 3
    with pytest.raises(TypeError, match="compiled for low = 5"):
        results(five, 6, 0)


class Doubling(Arguments):
    count: Integer
    numbers: Float32s


def double(call: Doubling) -> None:
    for j in range(0, call.count, LANES):
        vector = load_lanes(call.numbers, j, call.count - j)
        store_lanes(call.numbers, j, add_lanes(vector, vector), call.count - j)


def test_compact_code_is_smaller_and_does_the_same() -> None:
    sizes = []
    for function in (native(double), compact(double)):
        numbers = np.arange(100, dtype=np.float32)
        HostLoop(function, Doubling(count=99, numbers=numbers))()
        assert list(numbers) == [*range(0, 198, 2), 99]
        assert function.key is not None
        compiled = object_cache.find(function.key)
        assert compiled is not None
        sizes.append(len(compiled.code))
    assert sizes[1] < sizes[0]
