"""The CPU as a device."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt

from mxrun.base.device import CPU, DeviceDescription
from mxrun.base.machine import Machine
from mxrun.base.tensor import TensorSpec
from mxrun.codegen.arguments import Arguments
from mxrun.codegen.host_loop import HostLoop
from mxrun.codegen.jit import NativeFunction
from mxrun.device.cpu import machine, team
from mxrun.device.cpu.binding import calls_of, start_call
from mxrun.device.cpu.onednn import library
from mxrun.device.cpu.program import CpuProgram
from mxrun.device.cpu.tape import TapeEntry
from mxrun.device.cpu.team_loop import TeamLoop
from mxrun.device.host_memory import Arena, HostMemory, array_of
from mxrun.device.interface import Device, ProgramStep
from mxrun.device.registry import register_device
from mxrun.operator.launch import Handle, Memory

Array = npt.NDArray[Any]

# Address in the unused middle of the address space.
_UNBACKED = 1 << 40


@register_device(CPU)
class CpuDevice(Device):
    """The processor's cores as one thread team, with oneDNN and compiled loops."""

    has_host_memory = True

    @classmethod
    def cores(cls) -> int:
        """Return the number of cores this process may use."""
        return team.available_cores()

    @classmethod
    def largest_team(cls) -> int:
        """Return the OpenMP runtime's largest team."""
        return team.largest_team()

    @classmethod
    def team_limit(cls) -> str:
        """Return what limits the largest team."""
        return "what OMP_THREAD_LIMIT or libgomp allows"

    @classmethod
    def model(cls, index: int) -> str:
        """Return the processor's name."""
        return machine.processor_model()

    @classmethod
    def libraries(cls) -> Mapping[str, str | None]:
        """Return oneDNN's version, and the OpenMP runtime."""
        return {
            "onednn": library.version() if library.load() is not None else None,
            "openmp": "libgomp" if team.openmp() is not None else None,
        }

    @classmethod
    def missing(cls) -> str:
        """Return why oneDNN is missing; empty if it is there."""
        why = library.reason()
        return f"{why}; the layers run on NumPy, which is slower" if why else ""

    @classmethod
    def describe(cls, index: int, threads: int) -> DeviceDescription:
        """Return the description, with oneDNN's version and instruction set."""
        found = library.load()
        instructions = "" if found is None else found.instruction_set
        return DeviceDescription(CPU, index, threads, instructions, library.version())

    def allocate(self, nbytes: int) -> Arena:
        """Return an arena that ends at an inaccessible page."""
        return Arena(nbytes)

    def unbacked(self, nbytes: int) -> HostMemory:
        """Return a range of addresses without memory."""
        return HostMemory(_UNBACKED, nbytes)

    def write(self, handle: Handle, value: Array) -> None:
        """Copy an array to the bytes at `handle`."""
        np.copyto(_bytes(handle, value.nbytes), value.reshape(-1).view(np.uint8))

    def read(self, handle: Handle, spec: TensorSpec) -> Array:
        """Return a copy of a tensor in plain layout."""
        return np.array(self.view(handle, spec))

    def view(self, handle: Handle, spec: TensorSpec) -> Array:
        """Return a tensor's memory as a writable array."""
        return array_of(handle, spec)

    def fill(self, memory: Memory, begin: int, end: int, byte: int) -> None:
        """Set the bytes of a range of memory."""
        _bytes(Handle(memory, begin), end - begin)[:] = byte

    def bind(self, steps: Sequence[ProgramStep]) -> CpuProgram:
        """Return the tape of all launches; its first call sets the team's size."""
        threads = self.description.threads
        entries = [
            TapeEntry(step.name, call)
            for step in steps
            for launch in step.launches
            for call in calls_of(launch, threads)
        ]
        if entries:
            entries[:0] = [TapeEntry(entries[0].name, call) for call in start_call(threads)]
        return CpuProgram(entries, threads, steps)

    @contextmanager
    def timing(self) -> Iterator[None]:
        """Context manager that sets the calling thread's team."""
        with team.team(self.description.threads):
            yield

    def peaks(self, remeasure: bool = False) -> Machine:
        """Return the machine's peak figures for this team."""
        return machine.machine_of(self.description.threads, remeasure)

    def known_peaks(self) -> Machine | None:
        """Return the peak figures if they have been measured before."""
        return machine.known_machine(self.description.threads)

    def identity(self) -> str:
        """Return a description of the machine and of oneDNN."""
        return machine.description(self.description.threads)

    def host_loop(self, function: NativeFunction, arguments: Arguments, elements: int) -> HostLoop:
        """Return a loop that the team runs, so that each thread finds its share in its cache."""
        return TeamLoop(function, arguments, self.description.team_for_elements(elements))


def _bytes(handle: Handle, nbytes: int) -> npt.NDArray[np.uint8]:
    return array_of(handle, TensorSpec((nbytes,), "uint8"))
