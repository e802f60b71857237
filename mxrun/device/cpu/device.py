"""The CPU as a device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mxrun.base.device import CPU, ONE_THREAD, DeviceDescription, NumpyBodies
from mxrun.base.machine import Machine
from mxrun.codegen.arguments import Arguments
from mxrun.codegen.host_loop import HostLoop
from mxrun.codegen.jit import NativeFunction
from mxrun.codegen.processor import kind
from mxrun.device.cpu import machine
from mxrun.device.cpu.call import TaskThreads
from mxrun.device.cpu.movable import CpuMovableProgram
from mxrun.device.cpu.onednn import library
from mxrun.device.cpu.pool import available_cores
from mxrun.device.cpu.pooled_loop import PooledLoop
from mxrun.device.cpu.program import CpuProgram
from mxrun.device.cpu.tape import entries_of
from mxrun.device.host_device import HostDevice
from mxrun.device.host_memory import UNBACKED_ADDRESS, HostMemory
from mxrun.device.interface import MakeSteps, ProgramStep


class CpuDevice(HostDevice):
    """The processor's cores with a pool of threads, oneDNN and compiled loops."""

    @classmethod
    def count(cls) -> int:
        """Return the number of cores: each CPU device has a pool of its own."""
        return available_cores()

    @classmethod
    def cores(cls) -> int:
        """Return the number of cores this process may use."""
        return available_cores()

    @classmethod
    def model(cls, index: int) -> str:
        """Return the processor's name."""
        return machine.processor_model()

    @classmethod
    def libraries(cls) -> Mapping[str, str | None]:
        """Return oneDNN's version."""
        return {"onednn": library.version() if library.load() is not None else None}

    @classmethod
    def missing(cls) -> str:
        """Return why oneDNN is missing; empty if it is there."""
        why = library.reason()
        return f"{why}; convolutions and poolings run on NumPy, which is slower" if why else ""

    @classmethod
    def describe(cls, index: int, threads: int) -> DeviceDescription:
        """Return the description, with oneDNN's version and instructions, and the loops' kind."""
        found = library.load()
        instructions = "" if found is None else found.instruction_set
        return DeviceDescription(
            CPU,
            index,
            # Conversions around a body take longer than bfloat16 saves in it.
            NumpyBodies.FLOAT32,
            threads,
            instructions,
            f"{library.version()}, loops for {kind()}",
        )

    def unbacked(self, nbytes: int) -> HostMemory:
        """Return a range of addresses without memory."""
        return HostMemory(UNBACKED_ADDRESS, nbytes)

    def bind(self, steps: Sequence[ProgramStep]) -> CpuProgram:
        """Return the tape of all launches."""
        entries = entries_of(steps, self.description.threads, self.description.index)
        return CpuProgram(entries, steps)

    def bind_movable(self, make: MakeSteps, count: int, short: bool = False) -> CpuMovableProgram:
        """Return the program, prepared once."""
        return CpuMovableProgram(make, count, self.description, short)

    def peaks(self, remeasure: bool = False) -> Machine:
        """Return the machine's peak figures for as many threads."""
        return machine.machine_of(self.description.threads, remeasure)

    def known_peaks(self) -> Machine | None:
        """Return the peak figures if they have been measured before."""
        return machine.known_machine(self.description.threads)

    def identity(self) -> str:
        """Return a description of the machine and of oneDNN."""
        return machine.description(self.description.threads)

    def host_loop(self, function: NativeFunction, arguments: Arguments, elements: int) -> HostLoop:
        """Return a loop that threads share, each of which finds its tasks in its cache."""
        threads = TaskThreads(self.description.threads, self.description.index)
        return PooledLoop(function, arguments, ONE_THREAD.tasks_for_elements(elements), threads)
