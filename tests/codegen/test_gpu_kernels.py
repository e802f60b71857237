"""Kernels of graphics cards: native functions and maps as PTX, generated without a card."""

from __future__ import annotations

import re
from typing import Any

import pytest

from mxrun.codegen import gpu_kernel, object_cache
from mxrun.codegen.arguments import Arguments, Float32s, Integer, Real, Table
from mxrun.codegen.gpu_kernel import GpuKernel, cached_kernel
from mxrun.codegen.intrinsics import each, fetch_add, float32s, int64s
from mxrun.codegen.jit import native
from mxrun.codegen.loops import elements_of_task, rows_of_task
from mxrun.codegen.map_loop import MapLoop
from mxrun.codegen.scalar_value import LoopForm
from mxrun.codegen.sequential.arithmetic import Untyped
from mxrun.codegen.target import is_card
from mxrun.codegen.vectors import LANES, load_lanes, store_lanes, sum_lanes
from mxrun.operator import scalar


class Rows(Arguments):
    rows: Integer
    size: Integer
    factor: Real
    data: Float32s
    output: Float32s
    more: Table


@native
def scaled_loop(call: Rows) -> None:
    for i in elements_of_task(call.size):
        call.output[i] = call.factor * call.data[i]


@native
def sums_loop(call: Rows) -> None:
    for row in rows_of_task(call.rows):
        part = load_lanes(call.data, row * call.size, call.size)
        call.output[row] = sum_lanes(part, LANES)


@native
def nested_loop(call: Rows) -> None:
    for row in rows_of_task(call.rows):
        call.output[row] = 1.0
        for j in each(0, call.size):
            call.data[row * call.size + j] = call.factor


@native
def table_loop(call: Rows) -> None:
    target = float32s(call.more, 0)
    store_lanes(target, 0, load_lanes(call.data, 0, 9), 9)


@native
def counting_loop(call: Rows) -> None:
    fetch_add(int64s(call.more, 0), 0, 1)


def swish(x: Any, y: Any, beta: Any) -> Any:
    return x * scalar.sigmoid(beta * x) + y


def map_of(*memory: str) -> MapLoop:
    kernel = scalar.compile(swish, parameters=("beta",))
    form = LoopForm("float32", (1, 1), (False,), ("float32",), memory)
    return MapLoop(kernel.graph, kernel.results, form)


def instructions(kernel: GpuKernel, name: str) -> list[str]:
    """The instructions of the text with a name, without their operands."""
    return re.findall(rf"\s({name}[\w.]*)\s", kernel.ptx)


def test_a_kernel_takes_the_arguments_and_the_number_of_tasks() -> None:
    kernel = scaled_loop.gpu_kernel
    pointer = "pointer to float32"
    kinds = ("int64", "int64", "float32", pointer, pointer, "table", "int64")
    assert kernel.parameters == kinds
    entry = kernel.ptx[: kernel.ptx.index("{")]
    assert f".visible .entry {kernel.symbol}(" in entry
    assert re.findall(r"\.param \.(\w+)", entry) == ["u64", "u64", "f32", *["u64"] * 4]
    assert (kernel.threads, kernel.tasks_per_block) == (128, 128 // LANES)
    assert f"define ptx_kernel void @{kernel.symbol}(" in kernel.module


def test_independent_iterations_are_divided_between_the_lanes() -> None:
    """The barriers are those around the loop, none is in it."""
    assert len(instructions(scaled_loop.gpu_kernel, "bar.warp.sync")) == 2
    assert instructions(scaled_loop.gpu_kernel, "shfl") == []


def test_iterations_with_vectors_are_the_half_warps() -> None:
    kernel = sums_loop.gpu_kernel
    # Halves of the lanes four times, and the sum from the first lane.
    assert instructions(kernel, "shfl") == ["shfl.sync.bfly.b32"] * 4 + ["shfl.sync.idx.b32"]
    # One lane stores the sum between two barriers.
    assert len(instructions(kernel, "bar.warp.sync")) == 2


def test_the_inner_one_of_two_independent_loops_has_the_lanes() -> None:
    """Around the row's element, and around the loop within."""
    assert len(instructions(nested_loop.gpu_kernel, "bar.warp.sync")) == 4


def test_memory_is_known_to_be_the_cards() -> None:
    for function in (scaled_loop, sums_loop, table_loop):
        accesses = instructions(function.gpu_kernel, "(?:ld|st)")
        assert {each.split(".")[1] for each in accesses} == {"param", "global"}


def test_words_of_64_bits_are_read_at_once() -> None:
    assert instructions(table_loop.gpu_kernel, r"ld\.global\.b64") == ["ld.global.b64"]


def test_Q16_a_map_has_four_elements_a_thread() -> None:
    kernel = map_of().gpu_kernel
    assert instructions(kernel, r"ld\.global\.v4") == ["ld.global.v4.b32"] * 2
    assert instructions(kernel, r"st\.global\.v4") == ["st.global.v4.b32"]
    assert kernel.parameters == ("int64", *["pointer to float32"] * 3, "int64", "int64")


def test_a_map_of_bfloat16_is_stored_in_halves() -> None:
    kernel = map_of("bfloat16", "float32", "bfloat16").gpu_kernel
    # Four elements are two words.
    assert instructions(kernel, r"st\.global\.v") == ["st.global.v2.b32"]
    assert kernel.parameters[1:4] == tuple(
        f"pointer to {dtype}" for dtype in ("bfloat16", "float32", "bfloat16")
    )


def test_words_of_other_threads_are_refused() -> None:
    with pytest.raises(Untyped, match="graphics cards have no fetch_add"):
        _ = counting_loop.gpu_kernel
    assert not is_card()


def test_a_kernel_is_cached_under_a_key_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel, loop = map_of().gpu_kernel, map_of()

    def refuse(symbol: str) -> GpuKernel:
        raise AssertionError("compiled again")

    assert gpu_kernel.cached_kernel(loop.text, refuse) == kernel
    monkeypatch.setattr(object_cache, "_compiler", lambda: "another compiler")
    with pytest.raises(AssertionError, match="compiled again"):
        gpu_kernel.cached_kernel(loop.text, refuse)


def test_kernels_without_a_text_have_symbols_of_their_own() -> None:
    """A card keeps kernels by their symbols: one kernel would run in the place of the other."""
    functions = (scaled_loop, sums_loop, scaled_loop, sums_loop)
    symbols = [cached_kernel(None, each.compile_kernel).symbol for each in functions]
    assert len({*symbols}) == len(symbols)
