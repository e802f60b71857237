"""Programs: launches on handles, and loops that run natively."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from mxrun.base.device import Cut
from mxrun.base.errors import InternalError
from mxrun.base.tensor import CHANNELS_LAST, TensorSpec
from mxrun.device.cpu.binding import calls_of
from mxrun.device.cpu.call import Address, NativeCall, TaskThreads
from mxrun.device.cpu.device import CpuDevice
from mxrun.device.cpu.onednn import library, operations
from mxrun.device.cpu.onednn.launch import PrimitiveLaunch
from mxrun.device.cpu.onednn.primitive import Argument
from mxrun.device.cpu.tape import Tape, TapeEntry
from mxrun.device.host_memory import HostMemory
from mxrun.device.interface import Device, ProgramStep
from mxrun.device.reference.device import ReferenceDevice
from mxrun.operator.launch import (
    Handle,
    Launch,
    LoopLaunch,
    Memory,
    ProviderLaunch,
    PythonLaunch,
    Repeat,
    Views,
    runs_python,
)
from mxrun.operator.native_kernel import Addition, add_loop

ROW = TensorSpec((5,))


def cpu(threads: int = 1) -> CpuDevice:
    return CpuDevice(CpuDevice.describe(0, threads))


def addition(source: Handle, target: Handle, tasks: int = 1) -> LoopLaunch:
    return LoopLaunch(add_loop, Addition(count=5, source=source, target=target), tasks)


def python_addition(source: Handle, target: Handle) -> PythonLaunch:
    def prepare(views: Views) -> Callable[[], None]:
        a, b = views(source, ROW), views(target, ROW)
        return lambda: np.add(b, a, out=b)

    return PythonLaunch(prepare)


def run(device: Device, launch: Launch) -> None:
    device.bind([ProgramStep("loop", (launch,))]).run()


MAKERS = [
    pytest.param(cpu, addition, id="cpu, native"),
    pytest.param(lambda: cpu(2), lambda a, b: addition(a, b, 2), id="cpu, native, two tasks"),
    pytest.param(cpu, python_addition, id="cpu, Python"),
    pytest.param(
        lambda: ReferenceDevice(ReferenceDevice.describe(0, 1)), python_addition, id="reference"
    ),
]


@pytest.mark.parametrize(("open_device", "make"), MAKERS)
def test_a_loop_moves_handles_by_their_strides(
    open_device: Callable[[], Device], make: Callable[[Handle, Handle], Launch]
) -> None:
    rows = np.arange(40, dtype=np.float32).reshape(8, 5)
    expected = np.cumsum(rows, axis=0, dtype=np.float32)
    memory = HostMemory.of(rows)
    # Row t + 1 += row t: a recurrence by memory offset.
    body = make(Handle(memory, 0).within(20), Handle(memory, 20).within(20))
    program = open_device().bind([ProgramStep("loop", (Repeat(7, (body,)),))])
    program.run()
    assert np.array_equal(rows, expected)
    # A second run begins at the first row again.
    rows[...] = np.arange(40, dtype=np.float32).reshape(8, 5)
    program.run()
    assert np.array_equal(rows, expected)


@pytest.mark.parametrize(("open_device", "make"), MAKERS)
def test_loops_within_loops_move_at_both_levels(
    open_device: Callable[[], Device], make: Callable[[Handle, Handle], Launch]
) -> None:
    source = np.random.default_rng(0).normal(size=(3, 4, 5)).astype(np.float32)
    target = np.zeros((3, 5), np.float32)
    expected = target.copy()
    for i in range(3):
        for j in range(4):
            expected[i] += source[i, j]
    a = Handle(HostMemory.of(source), 0).within(80).within(20)
    b = Handle(HostMemory.of(target), 0).within(20).within(0)
    run(open_device(), Repeat(3, (Repeat(4, (make(a, b),)),)))
    assert np.array_equal(target, expected)


def test_a_native_loop_is_one_call_and_a_loop_with_python_is_unrolled() -> None:
    memory = HostMemory.of(np.zeros(20, np.float32))
    place = Handle(memory, 0).within(0)
    native = Repeat(1000, (addition(place, place), addition(place, place)))
    assert len(calls_of(native, TaskThreads())) == 1
    mixed = Repeat(3, (addition(place, place), python_addition(place, place)))
    assert runs_python(mixed)
    assert len(calls_of(mixed, TaskThreads())) == 6


@pytest.mark.skipif(library.load() is None, reason=library.reason())
def test_primitives_of_onednn_move_too() -> None:
    plain = TensorSpec((1, 2, 2, 2))
    reorder = operations.reorder(plain, plain.with_layout(CHANNELS_LAST), Cut(1, 1))
    source = np.arange(40, dtype=np.float32).reshape(5, 1, 2, 2, 2)
    target = np.zeros((5, 2, 2, 2), np.float32)
    places = {
        int(Argument.SOURCE): Handle(HostMemory.of(source), 0).within(32),
        int(Argument.OUTPUT): Handle(HostMemory.of(target), 0).within(32),
    }
    run(cpu(), Repeat(5, (PrimitiveLaunch(reorder, places, None),)))
    assert np.array_equal(target, np.moveaxis(source[:, 0], 1, -1))


def test_a_failing_call_in_a_loop_names_its_step() -> None:
    absolute = ctypes.cast(ctypes.CDLL(None).abs, ctypes.c_void_p).value or 0
    from mxrun.device.cpu import binding

    # The number is 1 in the first iteration of the outer loop, which fails, and 0 in the second.
    number = Address(1, (-1, 0))
    inner = binding._loop(3, [NativeCall(absolute, (number,), None, checked=True)], 1)
    tape = Tape([TapeEntry("softmax", binding._loop(2, [inner], 0))])
    for _ in range(2):
        with pytest.raises(InternalError, match="loop of softmax"):
            tape.run()
    assert not any(word[0] for call in [inner] for word in call.failed)


class ForeignMemory(Memory):
    nbytes = 64


class ForeignLaunch(ProviderLaunch):
    """Launch of another device."""


@pytest.mark.parametrize("device", [cpu(), ReferenceDevice(ReferenceDevice.describe(0, 1))])
def test_a_device_refuses_foreign_memory_and_launches(device: Device) -> None:
    place = Handle(ForeignMemory(), 0)
    with pytest.raises(InternalError, match="cannot access ForeignMemory"):
        run(device, python_addition(place, place))
    with pytest.raises(InternalError, match="cannot run ForeignLaunch"):
        run(device, ForeignLaunch())


def test_every_handle_in_a_loop_has_a_stride_per_loop() -> None:
    handle: Any = Handle(HostMemory.of(np.zeros(4, np.float32)), 4)
    assert (handle + 4).within(8).within(0).strides == (8, 0)
    assert (handle.within(8) + 4).strides == (8,)
