"""Block kernels: regions, memory of the block and of threads, and what the language refuses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from gpu_emulator.emulated import ORDERS, EmulationError, emulated
from gpu_emulator.guarded import guarded

from mxrun.base.dtype import numpy_dtype
from mxrun.base.errors import InternalError
from mxrun.codegen.arguments import Arguments, Floats, Integer, slot_of
from mxrun.codegen.block_function import BlockFunction, block_of
from mxrun.codegen.blocks import multiply_add, private, shared, stored, threads
from mxrun.codegen.intrinsics import current_task
from mxrun.codegen.jit import inlined

Array = npt.NDArray[Any]
THREADS = 64


class Rows(Arguments):
    """Rows of `columns` elements, a row for each task."""

    columns: Integer
    data: Floats
    output: Floats


def run(kernel: BlockFunction, order: str, columns: int, data: Array, output: Array) -> Array:
    """Run a task for each row, with all checks; return the output."""
    memory = [guarded(data), guarded(output)]
    ranges = [(each.ctypes.data, each.ctypes.data + each.nbytes) for each in memory]
    slots = [columns, *map(slot_of, memory)]
    emulated(kernel.gpu_kernel, True).run(slots, len(data), ranges, order, seed=5)
    return memory[1]


@inlined
def add_up(values: Any) -> None:
    """values[0] = the sum of all threads' values."""
    half = THREADS // 2
    while half > 0:
        for t in threads(THREADS):
            if t < half:
                values[t] += values[t + half]
        half = half // 2


@block_of(THREADS)
def centered(call: Rows) -> None:
    """output = data - its row's mean; own values stay in registers between regions."""
    sums, own = shared(THREADS), private(4)
    row, _ = current_task()
    for t in threads(THREADS):
        total = np.float32(0)
        for i in range(4):
            own[i] = np.float32(0)
            if t + i * THREADS < call.columns:
                own[i] = call.data[row * call.columns + t + i * THREADS]
            total += own[i]
        sums[t] = total
    add_up(sums)
    mean = sums[0] / call.columns
    add_up(sums)
    for t in threads(THREADS):
        for i in range(4):
            if t + i * THREADS < call.columns:
                call.output[row * call.columns + t + i * THREADS] = own[i] - mean


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_regions_share_memory(dtype: str, order: str) -> None:
    kernel = centered.bfloat16 if dtype == "bfloat16" else centered
    data = np.random.default_rng(1).standard_normal((3, 200)).astype(numpy_dtype(dtype))
    output = run(kernel, order, 200, data, np.zeros_like(data))
    wide = data.astype(np.float64)
    expected = wide - wide.mean(axis=1, keepdims=True)
    assert np.abs(output.astype(np.float64) - expected).max() < {4: 1e-6, 2: 1e-2}[data.itemsize]


@block_of(THREADS)
def squares(call: Rows) -> None:
    """output = data * data + data, rounded before it is stored."""
    row, _ = current_task()
    for t in threads(THREADS):
        for at in range(row * call.columns + t, (row + 1) * call.columns, THREADS):
            value = multiply_add(call.data[at], call.data[at], call.data[at])
            call.output[at] = stored(call.output, value)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_results_are_rounded_once(dtype: str) -> None:
    kernel = squares.bfloat16 if dtype == "bfloat16" else squares
    data = np.random.default_rng(1).standard_normal((2, 265)).astype(numpy_dtype(dtype))
    output = run(kernel, "random", 265, data, np.zeros_like(data))
    exact = data.astype(np.float64) ** 2 + data.astype(np.float64)
    assert np.array_equal(output, exact.astype(np.float32).astype(data.dtype))


def test_a_block_of_other_threads_is_another_kernel() -> None:
    """One body with two numbers of threads: neither is taken from the cache for the other."""
    halves = block_of(THREADS // 2)(squares.body)
    assert halves.key != squares.key == block_of(THREADS)(squares.body).key


BARRIER = "call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0)"


def without_barrier(number: int) -> Callable[[str], str]:
    """Return the change of a module that takes away a barrier."""

    def change(text: str) -> str:
        parts = text.split(BARRIER)
        kept, rest = BARRIER.join(parts[: number + 1]), BARRIER.join(parts[number + 1 :])
        return f"{kept}call void @llvm.donothing(){rest}\ndeclare void @llvm.donothing()\n"

    return change


@pytest.mark.parametrize("order", ORDERS)
def test_every_barrier_that_orders_something_is_needed(order: str) -> None:
    data = guarded(np.ones((1, 200), np.float32))
    output = guarded(np.zeros((1, 200), np.float32))
    ranges = [(each.ctypes.data, each.ctypes.data + each.nbytes) for each in (data, output)]
    kernel = centered.gpu_kernel
    count = kernel.module.count(BARRIER)
    assert count >= 5
    for number in range(count):
        mutant = emulated(kernel, True, without_barrier(number))
        # After the second sum nothing reads what the threads share.
        if number >= count - 2:
            mutant.run([200, slot_of(data), slot_of(output)], 1, ranges, order)
        else:
            with pytest.raises(EmulationError, match=r"race: lane \d+ of block 0 .* lane \d+"):
                mutant.run([200, slot_of(data), slot_of(output)], 1, ranges, order)


@block_of(THREADS)
def assigns_outer(call: Rows) -> None:
    total = np.float32(0)
    for t in threads(THREADS):
        total = call.data[t]
    for t in threads(THREADS):
        call.output[t] = total


@block_of(THREADS)
def reads_after(call: Rows) -> None:
    for t in threads(THREADS):
        value = call.data[t]
    for t in threads(THREADS):
        call.output[t] = value


@block_of(THREADS)
def nested(call: Rows) -> None:
    for t in threads(THREADS):
        for u in threads(THREADS):
            call.output[t] = call.data[u]


@block_of(THREADS)
def nested_by_a_call(call: Rows) -> None:
    values = shared(THREADS)
    for t in threads(THREADS):
        values[t] = call.data[t]
        add_up(values)


@block_of(THREADS)
def returns(call: Rows) -> None:
    for t in threads(THREADS):
        if t > 3:
            return
        call.output[t] = call.data[t]


@block_of(THREADS)
def breaks(call: Rows) -> None:
    for i in range(4):
        for t in threads(THREADS):
            if t > i:
                break
            call.output[t] = call.data[t]


@block_of(THREADS)
def stores_outside(call: Rows) -> None:
    call.output[0] = call.data[0]


@block_of(THREADS)
def private_outside(call: Rows) -> None:
    own = private(2)
    for t in threads(THREADS):
        own[0] = call.data[t]
    if own[0] > 0:
        for t in threads(THREADS):
            call.output[t] = own[0]


@block_of(THREADS)
def shares_inside(call: Rows) -> None:
    for t in threads(THREADS):
        values = shared(8)
        call.output[t] = values[t]


@block_of(THREADS)
def other_threads(call: Rows) -> None:
    for t in threads(128):
        call.output[t] = call.data[t]


@block_of(THREADS)
def too_much(call: Rows) -> None:
    values, others = shared(8192), shared(8192)
    for t in threads(THREADS):
        values[t] = others[t]


@block_of(THREADS)
def varying_size(call: Rows) -> None:
    values = shared(call.columns)
    for t in threads(THREADS):
        call.output[t] = values[t]


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        (assigns_outer, "total is of the entire block: a region can only read it"),
        (reads_after, "value has no value on some path"),
        (nested, "a region is inside of another one: their threads would not all meet"),
        (nested_by_a_call, "a region is inside of another one: their threads would not all meet"),
        (returns, "return inside of a region: its threads would not all meet"),
        (breaks, "break inside of a region leaves its loops only"),
        (stores_outside, "memory is written in regions: outside of them every thread would"),
        (private_outside, "elements of the threads are read and written in regions"),
        (shares_inside, "memory of the block and of its threads is declared outside of regions"),
        (other_threads, r"the regions of this kernel are of threads\(64\)"),
        (too_much, "a block shares 65536 bytes; 49152 exist"),
        (varying_size, "a constant is needed"),
    ],
    ids=lambda value: value.body.__name__ if isinstance(value, BlockFunction) else "",
)
def test_misuse_is_refused_with_its_line(kernel: BlockFunction, message: str) -> None:
    with pytest.raises(InternalError, match=rf"test_block_kernels.py:\d+: {message}"):
        _ = kernel.gpu_kernel


def test_no_processor_runs_blocks() -> None:
    with pytest.raises(InternalError, match="centered is code for the blocks of a GPU"):
        _ = centered.address
