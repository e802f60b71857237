"""Loops over functions that yield, independent iterations, and lambdas, in native functions."""

from __future__ import annotations

import ctypes
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from imported_files import imported
from native_agreement import agree

from mxrun.codegen.arguments import Arguments, Int64s, Integer
from mxrun.codegen.intrinsics import each
from mxrun.codegen.jit import NativeFunction, inlined, native
from mxrun.codegen.loops import rows_of_task, runs_of_task, vectors
from mxrun.codegen.sequential.arithmetic import Untyped


class Given(Arguments):
    count: Integer
    output: Int64s


@inlined
def there_and_back(count: int) -> Iterator[tuple[int, int]]:
    for i in range(count):
        yield i, 1
    if count > 3:
        return
    for i in range(count):
        yield count - i - 1, 10


@inlined
def pairs(count: int) -> Iterator[tuple[int, int]]:
    for i, weight in there_and_back(count):
        if i % 2 == 0:
            yield i, weight
            yield i + 1, 100 * weight
    yield from there_and_back(count // 2)


@native
def yields_loop(call: Given) -> None:
    output, total = call.output, 0
    for i, weight in there_and_back(call.count):
        output[i] += weight
        for j, other in pairs(i):
            if j == 3:
                continue
            if other > 500:
                break
            total += other * i
    output[10] = total
    for i, _ in there_and_back(call.count):
        if i == 2:
            output[11] = total + i
            return
    output[11] = -1


@pytest.mark.parametrize("count", [0, 1, 2, 3, 4, 9])
def test_a_loop_over_a_function_that_yields(count: int) -> None:
    agree(yields_loop, Given(count=count, output=np.zeros(12, np.int64)))


@inlined
def total_of(count: int, term: Any) -> Any:
    total = 0
    for i in range(count):
        total += term(i, count)
    return total


@native
def lambda_loop(call: Given) -> None:
    output, i, step = call.output, 7, 1
    output[0] = total_of(call.count, lambda i, count: i * step + count)
    step = 3
    output[1] = total_of(call.count, lambda j, _: total_of(j, lambda k, _: k * i + j * step))
    output[2] = i
    for row in each(3, 6):
        output[row] = total_of(row, lambda j, _: row + j if j % 2 else call.count)  # noqa: B023


@pytest.mark.parametrize("count", [0, 1, 5])
def test_a_lambda_reads_the_variables_around_it_when_it_is_called(count: int) -> None:
    agree(lambda_loop, Given(count=count, output=np.zeros(6, np.int64)))


@native
def independent_loop(call: Given) -> None:
    output, count = call.output, call.count
    for i in each(0, count):
        here = output[i] + i
        if here > 2:
            continue
        for j in range(3):
            here += j
            if j == i:
                break
        output[i] = here
        output[count + 2 * i] = here
        output[count + 2 * i + 1] = output[count + 2 * i] + 1
    here = count
    for i in each(here, 3 * count, 2):
        output[i] *= 2


@pytest.mark.parametrize("count", [0, 1, 6])
def test_independent_iterations(count: int) -> None:
    agree(independent_loop, Given(count=count, output=np.arange(3 * count + 1)))


HEADER = """\
from mxrun.codegen.arguments import Arguments, Float32s, Integer
from mxrun.codegen.intrinsics import each
from mxrun.codegen.jit import inlined, native
from mxrun.codegen.loops import rows_of_task, runs_of_task, vectors
from mxrun.codegen.vectors import LANES, add_lanes, lanes, load_lanes, store_lanes


class Given(Arguments):
    count: Integer
    output: Float32s


@inlined
def numbers(count):
    for i in range(count):
        yield i


@native
def refused_loop(call: Given) -> None:
    count, output, total = call.count, call.output, 0.0
"""
OTHERS = "has the value of another one"
REFUSED = {
    "for i in each(0, count):\n    total += output[i]": OTHERS,
    "for i in each(0, count):\n    if count:\n        total = 1.0\n    output[i] = total": OTHERS,
    "for i in each(0, count):\n    total = output[i]\noutput[0] = total": "of the last of",
    "for i in each(0, count):\n    total = 1.0\noutput[i] = 2.0": "no value on some path",
    "for i in each(0, count):\n    if total:\n        break": "a jump out of",
    "for i in each(0, count):\n    for j in range(i):\n        return": "a jump out of",
    "for i in each(0, count):\n    output[count - 1] = i": r"all of .* write output\[count - 1\]",
    "for i in each(0, count):\n    output[0] += i": r"all of .* write output\[0\]",
    "for i in each(0, count):\n    output[i] = output[i - 1]": "share elements of output",
    "for i in each(0, count):\n    output[i + 1] = output[i]": "share elements of output",
    "for i in each(0, count):\n    output[i] = 1.0\n    output[1 + i - 1] = 2.0": None,
    "for i in each(count):\n    output[i] = 1.0": "two or three arguments",
    "output[0] = each(0, count, 1)": "only numbers, addresses",
    "for row in rows_of_task(count):\n    total += row": OTHERS,
    "for row, at, k, n in runs_of_task(count, 4):\n    output[count] = at": "all of",
    "for j, n in vectors(0, count):\n    store_lanes(output, 0, lanes(1.0), n)": "all of",
    "for j, n in vectors(0, count):\n    total = j\noutput[0] = total": "of the last of",
    "for j, n in vectors(0, count):\n    missing = absent": "absent is not defined",
    "output[0] = numbers(3)": "loops are over functions that yield",
    "for i in numbers(3, 4):\n    output[i] = 1.0": "too many positional",
}


@pytest.mark.parametrize(("code", "words"), list(REFUSED.items()))
def test_visible_dependences_are_refused_at_their_line(
    code: str, words: str | None, tmp_path: Path
) -> None:
    file = tmp_path / "kernels.py"
    file.write_text(HEADER + textwrap.indent(code, "    ") + "\n")
    if words is None:
        assert imported(file).refused_loop.address
        return
    with pytest.raises(Untyped, match=words) as caught:
        _ = imported(file).refused_loop.address
    line = int(str(caught.value).removeprefix(f"{file}:").partition(":")[0])
    assert HEADER.count("\n") < line <= len(file.read_text().splitlines())


class Parts(Arguments):
    rows: Integer
    columns: Integer
    output: Int64s


@native
def rows_loop(call: Parts) -> None:
    for row in rows_of_task(call.rows):
        for j, count in vectors(row * call.columns, (row + 1) * call.columns):
            for place in range(j, j + count):
                call.output[place] += row + 1


@native
def runs_loop(call: Parts) -> None:
    for row, column, at, width in runs_of_task(call.rows, call.columns):
        for j, count in vectors(0, width):
            for place in range(j, j + count):
                call.output[at + place] += (row + 1) * int(at == row * call.columns + column)


@pytest.mark.parametrize("loop", [rows_loop, runs_loop], ids=lambda loop: loop.body.__name__)
@pytest.mark.parametrize("shape", [(1, 100), (7, 16), (5, 33), (40, 3), (0, 4), (3, 0)])
def test_tasks_visit_each_element_once(loop: NativeFunction, shape: tuple[int, int]) -> None:
    rows, columns = shape
    for tasks in (1, 2, 3, 50):
        output = np.zeros(shape, np.int64)
        block = Parts(rows=rows, columns=columns, output=output).packed()
        run = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 4)(loop.address)
        for task in range(tasks):
            run(block.ctypes.data, task, tasks, 0)
        expected = np.repeat(np.arange(1, rows + 1)[:, None], columns, axis=1)
        np.testing.assert_array_equal(output, expected)
