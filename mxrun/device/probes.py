"""Probes: whether a device does what programs ask of it, one small question after the other.

They are in the order in which faults should be looked for: a probe uses only what earlier ones have
shown.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from mxrun.base.dataclass import dataclass
from mxrun.base.dtype import numpy_dtype
from mxrun.base.errors import MxrunError
from mxrun.base.tensor import TensorSpec
from mxrun.device.interface import Device, ProgramStep
from mxrun.operator.launch import Handle, Launch, LoopLaunch, PythonLaunch, Views
from mxrun.operator.native_kernel import Addition, add_loop

Array = npt.NDArray[Any]
# Enough for many blocks of threads, and not a multiple of any vector.
_ROW = TensorSpec((100_003,))
# Runs of a program: launch by launch, captured, and replayed twice.
_RUNS = 4
# Inputs that are written one after the other while earlier work may still run.
_WRITES = 32


class ProbeFailure(MxrunError):
    """Failure of a device to do what a probe asks of it."""


@dataclass(frozen=True)
class Probe:
    """Question to a device.

    name: one or two words. promise: what the device must do. further: where to look if it does not.
    ask: raises MxrunError if it does not.
    """

    name: str
    promise: str
    further: str
    ask: Callable[[Device], None]


def _memory(device: Device) -> None:
    memory = device.allocate(_ROW.nbytes)
    handle, values = Handle(memory, 0), _values(1)
    _require_equal("new memory", device.read(handle, _ROW), np.zeros_like(values))
    device.write(handle, values)
    _require_equal("what was written", device.read(handle, _ROW), values)
    device.fill(memory, 4, 8, 0xFF)
    filled = values.copy()
    filled.view(np.uint8)[4:8] = 0xFF
    _require_equal("memory after a fill of 4 bytes", device.read(handle, _ROW), filled)


def _mirrors(device: Device) -> None:
    handle = Handle(device.allocate(_ROW.nbytes), 0)
    mirror = device.mirror(handle, _ROW)
    for seed in range(_WRITES):
        mirror.array[...] = _values(seed)
        mirror.store()
        _require_equal("what a mirror stored", device.read(handle, _ROW), _values(seed))
    device.write(handle, _values(99))
    mirror.load()
    _require_equal("what a mirror loaded", mirror.array, _values(99))


def _module(device: Device) -> None:
    """Run one compiled loop once, which waits for it."""
    rows = ProbedRows(device, 2)
    rows.write(0, _values(1))
    rows.write(1, _values(2))
    device.bind([ProgramStep("addition", (rows.addition(0, 1),))]).run()
    _require_equal("a sum", rows.read(1), _values(2) + _values(1))


def _capture(device: Device) -> None:
    rows = ProbedRows(device, 3)
    replay(device, (rows.addition(0, 1), rows.addition(1, 2)), rows.check_chain)


def _body(device: Device) -> None:
    rows = ProbedRows(device, 3)
    steps = [
        ProgramStep("before", (rows.addition(0, 1),)),
        ProgramStep("body", (rows.python_addition(1, 2),)),
        ProgramStep("after", (rows.addition(2, 0),)),
    ]
    program, expected = device.bind(steps), [_values(1), _values(2), _values(3)]
    for index, values in enumerate(expected):
        rows.write(index, values)
    for number in range(_RUNS):
        program.run()
        for source, target in ((0, 1), (1, 2), (2, 0)):
            expected[target] = expected[target] + expected[source]
        for index, values in enumerate(expected):
            _require_equal(f"row {index} after run {number + 1}", rows.read(index), values)


def _order(device: Device) -> None:
    """Write inputs and start programs without waiting in between."""
    rows = ProbedRows(device, 2)
    program = device.bind([ProgramStep("addition", (rows.addition(0, 1),))])
    mirror, total = device.mirror(rows.handle(0), _ROW), np.zeros(_ROW.shape, np.float32)
    for seed in range(_WRITES):
        mirror.array[...] = _values(seed)
        mirror.store()
        program.run()
        total = total + _values(seed)
    _require_equal(f"the sum of {_WRITES} inputs", rows.read(1), total)


def _events(device: Device) -> None:
    rows = ProbedRows(device, 3)
    launches = rows.addition(0, 1), rows.addition(1, 2)
    timed = device.bind([ProgramStep("two additions", launches)]).timed()
    for _ in range(_RUNS):
        timed.run()
    took = timed.end - timed.begin
    if not ((took >= 0).all() and took.sum() > 0 and (timed.begin[1:] >= timed.end[:-1]).all()):
        raise ProbeFailure(f"the times of two launches are {took.tolist()} ns")


PROBES: tuple[Probe, ...] = (
    Probe(
        "memory",
        "memory is zeroed, and holds what is written to it",
        "`nvidia-smi -q -d ECC,MEMORY`: errors of the memory, and other programs on the card",
        _memory,
    ),
    Probe(
        "pinned copies",
        "arrays beside tensors are copied both ways",
        "limits of locked memory: `ulimit -l`, and of the container",
        _mirrors,
    ),
    Probe(
        "module",
        "a compiled loop is loaded and computes",
        "the versions of the driver and of CuPy in `mxrun info`: the driver compiles the kernels",
        _module,
    ),
    Probe(
        "capture",
        "a program gives the same results launch by launch, captured and replayed",
        "what cannot be captured runs launch by launch: slower, with the same results",
        _capture,
    ),
    Probe(
        "body on the host",
        "a Python body between two launches sees what ran before it",
        "networks without a step in NumPy do not need this: the note at the start of training",
        _body,
    ),
    Probe(
        "order",
        "inputs may be written while earlier work runs",
        "with MXRUN_DEBUG=1 every launch is waited for: if that helps, an event is missing",
        _order,
    ),
    Probe(
        "events",
        "each launch is timed",
        "only --profile and bench need times: training does not",
        _events,
    ),
)


def replay(
    device: Device,
    launches: Sequence[Launch],
    check: Callable[[Callable[[], None], str], None],
) -> None:
    """Check what launches compute when they are started one by one, captured and replayed.

    check: is given a function that runs them, and the name of the run. Raises ProbeFailure if they
    were not captured, and what `check` raises.
    """
    program = device.bind([ProgramStep("probe", tuple(launches))])
    device.take_notes()
    for number in range(_RUNS):
        check(program.run, f"run {number + 1}")
    if notes := device.take_notes():
        raise ProbeFailure("; ".join(notes))


class ProbedRows:
    """Rows of numbers in one memory of a device."""

    def __init__(self, device: Device, count: int) -> None:
        # A multiple of every alignment.
        self._stride = -(-_ROW.nbytes // 4096) * 4096
        self._device, self._memory = device, device.allocate(count * self._stride)

    def handle(self, index: int) -> Handle:
        return Handle(self._memory, index * self._stride)

    def write(self, index: int, values: Array) -> None:
        self._device.write(self.handle(index), values)

    def read(self, index: int) -> Array:
        return self._device.read(self.handle(index), _ROW)

    def addition(self, source: int, target: int) -> Launch:
        """Return the launch of a compiled loop that adds one row to another."""
        call = Addition(count=_ROW.elements, source=self.handle(source), target=self.handle(target))
        return LoopLaunch(
            add_loop, call, self._device.description.tasks_for_elements(_ROW.elements)
        )

    def python_addition(self, source: int, target: int) -> Launch:
        """Return the launch of a body that does the same."""

        def prepare(views: Views) -> Callable[[], None]:
            one, other = views(self.handle(source), _ROW), views(self.handle(target), _ROW)
            return lambda: _add(one, other)

        return PythonLaunch(prepare)

    def check_chain(self, run: Callable[[], None], which: str) -> None:
        """Run additions of row 0 to row 1 and of that to row 2."""
        given: Sequence[Array] = [_values(seed) for seed in (1, 2, 3)]
        for index, values in enumerate(given):
            self.write(index, values)
        run()
        middle = given[1] + given[0]
        _require_equal(f"the first sum of {which}", self.read(1), middle)
        _require_equal(f"the second sum of {which}", self.read(2), given[2] + middle)


def _add(one: Array, other: Array) -> None:
    np.add(other, one, out=other)


def _values(seed: int) -> Array:
    random = np.random.default_rng(seed)
    return random.standard_normal(_ROW.shape).astype(numpy_dtype(_ROW.dtype))


def _require_equal(what: str, got: Array, want: Array) -> None:
    """Raise ProbeFailure naming the first element with other bits."""
    wrong = np.flatnonzero(got.view(np.uint32) != want.view(np.uint32))
    if len(wrong):
        first = int(wrong[0])
        raise ProbeFailure(
            f"{what} has other bits at {first:,}, and at {len(wrong):,} of {want.size:,} elements: "
            f"expected {want[first]}, got {got[first]}"
        )
