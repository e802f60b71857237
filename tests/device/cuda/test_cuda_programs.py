"""Programs of cards, on a stand-in for CuPy with CUDA's rules."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import stand_in

from mxrun.base.errors import InternalError, UserError
from mxrun.base.tensor import TensorSpec
from mxrun.codegen.arguments import Arguments, Float32s, Integer, Real, Table
from mxrun.codegen.intrinsics import float32s, integer
from mxrun.codegen.jit import native
from mxrun.codegen.loops import elements_of_task
from mxrun.device.interface import Device, ProgramStep
from mxrun.device.registry import device_kind
from mxrun.operator.launch import (
    Handle,
    Launch,
    LoopLaunch,
    ProviderLaunch,
    PythonLaunch,
    Repeat,
    Views,
)
from mxrun.operator.native_kernel import Addition, add_loop

ROW = TensorSpec((5,))
NUMBER = TensorSpec((1,), "int64")
# Bytes between the tensors of a test's memory.
BLOCK = 256


@pytest.fixture
def card(request: pytest.FixtureRequest) -> Iterator[Any]:
    with stand_in.installed(**getattr(request, "param", {})) as installed:
        yield installed


@pytest.fixture
def device(card: Any) -> Device:
    kind = device_kind("gpu")
    return kind(kind.describe(0, 1))


class Tensors:
    """Rows of five numbers in a memory of a device."""

    def __init__(self, device: Device, count: int = 4) -> None:
        self.device, self.memory = device, device.allocate(count * BLOCK)

    def handle(self, index: int) -> Handle:
        return Handle(self.memory, index * BLOCK)

    def __getitem__(self, index: int) -> list[float]:
        return [float(each) for each in self.device.read(self.handle(index), ROW)]

    def __setitem__(self, index: int, values: Any) -> None:
        self.device.write(self.handle(index), np.broadcast_to(np.float32(values), (5,)).copy())


def addition(source: Handle, target: Handle, tasks: int = 1) -> LoopLaunch:
    return LoopLaunch(add_loop, Addition(count=5, source=source, target=target), tasks)


def python_addition(source: Handle, target: Handle, only_read: bool = False) -> PythonLaunch:
    def prepare(views: Views) -> Callable[[], None]:
        a, b = views(source, ROW), views(target, ROW)
        return lambda: np.add(b, a, out=b)

    return PythonLaunch(prepare, (source,) if only_read else ())


def steps(*launches: Launch) -> list[ProgramStep]:
    return [ProgramStep(f"step{number}", (each,)) for number, each in enumerate(launches)]


def test_launches_run_once_then_as_a_graph(card: Any, device: Device) -> None:
    rows = Tensors(device)
    rows[0], rows[1] = 1, 10
    first, second, third = (rows.handle(index) for index in range(3))
    program = device.bind(steps(addition(first, second, 2), addition(second, third)))
    for run, (ten, total) in enumerate([(11, 11), (12, 23), (13, 36)]):
        program.run()
        assert (rows[1], rows[2]) == ([ten] * 5, [total] * 5)
        assert card.counts["kernel"] == 2 * (run + 1)
        assert (card.counts.get("capture", 0), card.counts.get("graph launch", 0)) == (
            int(run > 0),
            run,
        )
    assert card.counts["module load"] == 1


def test_work_is_delayed_until_something_waits(card: Any, device: Device) -> None:
    rows = Tensors(device)
    program = device.bind(steps(addition(rows.handle(0), rows.handle(1))))
    for _ in range(3):
        program.run()
        assert card.counts["kernel"] == 1
    device.synchronise()
    assert card.counts["kernel"] == 3


def test_python_bodies_run_between_graphs(card: Any, device: Device) -> None:
    rows = Tensors(device)
    rows[0] = range(5)
    first, second, third = (rows.handle(index) for index in range(3))
    # The body's tensors overlap: it adds a row to the one that begins an element later.
    launches = (
        addition(first, second),
        python_addition(second, second + 4),
        addition(second, third),
    )
    program = device.bind(steps(*launches))
    expected, total = np.zeros(6, np.float32), np.zeros(5, np.float32)
    for _ in range(3):
        expected[:5] += range(5)
        expected[1:] += expected[:5].copy()
        total += expected[:5]
        program.run()
        assert rows[1] == expected[:5].tolist()
        assert rows[2] == total.tolist()
    assert card.counts["capture"] == 2


@pytest.mark.parametrize("target", [1, 0])
def test_what_a_body_only_reads_is_not_copied_back(card: Any, device: Device, target: int) -> None:
    rows = Tensors(device)
    rows[0] = 3
    # The same row twice: what is written is copied, whoever else reads it.
    first, second = rows.handle(0), Handle(rows.memory, target * BLOCK)
    program = device.bind(steps(python_addition(first, second, only_read=True)))
    device.synchronise()
    before = dict(card.counts)
    program.run()
    moved = {way: card.counts[way] - before.get(way, 0) for way in ("to the host", "to the card")}
    assert moved == {"to the host": ROW.nbytes * (1 + target), "to the card": ROW.nbytes}
    assert rows[target] == [3 if target else 6] * 5


def test_exceptions_of_bodies_propagate(device: Device) -> None:
    def prepare(views: Views) -> Callable[[], None]:
        views(Handle(memory, 0), ROW)

        def body() -> None:
            raise ZeroDivisionError

        return body

    memory = device.allocate(BLOCK)
    with pytest.raises(ZeroDivisionError):
        device.bind(steps(PythonLaunch(prepare))).run()


@pytest.mark.parametrize("is_python", [False, True])
def test_repeats_are_unrolled(device: Device, is_python: bool) -> None:
    rows = Tensors(device, 8)
    for index in range(5):
        rows[index] = 10**index
    add = python_addition if is_python else addition
    left, right = (rows.handle(index).within(0).within(BLOCK) for index in (0, 1))
    program = device.bind(steps(Repeat(1, (Repeat(4, (add(left, right),)),))))
    for expected in (11111, 12345):
        program.run()
        assert rows[4][0] == expected


@pytest.mark.parametrize("from_end", [False, True])
def test_limited_repeats_follow_the_number_of_each_run(device: Device, from_end: bool) -> None:
    rows = Tensors(device, 6)
    limit, total = rows.handle(5), rows.handle(4)
    for index in range(4):
        rows[index] = 10**index
    body = addition(rows.handle(0).within(BLOCK), total.within(0))
    program = device.bind(steps(Repeat(4, (body,), limit, from_end)))
    expected = 0
    for number in (2, 0, 3, 9):
        device.write(limit, np.array([number], np.int64))
        program.run()
        powers = [10**index for index in range(4)]
        expected += sum(powers[max(4 - number, 0) :] if from_end else powers[:number])
        assert rows[4][0] == expected


class Joined(Arguments):
    """Arguments of `join`: rows to add, each with a weight and an offset."""

    count: Integer
    scale: Real
    rows: Table
    weights: Float32s
    output: Float32s


@native
def join(call: Joined) -> None:
    """Add two rows, with weights."""
    for i in elements_of_task(call.count):
        first, second = float32s(call.rows, 0), float32s(call.rows, 1)
        shift = integer(call.rows, 2)
        total = first[i] * call.weights[0] + second[i] * call.weights[1]
        call.output[i] = call.scale * total + shift


def test_tables_and_constants_are_on_the_card(device: Device) -> None:
    rows = Tensors(device)
    rows[0], rows[1] = 1, 2
    arguments = Joined(
        count=5,
        scale=0.5,
        rows=(rows.handle(0), rows.handle(1), 7),
        weights=np.array([10, 100], np.float32),
        output=rows.handle(2),
    )
    program = device.bind(steps(LoopLaunch(join, arguments, 1)))
    for _ in range(3):
        program.run()
        assert rows[2] == [0.5 * 210 + 7] * 5
        rows[2] = 0


@pytest.mark.parametrize("card", [{"uncapturable": ["add_loop"]}], indirect=True)
def test_a_failed_capture_is_run_launch_by_launch_with_a_note(card: Any, device: Device) -> None:
    rows = Tensors(device)
    rows[0] = 1
    program = device.bind(steps(addition(rows.handle(0), rows.handle(1))))
    for run in (1, 2, 3):
        program.run()
        assert rows[1] == [run] * 5
    (note,) = device.take_notes()
    # The end of the capture fails as well, and says less.
    assert note.startswith(
        "1 launches cannot be captured as a graph: cudaErrorStreamCaptureUnsupported"
    )
    assert device.take_notes() == []


def test_other_threads_work_during_a_capture(
    card: Any, device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = Tensors(device)
    rows[0] = 1
    program = device.bind(steps(addition(rows.handle(0), rows.handle(1))))
    program.run()
    import cupy

    end = cupy.cuda.Stream.end_capture
    seen: list[list[float]] = []

    def end_later(stream: Any) -> Any:
        """Read and write from another thread before a capture ends."""

        def work() -> None:
            seen.append(rows[1])
            rows[2] = 7

        other = threading.Thread(target=work)
        other.start()
        other.join()
        return end(stream)

    monkeypatch.setattr(cupy.cuda.Stream, "end_capture", end_later)
    for run in (2, 3):
        program.run()
        assert rows[1] == [run] * 5
    assert (seen, rows[2]) == ([[1] * 5], [7] * 5)
    assert device.take_notes() == []
    assert card.counts["capture"] == 1


@pytest.mark.parametrize("card", [{"fails": ["add_loop"]}], indirect=True)
def test_an_illegal_address_names_the_launch(device: Device) -> None:
    rows = Tensors(device)
    program = device.bind(steps(addition(rows.handle(0), rows.handle(1))))
    with pytest.raises(InternalError, match=r"^step0 failed on gpu:0: cudaErrorIllegalAddress"):
        program.run()


FAILS_LATER = {"fails": ["add_loop"], "healthy": 1}


@pytest.mark.parametrize("card", [FAILS_LATER], indirect=True)
def test_an_illegal_address_in_a_graph_says_how_to_find_the_launch(device: Device) -> None:
    rows = Tensors(device)
    program = device.bind(steps(addition(rows.handle(0), rows.handle(1))))
    program.run()
    program.run()
    with pytest.raises(InternalError) as raised:
        device.synchronise()
    said = str(raised.value)
    assert said.startswith("earlier work failed on gpu:0: cudaErrorIllegalAddress")
    assert said.endswith("an earlier launch failed: MXRUN_DEBUG=1 waits for each, and names it")


@pytest.mark.parametrize("card", [FAILS_LATER], indirect=True)
def test_in_debug_mode_every_run_names_the_launch(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MXRUN_DEBUG", "1")
    rows = Tensors(device)
    program = device.bind(steps(addition(rows.handle(0), rows.handle(1))))
    program.run()
    with pytest.raises(InternalError, match=r"^step0 failed on gpu:0: cuda\w+: [^;]+$"):
        program.run()


@pytest.mark.parametrize("card", [{"memory": 1 << 20}], indirect=True)
def test_memory_that_the_card_lacks_is_refused(device: Device) -> None:
    kept = device.allocate(1 << 19)
    with pytest.raises(UserError) as raised:
        device.allocate(1 << 20)
    said = str(raised.value)
    assert "out of memory: the arena on gpu:0 needs 1,048,576 bytes" in said
    assert "at most 524,288 bytes, which are free of 1,048,576" in said
    assert kept.nbytes == 1 << 19


def test_freed_memory_is_free_again(card: Any, device: Device) -> None:
    before = card.free()
    rows = Tensors(device)
    program = device.bind(steps(addition(rows.handle(0), rows.handle(1))))
    program.run()
    assert card.free() < before
    del program, rows
    assert card.free() == before


def test_watched_and_timed_runs_are_the_same_calls(device: Device) -> None:
    rows = Tensors(device)
    rows[0] = 1
    first, second = rows.handle(0), rows.handle(1)
    program = device.bind(steps(addition(first, second), python_addition(first, second)))
    seen: list[tuple[int, list[float]]] = []
    program.run_watched(lambda index: seen.append((index, rows[1])))
    assert seen == [(0, [1] * 5), (1, [2] * 5)]
    timed = program.timed()
    timed.run()
    assert rows[1] == [4] * 5
    assert (timed.begin <= timed.end).all()
    assert timed.end[0] == timed.begin[1]


def test_mirrors_are_copied_on_demand(device: Device) -> None:
    rows = Tensors(device)
    rows[1] = 3
    mirror = device.tensor(rows.handle(1), ROW).mirror()
    assert mirror.array.tolist() == [3] * 5
    mirror.array[:] = 4
    assert rows[1] == [3] * 5
    mirror.store()
    mirror.array[:] = 5
    assert rows[1] == [4] * 5
    mirror.load()
    assert mirror.array.tolist() == [4] * 5


def test_an_array_changes_once_its_store_has_read_it(card: Any, device: Device) -> None:
    rows = Tensors(device)
    mirror = device.tensor(rows.handle(1), ROW).mirror()
    raw = mirror.array
    waits = card.counts["synchronize"]
    for value in (1, 2):
        mirror.array[:] = value
        mirror.store()
    assert card.counts["synchronize"] == waits
    # Without the event that `array` waits for, the copy would read what comes after it.
    raw[:] = 3
    assert rows[1] == [3] * 5
    mirror.array[:] = 4
    mirror.store()
    mirror.array[:] = 5
    assert rows[1] == [4] * 5


def test_copies_keep_their_host_memory(device: Device) -> None:
    rows = Tensors(device)
    for index in range(4):
        mirror = device.tensor(rows.handle(index), ROW).mirror()
        mirror.array[:] = index
        mirror.store()
        del mirror
    assert [rows[index] for index in range(4)] == [[index] * 5 for index in range(4)]


def test_memory_is_zero_and_can_be_filled(device: Device) -> None:
    rows = Tensors(device)
    assert rows[3] == [0] * 5
    device.fill(rows.memory, BLOCK, BLOCK + 8, 0xFF)
    assert np.isnan(rows[1][:2]).all()
    assert rows[1][2:] == [0] * 3


def test_launches_of_other_devices_are_refused(device: Device) -> None:
    with pytest.raises(InternalError, match="a card cannot run ProviderLaunch"):
        device.bind(steps(ProviderLaunch()))


def test_another_thread_uses_the_same_card(device: Device) -> None:
    rows = Tensors(device)
    rows[0] = 1
    program = device.bind(steps(addition(rows.handle(0), rows.handle(1))))
    found: list[list[float]] = []

    def work() -> None:
        program.run()
        found.append(rows[1])

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [[1] * 5]


def test_devices_of_one_card_work_in_the_order_in_which_they_are_asked(
    card: Any, device: Device
) -> None:
    """A store of keys and the arrays of a network have devices of their own."""
    kind = device_kind("gpu")
    other = kind(kind.describe(0, 1))
    rows = Tensors(device)
    rows[0] = 1
    first, second, third = (rows.handle(index) for index in range(3))
    programs = (
        device.bind(steps(addition(first, second))),
        other.bind(steps(addition(second, third))),
    )
    waits = None
    for run, total in enumerate((1, 3, 6)):
        for program in programs:
            program.run()
        if run:
            # Nothing has waited, so that the first one's work is not done yet.
            assert card.counts["synchronize"] == waits
        assert other.read(third, ROW).tolist() == [total] * 5
        waits = card.counts["synchronize"]
    assert card.counts["module load"] == 1
