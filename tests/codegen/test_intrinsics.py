"""Intrinsics: each declaration has a generator of its code that takes the same arguments."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from object_symbols import undefined_symbols
from scalar_maps import units_off

from mxrun.codegen import intrinsics, jit, object_cache, products, vectors
from mxrun.codegen.arguments import Arguments, Float32s, Float64s, Int64s, Integer, Table
from mxrun.codegen.host_loop import HostLoop
from mxrun.codegen.intrinsics import run_map
from mxrun.codegen.scalar_value import LoopForm
from mxrun.codegen.sequential.arithmetic import Untyped
from mxrun.codegen.sequential.compiler import INTRINSICS
from mxrun.codegen.sequential.kinds import NOTHING
from mxrun.device.cpu.call import TaskThreads
from mxrun.device.cpu.pooled_loop import PooledLoop
from mxrun.operator import scalar
from mxrun.operator.scalar import MapLoop

DECLARED: list[Callable[..., Any]] = [
    each
    for module in (intrinsics, products, vectors)
    for each in vars(module).values()
    if inspect.isfunction(each)
    and each.__module__ == module.__name__
    and "__wrapped__" in vars(each)
]
parametrized = pytest.mark.parametrize("function", DECLARED, ids=lambda each: each.__name__)


def test_the_declarations_are_those_with_a_generator() -> None:
    modules = {intrinsics.__name__, products.__name__, vectors.__name__}
    generated = [each for each in INTRINSICS if getattr(each, "__module__", "") in modules]
    assert set(DECLARED) == set(generated)
    assert len(DECLARED) > 30


def arity(function: Callable[..., Any]) -> int:
    return len(inspect.signature(function).parameters)


@pytest.mark.parametrize("function", [*filter(arity, DECLARED)], ids=lambda each: each.__name__)
def test_a_generator_takes_the_arguments_of_the_declaration(function: Callable[..., Any]) -> None:
    def misuse(count: int) -> str:
        """Return the error for operands of which none is a number."""
        with pytest.raises((Untyped, TypeError)) as caught:
            INTRINSICS[function](None, *[NOTHING] * count)
        return str(caught.value)

    assert "a number is needed" in misuse(arity(function))
    assert "a number is needed" not in misuse(arity(function) - 1)
    assert "a number is needed" not in misuse(arity(function) + 1)


@parametrized
def test_a_call_in_python_names_the_function(function: Callable[..., Any]) -> None:
    with pytest.raises(TypeError, match=f"^{function.__name__} can only be called in a native"):
        function(*[0] * arity(function))


def test_a_call_of_an_inlined_function_in_python_names_it() -> None:
    @jit.inlined
    def doubled(value: Any) -> Any:
        return 2 * value

    with pytest.raises(TypeError, match=r"^doubled can only be called in a native function"):
        doubled(3)


class Trace(Arguments):
    found: Int64s


@jit.native
def traced_loop(call: Trace) -> None:
    """found[task] = calls of the task, then the number of tasks and the largest worker."""
    task, tasks = intrinsics.current_task()
    intrinsics.fetch_add(call.found, task, 1)
    call.found[tasks] = tasks
    for _ in range(1000):
        call.found[tasks + 1] = max(call.found[tasks + 1], intrinsics.worker())


def test_a_loop_on_one_thread_is_one_task() -> None:
    found = np.zeros(3, np.int64)
    HostLoop(traced_loop, Trace(found=found))()
    assert found.tolist() == [1, 1, 0]


@pytest.mark.parametrize("threads", [1, 2, 3, 8])
@pytest.mark.parametrize("tasks", [1, 2, 7, 32])
def test_every_task_runs_once_on_any_number_of_threads(tasks: int, threads: int) -> None:
    found = np.zeros(tasks + 2, np.int64)
    loop = PooledLoop(traced_loop, Trace(found=found), tasks, TaskThreads(threads))
    for calls in range(1, 51):
        loop()
        assert (found[:tasks] == calls).all()
    assert found[tasks] == tasks
    assert found[tasks + 1] < min(tasks, threads)


class Listing(Arguments):
    values: Table
    output: Float64s


@jit.native
def table_loop(call: Listing) -> None:
    """output = entries of a table: an integer, a number, and an element of an array."""
    call.output[0], call.output[1] = (
        intrinsics.integer(call.values, 0),
        intrinsics.real(call.values, 1),
    )
    call.output[2] = intrinsics.float32s(call.values, 2)[1]
    intrinsics.int64s(call.values, 3)[0] = 8


def test_tables_are_read_by_their_entries() -> None:
    output, numbers = np.zeros(3), np.array([7])
    values = (5, np.float32(0.1), np.array([1, 0.3], np.float32), numbers)
    HostLoop(table_loop, Listing(values=values, output=output))()
    assert output.tolist() == [5, np.float32(0.1), np.float32(0.3)]
    assert numbers == 8


class Absent(Arguments):
    data: Int64s
    output: Int64s


@jit.native
def absent_loop(call: Absent) -> None:
    """output = whether the data have no memory."""
    call.output[0] = 1 if call.data is None else 0


def test_a_pointer_can_be_without_memory() -> None:
    output = np.full(1, -1)
    loop = HostLoop(absent_loop, Absent(data=None, output=output))
    loop()
    assert output[0] == 1
    loop.set("data", np.ones(1, np.int64))
    loop()
    assert output[0] == 0


class Logarithms(Arguments):
    data: Float64s
    output: Float64s
    narrow_data: Float32s
    narrow_output: Float32s
    count: Integer


@jit.native
def logarithm_loop(call: Logarithms) -> None:
    """output = log(data), in float64 and in float32."""
    for i in range(call.count):
        call.output[i] = math.log(call.data[i])
        call.narrow_output[i] = math.log(call.narrow_data[i])


def test_logarithms_are_accurate_without_the_c_library() -> None:
    x = np.exp2(np.random.default_rng(0).uniform(-1074, 1023, 4096))
    x[:8] = 0, -0.0, -1, np.inf, np.nan, 5e-324, 1, 1 + 2.0**-52
    with np.errstate(all="ignore"):
        narrow = (x ** (1 / 8)).astype(np.float32)
        wanted = np.log(x), np.log(narrow.astype(np.float64))
    found = np.zeros_like(x), np.zeros_like(narrow)
    arrays = {"data": x, "output": found[0], "narrow_data": narrow, "narrow_output": found[1]}
    HostLoop(logarithm_loop, Logarithms(count=x.size, **arrays))()
    assert units_off(found[0], wanted[0]).max() <= 1.0
    assert units_off(found[1], wanted[1]).max() <= 0.502
    assert logarithm_loop.key is not None
    compiled = object_cache.find(logarithm_loop.key)
    assert compiled is not None
    assert undefined_symbols(compiled.code) <= {"memset", "memcpy"}


class MappedRows(Arguments):
    count: Integer
    words: Int64s
    address: Integer
    data: Float32s


@jit.native
def mapped_rows_loop(call: MappedRows) -> None:
    """data[i] = map i % 2 of data[i], an element at a time."""
    for i in range(call.count):
        call.words[0] = 1
        call.words[1] = call.address + 4 * i
        call.words[2] = call.address + 4 * i
        run_map(call, i % 2, call.words, 0)


def test_maps_are_part_of_the_code_of_a_loop() -> None:
    maps = [
        MapLoop(kernel.graph, kernel.results, LoopForm("float32", (1,)))
        for kernel in map(scalar.compile, (lambda x: scalar.exp(x), lambda x: x * 2 + 1))
    ]
    loop = mapped_rows_loop.with_maps(*maps)
    again = [MapLoop(each.graph, each.results, each.form) for each in maps]
    assert loop is mapped_rows_loop.with_maps(*again)
    assert loop.key != mapped_rows_loop.with_maps(*reversed(maps)).key
    data = np.linspace(-3, 3, 7).astype(np.float32)
    wanted = np.where(np.arange(7) % 2, data * 2 + 1, np.exp(data))
    words = np.zeros(3, np.int64)
    call = MappedRows(count=7, words=words, address=data.ctypes.data, data=data)
    HostLoop(loop, call)()
    np.testing.assert_allclose(data, wanted, rtol=2e-7)
    assert loop.key is not None
    compiled = object_cache.find(loop.key)
    assert compiled is not None
    assert undefined_symbols(compiled.code) == set()


def test_a_loop_of_other_maps_does_nothing() -> None:
    data = np.ones(1, np.float32)
    words = np.zeros(3, np.int64)
    call = MappedRows(count=1, words=words, address=data.ctypes.data, data=data)
    HostLoop(mapped_rows_loop, call)()
    assert data[0] == 1
