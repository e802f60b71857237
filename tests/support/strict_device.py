"""Device whose memory has no rights outside its own calls, as a plugin: `context: strict`.

It is the CPU, with the same kernels and the same bits, but any access past the device's interface
is a segmentation fault: reads and writes of the arena's pages are permitted only within `write`,
`read`, `fill` and the run of a program. It has no views, like a device with memory of its own.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt

from mxrun.base.errors import InternalError
from mxrun.base.tensor import TensorSpec
from mxrun.device.cpu.device import CpuDevice
from mxrun.device.cpu.tape import Tape
from mxrun.device.host_memory import Arena, array_of, protect
from mxrun.device.interface import MakeSteps, MovableProgram, Program, ProgramStep, TimedProgram
from mxrun.device.registry import register_device
from mxrun.operator.launch import Handle, Memory, TensorPlace

Array = npt.NDArray[Any]

_NONE, _BOTH = 0, mmap.PROT_READ | mmap.PROT_WRITE


@register_device("strict")
class StrictDevice(CpuDevice):
    """The CPU behind locked memory."""

    has_host_memory = False

    def __init__(self, description: Any) -> None:
        super().__init__(description)
        self._arenas: list[Arena] = []

    def allocate(self, nbytes: int) -> Arena:
        """Return an arena without rights."""
        arena = super().allocate(nbytes)
        self._arenas.append(arena)
        self._set_rights(arena, _NONE)
        return arena

    def write(self, handle: Handle, value: Array) -> None:
        """Copy an array to the bytes at `handle`."""
        with self.unlocked():
            super().write(handle, value)

    def read(self, handle: Handle, spec: TensorSpec) -> Array:
        """Return a copy of a tensor."""
        with self.unlocked():
            return np.array(array_of(handle, spec))

    def view(self, handle: Handle, spec: TensorSpec) -> Array:
        """Refuse."""
        raise InternalError("the memory of the strict device cannot be viewed")

    def fill(self, memory: Memory, begin: int, end: int, byte: int) -> None:
        """Set the bytes of a range of memory."""
        with self.unlocked():
            super().fill(memory, begin, end, byte)

    def bind(self, steps: Sequence[ProgramStep]) -> Any:
        """Return the CPU's tape, which runs with rights."""
        return _StrictProgram(self, super().bind(steps))

    def bind_movable(self, make: MakeSteps, count: int, short: bool = False) -> Any:
        """Return the CPU's program, which runs with rights."""
        return _StrictMovable(self, super().bind_movable(make, count, short))

    @contextmanager
    def unlocked(self) -> Iterator[None]:
        """Context manager that gives rights to all memory."""
        for arena in self._arenas:
            self._set_rights(arena, _BOTH)
        try:
            yield
        finally:
            for arena in self._arenas:
                self._set_rights(arena, _NONE)

    def _set_rights(self, arena: Arena, rights: int) -> None:
        if arena.mapping_bytes:
            protect(arena.mapping_address, arena.mapping_bytes, rights)


class _StrictMovable(MovableProgram):
    def __init__(self, device: StrictDevice, program: MovableProgram) -> None:
        self._device, self._program = device, program

    def run(self, places: Sequence[TensorPlace]) -> None:
        with self._device.unlocked():
            self._program.run(places)


class _StrictProgram(Program):
    def __init__(self, device: StrictDevice, tape: Tape) -> None:
        self.names, self._device, self._tape = tape.names, device, tape

    def run(self) -> None:
        with self._device.unlocked():
            self._tape.run()

    def run_watched(self, after: Callable[[int], None]) -> None:
        def locked_after(index: int) -> None:
            for arena in self._device._arenas:
                self._device._set_rights(arena, _NONE)
            after(index)
            for arena in self._device._arenas:
                self._device._set_rights(arena, _BOTH)

        with self._device.unlocked():
            self._tape.run_watched(locked_after)

    def timed(self) -> TimedProgram:
        return TimedProgram(self)
