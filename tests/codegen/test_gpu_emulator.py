"""The emulator of GPUs: threads, shuffles and barriers as PTX defines them, faults by name."""

from __future__ import annotations

import re

import numpy as np
import numpy.typing as npt
import pytest
from gpu_emulator.emulated import ORDERS, EmulationError, emulated
from gpu_emulator.guarded import guarded

from mxrun.codegen.gpu_kernel import GpuKernel

_SYNC = "call void @llvm.nvvm.bar.warp.sync(i32 %mask)"
# Each half-warp stores its task's 16 numbers, turned by one lane, and their sum, by its lane 0.
_TURN = f"""
declare i32 @llvm.nvvm.read.ptx.sreg.tid.x()
declare i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()
declare void @llvm.nvvm.bar.warp.sync(i32)
declare float @llvm.nvvm.shfl.sync.bfly.f32(i32, float, i32, i32)

define ptx_kernel void @turn(ptr addrspace(1) %data, ptr addrspace(1) %sums, i64 %tasks) {{
start:
  %thread = tail call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %block = tail call i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()
  %half = and i32 %thread, 16
  %mask = shl i32 65535, %half
  %in.warp = lshr i32 %thread, 4
  %first = shl i32 %block, 1
  %task = add i32 %first, %in.warp
  %wide = zext i32 %task to i64
  %is.there = icmp slt i64 %wide, %tasks
  br i1 %is.there, label %work, label %end
work:
  %lane = and i32 %thread, 15
  %next.lane = add i32 %lane, 1
  %next = and i32 %next.lane, 15
  %at = shl i32 %task, 4
  %own = or i32 %at, %lane
  %other = or i32 %at, %next
  %own.place = getelementptr float, ptr addrspace(1) %data, i32 %own
  %other.place = getelementptr float, ptr addrspace(1) %data, i32 %other
  %value = load float, ptr addrspace(1) %own.place, align 4
  {_SYNC}
  store float %value, ptr addrspace(1) %other.place, align 4
  %a = tail call float @llvm.nvvm.shfl.sync.bfly.f32(i32 %mask, float %value, i32 8, i32 4127)
  %b = fadd float %value, %a
  %c = tail call float @llvm.nvvm.shfl.sync.bfly.f32(i32 %mask, float %b, i32 4, i32 4127)
  %d = fadd float %b, %c
  %e = tail call float @llvm.nvvm.shfl.sync.bfly.f32(i32 %mask, float %d, i32 2, i32 4127)
  %f = fadd float %d, %e
  %g = tail call float @llvm.nvvm.shfl.sync.bfly.f32(i32 %mask, float %f, i32 1, i32 4127)
  %sum = fadd float %f, %g
  %is.first = icmp eq i32 %lane, 0
  br i1 %is.first, label %store, label %end
store:
  %place = getelementptr float, ptr addrspace(1) %sums, i32 %task
  store float %sum, ptr addrspace(1) %place, align 4
  br label %end
end:
  ret void
}}
"""
_TASKS = 5
Array = npt.NDArray[np.float32]


def _run(
    module: str, order: str, is_checked: bool, tasks: int = _TASKS
) -> tuple[Array, Array, Array]:
    """Run the module; of five tasks, so that one half-warp of three warps has none."""
    pointer = "pointer to float32"
    kernel = GpuKernel("turn", (pointer, pointer, "int64"), "", module, 32, 2)
    before = np.random.default_rng(3).standard_normal((tasks, 16)).astype(np.float32)
    data, sums = guarded(before), guarded(np.zeros(_TASKS, np.float32))
    memory = [(each.ctypes.data, each.ctypes.data + each.nbytes) for each in (data, sums)]
    slots = [data.ctypes.data, sums.ctypes.data]
    emulated(kernel, is_checked).run(slots, _TASKS, memory, order, seed=7)
    return before, data, sums


@pytest.mark.parametrize("is_checked", [False, True])
@pytest.mark.parametrize("order", ORDERS)
def test_lanes_meet(order: str, is_checked: bool) -> None:
    before, data, sums = _run(_TURN, order, is_checked)
    assert np.array_equal(data, np.roll(before, 1, axis=1))
    parts = before
    while parts.shape[1] > 1:
        half = parts.shape[1] // 2
        parts = parts[:, :half] + parts[:, half:]
    assert np.array_equal(sums, parts[:, 0])


_FAULTS = {
    "no barrier": (_SYNC, "", r"race: lane \d+ .* lane \d+ .*\n  at: .*float.*\n  and: .*float"),
    "every lane stores": (
        "icmp eq i32 %lane, 0",
        "icmp sge i32 %lane, 0",
        r"race: lane \d+ of block \d overwrites what was written by lane .*store float %sum",
    ),
    "a half-warp that has none": (
        "slt i64 %wide, %tasks",
        "sle i64 %wide, %tasks",
        r"lane \d+ of block 2 reads 4 bytes at address .*, outside of its arguments\n  at: %value",
    ),
    "mask of a warp": (
        "shl i32 65535, %half",
        "shl i32 -1, %half",
        r"deadlock: lane \d+ of block \d waits at a barrier of lanes, mask 0xffffffff",
    ),
    "mask without the lane": (
        "shl i32 65535, %half",
        "shl i32 255, %half",
        r"lane \d+ of block \d is not in the mask 0xff0*\b",
    ),
}


@pytest.mark.parametrize("name", _FAULTS)
@pytest.mark.parametrize("order", ORDERS)
def test_faults_are_found_in_any_order(name: str, order: str) -> None:
    before, after, message = _FAULTS[name]
    assert before in _TURN
    with pytest.raises(EmulationError) as caught:
        # Without checks, which find further faults of these.
        _run(_TURN.replace(before, after), order, is_checked=not name.startswith("mask"))
    assert re.search(f"turn: {message}", str(caught.value), re.DOTALL), caught.value


_TWO_BARRIERS = """
declare i32 @llvm.nvvm.read.ptx.sreg.tid.x()
declare void @llvm.nvvm.barrier.cta.sync.aligned.all(i32)

define ptx_kernel void @turn(i64 %tasks) {
  %thread = tail call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %is.low = icmp slt i32 %thread, LIMIT
  br i1 %is.low, label %low, label %high
low:
  call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0)
  ret void
high:
  call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0)
  ret void
}
"""


@pytest.mark.parametrize("limit", [5, 32])
def test_lanes_of_a_warp_wait_at_one_barrier_of_the_block(limit: int) -> None:
    """The barriers are aligned, as PTX calls it: only warps may wait at different ones."""
    module = _TWO_BARRIERS.replace("LIMIT", str(limit))
    made = emulated(GpuKernel("turn", ("int64",), "", module, 64, 1), False)
    if limit == 32:
        made.run([], 1)
        return
    with pytest.raises(EmulationError, match="waits at another barrier than its warp's first"):
        made.run([], 1)


@pytest.mark.parametrize("order", ORDERS)
def test_memory_behind_an_argument_is_out_of_reach(order: str) -> None:
    # 256 bytes, which end where a page does.
    with pytest.raises(EmulationError, match=r"turn: lane \d+ of block 2 accesses address 0x"):
        _run(_TURN, order, is_checked=False, tasks=4)


def test_what_the_emulator_does_not_know_is_refused() -> None:
    with pytest.raises(ValueError, match=r"turn: the emulator does not know llvm.nvvm.read.*clock"):
        _run(_TURN.replace("sreg.tid.x", "sreg.clock"), "forward", is_checked=False)
