"""Host loops run by the interpreter: the same results as compiled, and no machine code."""

from __future__ import annotations

import ast
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import python_output
from puzzles import puzzle

import mxrun
from mxrun.codegen.arguments import (
    Arguments,
    BFloat16s,
    Float32s,
    Float64s,
    Int64s,
    Integer,
    Real,
    Table,
)
from mxrun.codegen.host_loop import HostLoop
from mxrun.codegen.interpreted import interpreted, may_load_code
from mxrun.codegen.jit import (
    NativeFunction,
    clipped,
    float32s,
    inlined,
    int64s,
    integer,
    native,
    real,
    reduced_run,
    share,
)
from mxrun.io.loading.array_iterator import RecordGathering, gather_bytes_loop
from mxrun.operator.native_kernel import Addition, add_loop
from mxrun.planner.allocator import search_loop as searching
from mxrun.planner.allocator.first_fit import first_fit
from mxrun.planner.allocator.interval_compaction import PlacementProblem, compact_lifetimes
from mxrun.planner.allocator.placement_search import Attempts
from mxrun.planner.allocator.refine import refine
from mxrun.train import class_loop

Array = np.ndarray[Any, Any]
SEEDS = range(6)


def same(ours: Any, others: Any) -> None:
    for left, right in zip(ours, others, strict=True):
        np.testing.assert_array_equal(left, right, strict=True)


def both(compute: Callable[[], Any]) -> None:
    """Check that the interpreter computes what machine code does."""
    with interpreted():
        found = compute()
    same(compute(), found)


# -- every host loop of the project ----------------------------------------------------------------


def problem(seed: int, count: int = 40) -> PlacementProblem:
    return compact_lifetimes(*puzzle(seed, count, 24, 1 << 10, missing=1 / 4))


def placed(seed: int) -> list[Any]:
    found = first_fit(problem(seed, 150), work=100_000)
    return [found.offsets, found.arena_bytes, found.order]


def searched(seed: int) -> list[Any]:
    """Attempts that find a placement, prove that there is none, and run out of nodes and work."""
    given, results = problem(seed), []
    random = np.random.default_rng(seed)
    for capacity in (given.lower_bound, given.lower_bound * 5 // 4):
        attempts = Attempts(given, capacity)
        for nodes, work in ((20, 1 << 30), (2000, 5000), (2000, 200_000)):
            found = attempts.run(random.permutation(len(given.size)), nodes, work)
            offsets = np.empty(0) if found.offsets is None else found.offsets
            results += [offsets, found.is_impossible, found.work]
    return results


def listed(seed: int) -> list[Any]:
    given = problem(seed)
    change = np.bincount(given.begin, minlength=given.sections + 1)
    change -= np.bincount(given.end, minlength=given.sections + 1)
    free = np.concatenate(([0], np.cumsum(np.cumsum(change)[:-1])))
    rows = np.full(free[-1], -1)
    listing = searching.SectionRows(
        count=len(given.size), begin=given.begin, end=given.end, free=free, rows=rows
    )
    HostLoop(searching.rows_loop, listing)()
    return [free, rows]


def read(seed: int) -> list[Any]:
    """Predictions of every kind, with NaN, padding, ignored labels and labels of no class."""
    random, results = np.random.default_rng(seed), []
    for classes, count, dtype in (
        *((2, 9, "float32"), (10, 33, "int32"), (600, 6, "float64")),
        *((0, 12, "float32"), (0, 12, "int32")),
    ):
        output = random.random((count, max(classes, 1)), np.float32)
        output[0, 0], output[1, -1] = np.nan, output[1].max()
        output[2], output[3], output[4] = -0.25, np.inf, 0
        labels = random.integers(-1, max(classes, 2), count).astype(dtype)
        if dtype != "int32":
            labels[-3:] = np.nan, 1e30, -np.inf
        own = [np.zeros(count, dtype) for dtype in (np.int64, np.int64, np.float64, np.float64)]
        sums = np.zeros((3, 2))
        given: dict[str, Array | None] = dict.fromkeys(class_loop.LABELS.values())
        given[class_loop.LABELS[dtype]] = labels
        reading = class_loop.Reading(
            requested=0,
            **given,
            output=output,
            row_weights=np.array([1, 0, 0.5], np.float32).repeat(-(-count // 9)),
            count=count,
            classes=classes,
            per_row=3,
            has_ignored=seed % 2,
            ignored=1,
            **dict(zip(("labels", "best", "doubts", "weights"), own, strict=True)),
            sums=sums,
        )
        loop = HostLoop(class_loop.read_classes_loop, reading)
        for requested in range(8):
            loop.set("requested", requested)
            loop()
            results += [each.copy() for each in (*own, sums)]
    return results


def gathered(seed: int) -> list[Any]:
    random = np.random.default_rng(seed)
    records = random.integers(0, 256, (50, 7)).astype(np.uint8)
    target, indices = np.zeros((8, 5), np.float32), random.integers(0, 50, 30)
    gathering = RecordGathering(
        rows=8,
        elements=5,
        stride=7,
        scale=float(np.float32(random.random())),
        records=records,
        target=target,
        indices=indices,
        first=0,
    )
    loop, results = HostLoop(gather_bytes_loop, gathering), []
    for first in (0, 5, 22):
        loop.set("first", first)
        loop()
        results.append(target.copy())
    return results


def added(seed: int) -> list[Any]:
    values, total = np.random.default_rng(seed).standard_normal((2, 30), np.float32)
    HostLoop(add_loop, Addition(count=29, source=values, target=total))()
    return [total]


CASES: dict[str, Callable[[int], list[Any]]] = {
    "add_loop": added,
    "first_fit_loop": placed,
    "gather_bytes_loop": gathered,
    "read_classes_loop": read,
    "rows_loop": listed,
    "search_loop": searched,
}
# Without machine code NumPy gathers windows, and small records are read one by one.
ONLY_NATIVE = {"gather_windows_loop", "read_extents", "unpack_arrays"}


def host_loops() -> Iterator[str]:
    """Yield the native functions from which a module outside of the devices makes a host loop."""
    root = Path(mxrun.__file__).parent
    for path in root.rglob("*.py"):
        # Without machine code transforms run on NumPy, as the tests of transforms check.
        parts = path.relative_to(root).parts
        if parts[0] in ("codegen", "device") or parts[:2] == ("io", "transforms"):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, (ast.Name, ast.Attribute)):
                called = node.func.id if isinstance(node.func, ast.Name) else node.func.attr
                if called in ("HostLoop", "host_loop", "_loops"):
                    yield ast.unparse(node.args[0]).rpartition(".")[2]


@pytest.mark.full
def test_every_host_loop_has_a_case() -> None:
    assert set(host_loops()) == CASES.keys() | ONLY_NATIVE


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("loop", CASES)
def test_a_host_loop_gives_the_same_results(loop: str, seed: int) -> None:
    both(lambda: CASES[loop](seed))


@pytest.mark.parametrize("seed", SEEDS)
def test_the_continued_search_gives_the_same_results(seed: int) -> None:
    given = problem(seed, 14)

    def refined() -> list[Any]:
        states = refine(given, first_fit(given, 1), given.lower_bound, portion=50_000)
        return [each for state in states for each in (state[0].offsets, state[1])]

    both(refined)


# -- numbers and arguments -------------------------------------------------------------------------


class Mixing(Arguments):
    count: Integer
    factor: Real
    left: Float32s
    right: Float32s
    wide: Float64s
    whole: Int64s
    narrow: Float32s
    output: Float64s


SHIFT = 3


@inlined
def shifted(call: Mixing, number: int) -> int:
    return call.whole[number] + SHIFT


@native
def mixing_loop(call: Mixing) -> None:
    """Write `narrow` [count, 4] and `output` [count, 18] with every mixture of operands."""
    begin, end = share(call.count)
    for i in range(begin, end):
        x, y, z, n = call.left[i], call.right[i], call.wide[i], shifted(call, i)
        call.narrow[4 * i], call.narrow[4 * i + 1] = z, n
        call.narrow[4 * i + 2] = x * call.factor - y
        call.narrow[4 * i + 3] = np.sqrt(abs(x)) / y
        at = 18 * i
        call.output[at], call.output[at + 1], call.output[at + 2] = x + y, x - y, x * y
        call.output[at + 3], call.output[at + 4], call.output[at + 5] = x / y, -x, abs(x)
        call.output[at + 6], call.output[at + 7], call.output[at + 8] = x + z, z - x, x * n
        call.output[at + 9], call.output[at + 10], call.output[at + 11] = n - x, 0.1 * x, 1 / x
        call.output[at + 12] = np.float32(z) * np.float32(n)
        call.output[at + 13] = np.float64(x) * np.float64(y)
        call.output[at + 14] = min(x, y) + max(x, y)
        call.output[at + 15] = (x < y) + 2 * (x == y)
        call.output[at + 16] = n // 2 + n % 3
        call.output[at + 17] = float(x) / 3


def test_numbers_have_the_types_of_machine_code() -> None:
    random = np.random.default_rng(0)
    count = 500
    scales = np.exp(random.uniform(-40, 40, (2, count)))
    left, right = (random.normal(size=(2, count)) * scales).astype(np.float32)
    wide = random.normal(size=count) * np.exp(random.uniform(-80, 80, count))
    whole = random.integers(-1000, 1000, count)

    def mixed() -> list[Any]:
        output, narrow = np.zeros((count, 18)), np.zeros((count, 4), np.float32)
        given = Mixing(
            count=count,
            factor=0.1,
            left=left,
            right=right,
            wide=wide,
            whole=whole,
            narrow=narrow,
            output=output,
        )
        HostLoop(mixing_loop, given)()
        return [narrow, output]

    both(mixed)


class Reducing(Arguments):
    count: Integer
    data: Float32s
    output: Float64s


@native
def extremes_loop(call: Reducing) -> None:
    """output = maximum and minimum of the data and a total."""
    call.output[0] = reduced_run(1, -np.inf, call.data, 1, call.count, 0.0, 0)
    call.output[1] = reduced_run(2, np.inf, call.data, 1, call.count, 0.0, 0)
    call.output[2] = reduced_run(1, 0.5, call.data, 1, call.count, 0.0, 0)
    call.output[3] = reduced_run(1, np.nan, call.data, 1, call.count, 0.0, 0)


@native
def sum_loop(call: Reducing) -> None:
    """output = sum of the data."""
    call.output[0] = reduced_run(0, 0.0, call.data, 0, call.count, 0.0, 0)


@native
def clipping_loop(call: Reducing) -> None:
    """output = clipped data."""
    call.output[0] = clipped(call.data[0], 1.0)


@pytest.mark.parametrize("count", [0, 1, 63, 64, 200])
@pytest.mark.parametrize("missing", [False, True])
def test_extremes_are_those_of_machine_code(count: int, missing: bool) -> None:
    data = np.random.default_rng(count).standard_normal(201, np.float32)
    if missing:
        data[1 + count // 2] = np.nan

    def extremes() -> list[Any]:
        output = np.zeros(4)
        HostLoop(extremes_loop, Reducing(count=count, data=data, output=output))()
        return [output]

    both(extremes)


class Listing(Arguments):
    values: Table
    output: Float64s


@native
def table_loop(call: Listing) -> None:
    """output = entries of a table: an integer, a number, and elements of two arrays."""
    call.output[0], call.output[1] = integer(call.values, 0), real(call.values, 1)
    call.output[2] = float32s(call.values, 2)[1]
    int64s(call.values, 3)[0] = 8


def test_tables_are_read_by_their_entries() -> None:
    def read_table() -> list[Any]:
        output, numbers = np.zeros(3), np.array([7])
        values = (5, np.float32(0.1), np.array([1, 0.3], np.float32), numbers)
        HostLoop(table_loop, Listing(values=values, output=output))()
        return [output, numbers]

    both(read_table)


class Absent(Arguments):
    data: Float32s
    output: Int64s


@native
def absent_loop(call: Absent) -> None:
    """output = whether the data have no memory."""
    call.output[0] = 1 if call.data is None else 0


def test_a_pointer_can_be_without_memory() -> None:
    output, data = np.full(1, -1), np.ones(1, np.float32)
    with interpreted():
        loop = HostLoop(absent_loop, Absent(data=None, output=output))
    loop()
    assert output[0] == 1
    loop.set("data", data)
    loop()
    assert output[0] == 0
    with pytest.raises(TypeError, match="not in row-major order"):
        loop.set("data", np.ones((2, 3), np.float32).T)


# -- what is refused -------------------------------------------------------------------------------


@pytest.mark.parametrize("function", [sum_loop, clipping_loop])
def test_what_has_no_python_definition_is_refused(function: NativeFunction) -> None:
    with interpreted():
        loop = HostLoop(function, Reducing(count=1, data=np.ones(1, np.float32), output=np.ones(1)))
    with pytest.raises(TypeError, match="can only be called in a native function"):
        loop()


def test_a_place_outside_of_an_array_is_refused() -> None:
    with interpreted():
        gathering = Addition(count=5, source=np.ones(4, np.float32), target=np.ones(5, np.float32))
        loop = HostLoop(add_loop, gathering)
    with pytest.raises(IndexError):
        loop()


class Low(Arguments):
    data: BFloat16s


@native
def low_loop(call: Low) -> None:
    """Do nothing."""


def test_arguments_of_bfloat16_are_refused() -> None:
    with interpreted(), pytest.raises(TypeError, match="bfloat16"):
        HostLoop(low_loop, Low(data=np.ones(1, np.uint16)))


# -- selection -------------------------------------------------------------------------------------


def test_loops_are_interpreted_where_they_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "mxrun.codegen.object_cache.link", lambda compiled: pytest.fail("machine code is loaded")
    )
    fresh = NativeFunction(add_loop.body)
    output = np.zeros(3, np.float32)
    given = Addition(count=3, source=np.ones(3, np.float32), target=output)
    assert may_load_code()
    with interpreted():
        with interpreted():
            loop = HostLoop(fresh, given)
        assert not may_load_code()
    assert may_load_code()
    loop()
    assert output.tolist() == [1, 1, 1]


def test_other_threads_are_not_affected() -> None:
    found: list[bool] = []
    with interpreted():
        thread = threading.Thread(target=lambda: found.append(may_load_code()))
        thread.start()
        thread.join()
    assert found == [True]


SCRIPT = """\
import json
import sys


def refuse(event, arguments):
    if event == "ctypes.dlopen" and any(name in str(arguments[0]) for name in ("gomp", "dnnl")):
        raise RuntimeError(f"{arguments[0]} is loaded")
    if event == "import" and arguments[0].partition(".")[0] == "llvmlite":
        raise RuntimeError("llvmlite is imported")


sys.addaudithook(refuse)

import numpy as np

from mxrun.base.classification import Classification
from mxrun.codegen import object_cache
from mxrun.codegen.interpreted import interpreted
from mxrun.io.dataset.dataset import Dataset
from mxrun.io.dataset.fields import Field
from mxrun.io.loading.array_iterator import ArrayIterator
from mxrun.planner.allocator.allocate import allocate
from mxrun.train.class_loop import BEST, LOG
from mxrun.train.predictions import ClassPredictions


def refuse_link(compiled):
    raise RuntimeError("machine code is loaded")


object_cache.link = refuse_link
with interpreted():
    placed = allocate([3, 1, 2, 2], [0, 1, 2, 3], [2, 4, 5, 6])
    predictions = ClassPredictions(Classification(4, 3, 1), 4)
    sums = [predictions.request(value) for value in (BEST, LOG)]
    output = np.array([[1, 5, 2], [3, 0, 1], [2, 4, 4], [1, 2, 5]], np.float32) / 8
    predictions.load(np.array([1, 0, 2, 2]), output, np.ones(4, np.float32))
    records = np.arange(12, dtype=np.uint8).reshape(6, 2)
    iterator = ArrayIterator(Dataset("bytes", {"data": Field(records, 0.5)}), 4)
slot = np.zeros((4, 2), np.float32)
iterator.next_into({"data": slot})
print(json.dumps([placed.arena_bytes, [each.tolist() for each in sums], slot.tolist()]))
"""


def test_a_process_that_cannot_load_machine_code(tmp_path: Path) -> None:
    arena, (best, logarithms), rows = json.loads(python_output("-c", SCRIPT, cwd=tmp_path))
    assert arena == 5
    assert best == [3, 4]
    assert logarithms == [pytest.approx(np.log([5 / 8, 3 / 8, 4 / 8, 5 / 8]).sum()), 4]
    assert rows == [[0, 0.5], [1, 1.5], [2, 2.5], [3, 3.5]]
