"""Movable programs: bound once, run on tensors at other places each time."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from operator_row import Row
from operator_rows import ROWS

from mxrun import library as operators
from mxrun.base.device import Cut
from mxrun.base.errors import InternalError
from mxrun.base.tensor import CHANNELS_LAST, TensorSpec, align
from mxrun.contract.call import BackwardData, Conditions, all_implementations, backward, forward
from mxrun.contract.case import blank
from mxrun.contract.memory import GuardedMemory
from mxrun.contract.trial import Trial
from mxrun.device.cpu.call import NativeCall
from mxrun.device.cpu.device import CpuDevice
from mxrun.device.cpu.onednn import library, operations
from mxrun.device.cpu.onednn.launch import PrimitiveLaunch
from mxrun.device.cpu.onednn.primitive import Argument
from mxrun.device.host_memory import HostMemory
from mxrun.device.interface import Device, MovableProgram, ProgramStep
from mxrun.device.reference.device import ReferenceDevice
from mxrun.operator.kernel import Handles
from mxrun.operator.launch import (
    Handle,
    Launch,
    LoopLaunch,
    Memory,
    PythonLaunch,
    Repeat,
    Views,
)
from mxrun.operator.native_kernel import Addition, add_loop

operators.load()
ROW = TensorSpec((5,))
Make = Callable[[Handle, Handle], Launch]


def cpu(threads: int = 1) -> CpuDevice:
    return CpuDevice(CpuDevice.describe(0, threads))


def reference() -> ReferenceDevice:
    return ReferenceDevice(ReferenceDevice.describe(0, 1))


def addition(source: Handle, target: Handle, tasks: int = 1) -> LoopLaunch:
    return LoopLaunch(add_loop, Addition(count=5, source=source, target=target), tasks)


def python_addition(source: Handle, target: Handle) -> PythonLaunch:
    def prepare(views: Views) -> Callable[[], None]:
        a, b = views(source, ROW), views(target, ROW)
        return lambda: np.add(b, a, out=b)

    return PythonLaunch(prepare)


MAKERS = [
    pytest.param(cpu, addition, id="cpu, native"),
    pytest.param(lambda: cpu(2), lambda a, b: addition(a, b, 2), id="cpu, native, two tasks"),
    pytest.param(cpu, python_addition, id="cpu, Python"),
    pytest.param(reference, python_addition, id="reference"),
]
every_maker = pytest.mark.parametrize(("open_device", "make"), MAKERS)
every_length = pytest.mark.parametrize("short", [False, True], ids=["long", "short"])


def movable(
    device: Device,
    make: Callable[[Sequence[Handle]], Sequence[Launch]],
    count: int,
    short: bool = False,
) -> MovableProgram:
    def steps(handles: Sequence[Handle]) -> list[ProgramStep]:
        return [ProgramStep(f"step {i}", (each,)) for i, each in enumerate(make(handles))]

    return device.bind_movable(steps, count, short)


@every_length
@every_maker
def test_a_program_follows_its_tensors(
    open_device: Callable[[], Device], make: Make, short: bool
) -> None:
    program = movable(open_device(), lambda given: [make(given[0], given[1])], 2, short)
    memory = np.random.default_rng(0).normal(size=400).astype(np.float32)
    other = memory[::-1].copy()
    expected, expected_other = memory.copy(), other.copy()
    home, away = HostMemory.of(memory), HostMemory.of(other)
    # Forwards, backwards, the same places again, and into another memory.
    for source, target in ((0, 5), (390, 10), (390, 10), (16, 320), (100, 0)):
        program.run([Handle(home, 4 * source), Handle(home, 4 * target)])
        expected[target : target + 5] += expected[source : source + 5]
        program.run([Handle(home, 4 * source), Handle(away, 4 * target)])
        expected_other[target : target + 5] += expected[source : source + 5]
    assert np.array_equal(memory, expected)
    assert np.array_equal(other, expected_other)


@every_maker
def test_one_tensor_may_be_two_operands(open_device: Callable[[], Device], make: Make) -> None:
    program = movable(open_device(), lambda given: [make(given[0], given[0])], 1)
    memory = np.arange(20, dtype=np.float32)
    for begin in (0, 10):
        program.run([Handle(HostMemory.of(memory), 4 * begin)])
    assert np.array_equal(
        memory, [*range(0, 10, 2), *range(5, 10), *range(20, 30, 2), *range(15, 20)]
    )


@every_maker
def test_places_within_a_tensor_follow_it(open_device: Callable[[], Device], make: Make) -> None:
    program = movable(open_device(), lambda given: [make(given[0] + 40, given[0] + 20)], 1)
    memory = np.arange(60, dtype=np.float32)
    expected = memory.copy()
    for begin in (20, 0, 40):
        program.run([Handle(HostMemory.of(memory), 4 * begin)])
        expected[begin + 5 : begin + 10] += expected[begin + 10 : begin + 15]
    assert np.array_equal(memory, expected)


@pytest.mark.parametrize(
    ("open_device", "first", "second"),
    [
        pytest.param(cpu, addition, addition, id="cpu, native"),
        pytest.param(cpu, addition, python_addition, id="cpu, mixed"),
        pytest.param(reference, python_addition, python_addition, id="reference"),
    ],
)
def test_loops_move_within_tensors_that_move(
    open_device: Callable[[], Device], first: Make, second: Make
) -> None:
    """The rows of two tensors, one of them the program's own, are added to those of a third."""
    own = np.random.default_rng(1).normal(size=(2, 3, 5)).astype(np.float32)
    constant = Handle(HostMemory.of(own), 0).within(60).within(20)

    def launches(given: Sequence[Handle]) -> list[Launch]:
        rows, totals = given[0].within(60).within(20), given[1].within(20).within(0)
        return [Repeat(2, (Repeat(3, (first(constant, totals), second(rows, totals))),))]

    program = movable(open_device(), launches, 2)
    data = np.random.default_rng(2).normal(size=200).astype(np.float32)
    memory, expected = HostMemory.of(data), data.copy()
    for rows, totals in ((0, 60), (120, 40), (20, 180)):
        for i, j in np.ndindex(2, 3):
            total, row = totals + 5 * i, rows + 15 * i + 5 * j
            expected[total : total + 5] += own[i, j]
            expected[total : total + 5] += expected[row : row + 5]
        program.run([Handle(memory, 4 * rows), Handle(memory, 4 * totals)])
    assert np.array_equal(data, expected)


def test_bodies_are_prepared_for_new_places_only() -> None:
    prepared = []

    def body(given: Sequence[Handle]) -> list[Launch]:
        def prepare(views: Views) -> Callable[[], None]:
            prepared.append(views(given[0], ROW))
            return lambda: None

        return [PythonLaunch(prepare)]

    program = movable(cpu(), body, 1)
    memory = np.arange(20, dtype=np.float32)
    for begin in (0, 0, 5, 5, 5, 0):
        program.run([Handle(HostMemory.of(memory), 4 * begin)])
    assert [array[0] for array in prepared] == [0, 5, 0]


@pytest.mark.skipif(library.load() is None, reason=library.reason())
def test_primitives_of_onednn_move_in_loops_and_between_runs() -> None:
    plain = TensorSpec((1, 2, 2, 2))
    reorder = operations.reorder(plain, plain.with_layout(CHANNELS_LAST), Cut(1, 1))

    def launches(given: Sequence[Handle]) -> list[Launch]:
        source, target = (handle.within(32) for handle in given)
        to = {int(Argument.SOURCE): source, int(Argument.OUTPUT): target}
        return [Repeat(5, (PrimitiveLaunch(reorder, to, None),))]

    program = movable(cpu(), launches, 2)
    data = np.arange(200, dtype=np.float32)
    memory, expected = HostMemory.of(data), data.copy()
    for source, target in ((0, 80), (80, 0), (160, 120)):
        rows = expected[source : source + 40].reshape(5, 2, 2, 2)
        expected[target : target + 40] = np.moveaxis(rows, 1, -1).ravel()
        program.run([Handle(memory, 4 * source), Handle(memory, 4 * target)])
    assert np.array_equal(data, expected)


@pytest.mark.skipif(library.load() is None, reason=library.reason())
def test_a_run_lets_onednn_use_one_thread() -> None:
    program = movable(cpu(3), lambda given: [addition(given[0], given[0], 3)], 1)
    place = Handle(HostMemory.of(np.zeros(5, np.float32)), 0)
    openmp = ctypes.CDLL("libgomp.so.1")
    openmp.omp_set_num_threads(2)
    program.run([place])
    assert openmp.omp_get_max_threads() == 1


@dataclass(frozen=True)
class Status:
    """Computation whose status is the lower half of its tensor's address, without the sign."""

    def bind(
        self, addresses: Mapping[int, int], scratchpad: int, threads: int
    ) -> tuple[NativeCall, ...]:
        """Return the call of abs(3)."""
        absolute = ctypes.cast(ctypes.CDLL(None).abs, ctypes.c_void_p).value or 0
        return (NativeCall(absolute, (addresses[0],), None, checked=True),)


@pytest.mark.parametrize("in_a_loop", [False, True])
@every_length
def test_a_failing_call_names_its_step(in_a_loop: bool, short: bool) -> None:
    def launches(given: Sequence[Handle]) -> list[Launch]:
        status: Any = Status()
        if in_a_loop:
            return [Repeat(2, (PrimitiveLaunch(status, {0: given[0].within(0)}, None),))]
        return [PrimitiveLaunch(status, {0: given[0]}, None)]

    program = movable(cpu(), launches, 1, short)
    good, bad = Handle(HostMemory(1 << 40, 8), 0), Handle(HostMemory(1 << 40, 8), 4)
    for _ in range(2):
        program.run([good])
        with pytest.raises(InternalError, match="step 0 failed"):
            program.run([bad])


class ForeignMemory(Memory):
    nbytes = 64


@pytest.mark.parametrize("open_device", [cpu, reference])
def test_other_places_are_refused(open_device: Callable[[], Device]) -> None:
    program = movable(open_device(), lambda given: [python_addition(given[0], given[1])], 2)
    place = Handle(HostMemory.of(np.zeros(20, np.float32)), 0)
    for count in (1, 3):
        with pytest.raises(InternalError, match=f"on 2 tensors was given {count} places"):
            program.run([place] * count)
    with pytest.raises(InternalError, match="cannot access ForeignMemory"):
        program.run([Handle(ForeignMemory(), 0), place])
    program.run([place, place + 20])


@every_length
def test_runs_leave_no_objects(short: bool) -> None:
    program = movable(
        cpu(), lambda given: [addition(*given), python_addition(*given), addition(*given)], 2, short
    )
    memory = HostMemory.of(np.zeros(4000, np.float32))
    handles = [[Handle(memory, 20 * i), Handle(memory, 8000 + 20 * i)] for i in range(300)]
    blocks = []
    for _ in range(3):
        for given in handles:
            program.run(given)
        blocks.append(sys.getallocatedblocks())
    assert blocks[2] - blocks[1] < 20


def distinct(trial: Trial) -> list[GuardedMemory]:
    """Return the memory of all tensors of a call, each once."""
    named = [each.memory for each in (*trial.inputs, *trial.outputs)]
    found = [memory for memory in (*named, *trial.extra, trial.workspace) if memory is not None]
    return list({identity(memory): memory for memory in found}.values())


def identity(memory: GuardedMemory) -> int:
    """Return a number that is the same for tensors in the same bytes."""
    return int(memory.bytes.ctypes.data) if memory.bytes.size else id(memory)


def handles_of(trial: Trial, given: Sequence[Handle]) -> Handles:
    """Return a call's handles with those given for the memories of `distinct`."""
    by_memory = {identity(memory): at for memory, at in zip(distinct(trial), given, strict=True)}

    def at(memory: GuardedMemory | None) -> Handle | None:
        return None if memory is None else by_memory[identity(memory)]

    return Handles(
        tuple(at(each.memory) for each in trial.inputs),
        tuple(at(each.memory) for each in trial.outputs),
        tuple(at(memory) for memory in trial.extra),
        at(trial.workspace),
    )


def moves_with_the_same_bits(trial: Trial) -> None:
    """Repeat a call by a movable program at changing places; compare what it has written."""
    memories = distinct(trial)
    program = trial.device.bind_movable(
        lambda given: [ProgramStep(trial.whose, trial.kernel.bind(handles_of(trial, given)))],
        len(memories),
    )
    outputs = zip(trial.outputs, trial.kernel.outputs, strict=True)
    produced = (each.memory for each, spec in outputs if spec is not None)
    written = [*filter(None, produced), *trial.extra]
    # States that are overwritten in place are inputs as well, and computed again alike.
    read = {identity(each.memory) for each in trial.inputs if each.memory is not None}
    blank = {identity(each) for each in written} - read
    room = sum(align(memory.bytes.size) for memory in memories)
    buffer = np.zeros(room + 4096 + 64, np.uint8)
    base = HostMemory.of(buffer)
    for order, shift in ((1, 0), (-1, 4096), (1, 1024)):
        offset = -base.address % 64 + shift
        begins = {}
        for memory in memories[::order]:
            begins[identity(memory)] = offset
            part = buffer[offset : offset + memory.bytes.size]
            part[:] = 0xFF if identity(memory) in blank else memory.bytes
            offset += align(memory.bytes.size)
        program.run([Handle(base, begins[identity(memory)]) for memory in memories])
        for memory in written:
            begin = begins[identity(memory)]
            assert buffer[begin : begin + memory.bytes.size].tobytes() == memory.bytes.tobytes()


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_every_kernel_gives_the_same_bits_at_changing_places(row: Row) -> None:
    prop, inputs = row.create(), row.inputs("float32")
    conditions = Conditions(threads=2)
    for implementation in all_implementations(prop):
        outputs = row.blank_outputs("float32")
        run = forward(
            implementation, prop, inputs, outputs, is_train=row.is_train, conditions=conditions
        )
        if run is None:
            continue
        moves_with_the_same_bits(run.trial)
        if row.has_gradient and row.is_train:
            arguments = inputs[: len(prop.list_arguments())]
            gradients = [blank(each.shape, str(each.dtype), np.nan) for each in arguments]
            data = BackwardData(run.outputs, arguments, run.outputs)
            back = backward(implementation, prop, data, gradients, run, conditions=conditions)
            moves_with_the_same_bits(back.trial)
