"""The language of native functions: compiled code does what Python does with the same source."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from imported_files import imported
from native_agreement import agree, compiled

from mxrun.base.errors import InternalError
from mxrun.codegen import compilation
from mxrun.codegen.arguments import (
    Arguments,
    Float32s,
    Float64s,
    Int32s,
    Int64s,
    Integer,
    Real,
    Uint8s,
)
from mxrun.codegen.jit import inlined, native
from mxrun.codegen.sequential.arithmetic import Untyped

WIDTH, SCALE, PAIR = 3, np.float32(0.5), (2, 5)


class Pair(Arguments):
    left: Integer
    right: Integer
    output: Int64s


class Chain(Arguments):
    count: Integer
    output: Int64s
    absent: Float32s


class Mixed(Arguments):
    left: Float32s
    right: Float64s
    output: Float64s
    divisor: Integer


class Casts(Arguments):
    value: Real
    output: Float64s
    small: Int32s
    narrow: Uint8s
    numbers: Float32s


class Control(Arguments):
    limit: Integer
    output: Int64s


class Variables(Arguments):
    limit: Integer
    output: Float64s


@native
def integers_loop(call: Pair) -> None:
    left, right, output = call.left, call.right, call.output
    output[0], output[1], output[2] = left // right, left % right, left - right * 3
    output[3], output[4], output[5] = left & right, left | right, left ^ right
    output[6], output[7] = min(left, right), max(left, right, 0)
    output[8], output[9] = abs(left), -left
    output[10] = (left < right) + 2 * (left <= right) + 4 * (left == right)
    output[11] = (left > right) + 2 * (left >= right) + 4 * (left != right)
    output[12] = 1 if left < 0 < right else 2 if left >= 0 else 3
    output[13] = left >> 1
    output[14] = left << 2


@pytest.mark.parametrize(
    ("left", "right"), [*itertools.product((-7, -6, -1, 0, 1, 6, 7, 2**40), (-3, -2, 0, 1, 2, 5))]
)
def test_integers_round_down_and_divide_by_zero_to_zero(left: int, right: int) -> None:
    agree(integers_loop, Pair(left=left, right=right, output=np.zeros(15, np.int64)))


@native
def unsigned_loop(call: Pair) -> None:
    left, right, output = np.uint64(call.left), np.uint64(call.right), call.output
    output[0], output[1] = np.int64(left // right), np.int64(min(left, right))
    output[2], output[3] = np.int64(max(left, right)), np.int64(left >> np.uint64(60))
    output[4] = left < right


@pytest.mark.parametrize(("left", "right"), [*itertools.product((-1, 0, 5, -(2**63)), repeat=2)])
def test_unsigned_integers(left: int, right: int) -> None:
    agree(unsigned_loop, Pair(left=left, right=right, output=np.zeros(5, np.int64)))


def test_the_least_integer_divided_by_minus_one_wraps() -> None:
    given = Pair(left=-(2**63), right=-1, output=np.zeros(15, np.int64))
    assert compiled(integers_loop, given).output[:2].tolist() == [-(2**63), 0]


@native
def chain_loop(call: Chain) -> None:
    # With a count of 0 nothing may be read from the address, which is 0.
    call.output[0] = 1 if 0 < call.count < call.absent[0] else 2
    call.output[1] = 1 if call.count > 0 and call.absent[0] > 0 else 2
    call.output[4] = 1 if 0 <= call.count < -1 < call.absent[0] else 2
    call.output[2] = 1 if call.absent is None else 2
    call.output[3] = 1 if call.absent is not call.output else 2


def test_a_chain_is_evaluated_until_a_part_is_false() -> None:
    given = Chain(count=0, output=np.zeros(5, np.int64), absent=None)
    assert compiled(chain_loop, given).output.tolist() == [2, 2, 1, 1, 2]


@native
def floats_loop(call: Mixed) -> None:
    output = call.output
    a, b = call.left[0], np.float64(call.right[0])
    output[0], output[1], output[2], output[3] = a + b, a - b, a * b, a / b
    output[4], output[5] = min(np.float64(a), b), max(np.float64(a), b)
    output[6] = (a < b) + 2 * (a <= b) + 4 * (a == b) + 8 * (a != b)
    output[7] = 1.0 if not a < b else 0.0
    output[8], output[9] = -a, abs(a)
    output[10] = math.isnan(a) or b > 0
    output[11] = np.sqrt(a) * np.sqrt(b)
    # float32 until it is stored, and float64 with an integer.
    output[12] = a * a - a * SCALE
    output[13] = a / call.divisor
    output[14] = call.divisor / 7


VALUES = (-1.5, -0.0, 0.0, 0.1, 3e38, float("inf"), float("-inf"), float("nan"))


@pytest.mark.parametrize(("left", "right"), [*itertools.product(VALUES, VALUES)])
def test_floats_have_the_width_of_numpys_rules(left: float, right: float) -> None:
    arrays = {"left": np.float32([left]), "right": np.float64([right]), "output": np.zeros(15)}
    agree(floats_loop, Mixed(**arrays, divisor=-5))


@native
def casts_loop(call: Casts) -> None:
    value, output = call.value, call.output
    small, narrow, numbers = call.small, call.narrow, call.numbers
    output[0], output[1], output[2] = int(value), np.float64(value), np.float32(np.float64(0.1))
    output[3], output[4] = np.int32(value) + small[0], narrow[0] + narrow[1] * np.int64(2)
    small[1], narrow[1], numbers[0] = value, 200, np.float64(0.1)
    output[5] = bool(small[0]) + bool(value)
    output[6] = float(small[0]) / 4


@pytest.mark.parametrize("value", [-3.7, 0.0, 2.5, 99.9])
def test_casts_and_stores_convert(value: float) -> None:
    small, narrow, numbers = np.int32([-9, 0]), np.uint8([250, 3]), np.zeros(1, np.float32)
    output = np.zeros(7)
    given = Casts(value=value, output=output, small=small, narrow=narrow, numbers=numbers)
    agree(casts_loop, given)


@inlined
def first_divisor(number: int, limit: int) -> int:
    for divisor in range(2, limit):
        if number % divisor == 0:
            return divisor
    return 0


@inlined
def ordered(left: Any, right: Any) -> Any:
    return (left, right) if left < right else (right, left)


@inlined
def swapped(pair: Any) -> Any:
    left, right = pair
    left, right = right, left
    return left, right


@inlined
def clear(output: Any, first: int, count: int) -> None:
    for at in range(first, first + count):
        output[at] = -1
        if at == first + 2:
            return


@native
def control_loop(call: Control) -> None:
    limit, output = call.limit, call.output
    total = 0
    for i in range(limit):
        if i % 5 == 4:
            continue
        j = 0
        while True:
            j += 1
            if j * j > i or total > 90:
                break
            total += j
        # The loop goes on with its own count.
        i = i + 100
        total += i
    output[0] = total
    k = 0
    for k in range(limit, -limit, -2):
        output[1] = output[1] * 2 + k
    output[2] = k
    step = output[3]
    for k in range(2, 2 + 7 * step, step):
        output[4] += k
    for number in range(2, limit):
        output[5] += first_divisor(number, number)
    at = 0
    while at < limit and not (at > 2 and output[at] == -7):
        at += 1
    output[6] = at
    clear(output, 10, limit)


@pytest.mark.parametrize("limit", [1, 2, 5, 30])
@pytest.mark.parametrize("step", [1, 3, -2])
def test_loops_conditions_and_calls(limit: int, step: int) -> None:
    output = np.zeros(50, np.int64)
    output[3] = step
    agree(control_loop, Control(limit=limit, output=output))


@native
def variables_loop(call: Variables) -> None:
    limit, output = call.limit, call.output
    # An integer until the loop adds fractions.
    total = 0
    for i in range(limit):
        total += i / 4
    output[0] = total
    if limit > 3:
        late = 2.5
        output[8] = 1
    else:
        late = 1
    output[1] = late
    both = swapped((limit, total))
    output[2], output[3] = both
    low, high = ordered(limit, WIDTH)
    output[4] = low * 10 + high
    output[5] = PAIR[limit % 2] + PAIR[-1]
    left, right = 1, 2
    left, right = right, left + right
    output[6] = left * 10 + right
    low += 0.5
    output[7] = low
    min = 7
    output[8] += min


@pytest.mark.parametrize("limit", [1, 3, 4, 9])
def test_a_variable_has_the_type_that_holds_all_its_values(limit: int) -> None:
    agree(variables_loop, Variables(limit=limit, output=np.zeros(9)))


HEADER = """\
import numpy as np

from mxrun.codegen.arguments import Arguments, BFloat16s, Float32s, Int64s, Integer, Table
from mxrun.codegen.intrinsics import float32s, integer, random_words, reduced_run
from mxrun.codegen.jit import inlined, native
from mxrun.codegen.vectors import lanes, store_lanes

TEXT, BIG, ZERO = "text", 2**64, 0


class Given(Arguments):
    count: Integer
    output: Int64s
    floats: Float32s
    low: BFloat16s
    table: Table


@inlined
def endless(number):
    return endless(number)


@inlined
def sometimes(number):
    if number > 2:
        return number


@inlined
def optional(number, other=3):
    return number + other


@native
def refused_loop(call: Given) -> None:
    count, output = call.count, call.output
"""

REFUSED = {
    "for i in range(3):\n        output[i] = 1\n    else:\n        count = 2": "no else",
    "while count:\n        count -= 1\n    else:\n        count = 2": "no else",
    "values = [1, 2]": "no List",
    "values = {}": "no Dict",
    "del count": "no Delete",
    "with count:\n        pass": "no With",
    "output[0] = (lambda x: x)()": "takes 1 arguments, not 0",
    "value = lambda x: x": "only numbers, addresses",
    "output[0] = (lambda x: later)(1)\n    later = 1": "later has no value on some path",
    "output[0] = count ** 2": "no Pow",
    "output[0] = 2.0 // count": "no FloorDiv",
    "output[0] = ~count": "no Invert",
    "output[0] = 1 if count is None else 2": "compares addresses and None",
    "for i in (1, 2):\n        output[0] = i": "over a range",
    "for i in min(1, 2):\n        output[0] = i": "over a range",
    "for i in range(start=1):\n        output[0] = i": "no named arguments",
    "a, b = 1, 2, 3": "not 2 values",
    "output[0] = missing": "missing is not defined",
    "output[0] = later\n    later = 1": "later has no value on some path",
    "if count:\n        late = 1\n    output[0] = late": "late has no value on some path",
    "output[0] = BIG": "beyond 64 bits",
    "output[0] = 9223372036854775808": "beyond 64 bits",
    "output[0] = TEXT": "only numbers, addresses",
    "output[0] = output": "cannot convert",
    "output[0] = lanes(2) + 1": "cannot be one variable",
    "output[0] = random_words(1, 2, 3)[0] + count": "cannot be one variable",
    "output[0.5] = 1": "integer is needed",
    "output[0] = float32s(call.table)": "2 operands are needed, not 1",
    "output[0] = print(count)": "print is not defined",
    "output[0] = Given(count)": "cannot be called",
    "output[0] = count.real": "no attributes",
    "output[0] = count(1)": "only functions",
    "output[0] = endless(1)": "do not end",
    "output[0] = sometimes(count)": "some paths only",
    "output[0] = optional(count)": "default values",
    "output[0] = endless(1, 2)": "too many positional arguments",
    "value = count if count else output": "cannot be one variable",
    "value = count\n    value = output": "cannot be one variable",
    "value = (1, 2)\n    value = (1, 2, 3)": "several lengths",
    "if count:\n        return 3\n    return": "some paths only",
    "global TEXT": "no Global",
    "output[0] = call.missing": "no argument is named missing",
    "output[0] = call": "only numbers, addresses",
    "output[0] = call[1]": "only addresses and tuples",
    "output[0] = integer(call, 1)": "a number is needed",
    "output[0] = 1 if count is output else 2": "compares addresses and None",
    "output[0] = count or 9": "only be conditions",
    "output[0] = (1, 2)[5]": "has no part 5",
    "output[0] = (1, 2.5)[count % 2]": "of one type",
    "output[0] = (1, 2)[count]": "must be i % n, n at most 2",
    "output[0] = (1, 2)[count % 3]": "must be i % n, n at most 2",
    "output[0] = (1, 2)[count % -2]": "must be i % n, n at most 2",
    "output[0] = (1, 2)[2 % count]": "must be i % n, n at most 2",
    "value = 1\n    value = (1, 2)": "a tuple and a number",
    "value = max": "only numbers, addresses and tuples",
    "output[0] = call.low[0]": "load_lanes and store_lanes",
    "store_lanes(output, 0, lanes(2), 4)": "no vectors in the memory",
    "store_lanes(call.floats, 0, lanes(2), 4)": "cannot convert",
    "store_lanes(call.floats, 0, 1.0, 4)": "cannot convert",
    "if lanes(2):\n        count = 1": "neither true nor false",
    "for i in range(9, 0, ZERO):\n        count = i": "step of a range is 0",
    "for i in range(0, 3, 1, 9):\n        count = i": "one to three arguments",
    "output[0] = min(3)": "need two numbers",
    "output[0] = integer(call.table, 0.5)": "integer is needed",
    "output[0] = sometimes(**{})": "unpacked from a dictionary",
    "output[0] = 1 // 0": "ZeroDivisionError",
    "output[0] = np.missing": "AttributeError",
    "output[0] = reduced_run(99, 0.0, call.floats, 0, 1, np.float32(0), 0)": "no reduction",
}


@pytest.mark.parametrize(("code", "words"), list(REFUSED.items()))
def test_other_python_is_refused_at_its_line(code: str, words: str, tmp_path: Path) -> None:
    file = tmp_path / "kernels.py"
    file.write_text(f"{HEADER}    {code}\n")
    with pytest.raises(Untyped, match=words) as caught:
        _ = imported(file).refused_loop.address
    line = int(str(caught.value).removeprefix(f"{file}:").partition(":")[0])
    assert 1 < line <= len(file.read_text().splitlines())


def test_code_that_has_changed_since_its_import_is_not_compiled(tmp_path: Path) -> None:
    file = tmp_path / "kernels.py"
    file.write_text(f"{HEADER}    output[0] = 1\n")
    module = imported(file)
    # Of the same bytecode: only a constant differs.
    file.write_text(f"{HEADER}    output[0] = 2\n")
    with pytest.raises(InternalError, match=r"refused_loop.*changed since it was imported"):
        _ = module.refused_loop.address


def test_variables_of_a_function_around_are_refused(tmp_path: Path) -> None:
    around = 3

    @native
    def closure_loop(call: Control) -> None:
        call.output[0] = around

    with pytest.raises(Untyped, match="a function around it"):
        _ = closure_loop.address


@pytest.mark.parametrize("threshold", [0.0, 1e9])
def test_a_long_compilation_is_noted_once(
    threshold: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(compilation, "_NOTE_AFTER_S", threshold)
    notes: list[str] = []
    with compilation.noted_compilations(notes.append):
        for number in range(3):
            file = tmp_path / f"kernels{number}.py"
            file.write_text(f"{HEADER}    output[0] = {number}\n")
            assert imported(file).refused_loop.address
    assert notes == ([] if threshold else [compilation.NOTE])


def test_arguments_are_checked_by_their_kinds() -> None:
    given = {"small": None, "narrow": None, "numbers": None}
    block = Casts(value=2, output=7, **given).packed()
    assert block[0:1].view(np.float32)[0] == 2
    with pytest.raises(TypeError, match=r"output: 7\.5 is not an integer or an address"):
        Casts(value=2, output=7.5, **given).packed()
    with pytest.raises(TypeError, match="unexpected keyword argument 'valeu'"):
        Casts(valeu=2, output=7, **given)
    with pytest.raises(TypeError, match="packed hides a method"):
        type("Wrong", (Arguments,), {"__annotations__": {"packed": "Integer"}})
