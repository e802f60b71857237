"""Interface of a device: it owns memory, moves tensors in and out, and runs programs.

Everything above a device is written against this file. A program is a list of launches; tensors are
handles. A new kind of device is a subclass of `Device`, registered under the name by which configs
select it (`context: NAME` or `context: NAME:INDEX`):

    @register_device("toy")
    class ToyDevice(Device):
        ...

It must implement `describe`, `allocate`, `write`, `read` and `bind`; everything else has a default.
`mxrun/device/reference/` is the smallest complete example.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import numpy.typing as npt

from mxrun.base.dataclass import dataclass
from mxrun.base.device import DeviceDescription
from mxrun.base.dtype import numpy_dtype
from mxrun.base.errors import InternalError, UserError
from mxrun.base.machine import Machine
from mxrun.base.tensor import PLAIN, TensorSpec
from mxrun.codegen.arguments import Arguments
from mxrun.codegen.host_loop import HostLoop
from mxrun.codegen.jit import NativeFunction
from mxrun.operator.launch import Handle, Launch, Memory, TensorPlace

Array = npt.NDArray[Any]
Nanoseconds = npt.NDArray[np.int64]


@dataclass(frozen=True)
class ProgramStep:
    """Launches of one step of a plan; `name` is used in messages and profiles."""

    name: str
    launches: tuple[Launch, ...]


@dataclass(frozen=True)
class ProgramCost:
    """Overhead of one run of a program, without the work of its launches.

    calls: number of calls. seconds: time of all calls if none does its work.
    """

    calls: int
    seconds: float


class Program(ABC):
    """Launches bound to a device; running it allocates nothing and decides nothing.

    names: the step of each call, in the order of execution; a step may make several calls, or none.
    """

    names: tuple[str, ...]

    @abstractmethod
    def run(self) -> None:
        """Run every call once, or start them in order: `read` and `synchronise` wait for them.

        Raises InternalError naming the step of a call that fails; an exception of a Python body
        propagates unchanged.
        """

    @abstractmethod
    def run_watched(self, after: Callable[[int], None]) -> None:
        """Run the calls one by one, the debug mode; `after` receives each one's number."""

    def timed(self) -> TimedProgram:
        """Return the same calls with a clock reading after each."""
        return TimedProgram(self)

    def cost(self) -> ProgramCost:
        """Measure the overhead of a run; zero where it is not known."""
        return ProgramCost(len(self.names), 0.0)

    def temporary_bytes(self) -> int:
        """Run once and return the most bytes of temporaries at a time, which no plan contains."""
        return 0

    def overheads(self, peaks: Machine) -> Mapping[str, float]:
        """Return the seconds that the calls of each step take at least, whatever they compute."""
        return dict.fromkeys(self.names, 0.0)


class TimedProgram:
    """Program whose every call is timed.

    begin, end [calls]: nanoseconds of the monotonic clock between which each call last ran.
    """

    def __init__(self, program: Program) -> None:
        self.begin: Nanoseconds = np.zeros(len(program.names), np.int64)
        self.end: Nanoseconds = np.zeros(len(program.names), np.int64)
        self._program = program

    def run(self) -> None:
        """Run every call once and record its times."""
        clock = time.monotonic_ns
        last = clock()

        def after(index: int) -> None:
            nonlocal last
            self.begin[index] = last
            self.end[index] = last = clock()

        self._program.run_watched(after)


MakeSteps = Callable[[Sequence[Handle]], Sequence[ProgramStep]]
"""Returns the steps of a movable program for tensors at given handles."""


class MovableProgram(ABC):
    """Steps on a number of contiguous tensors that are at other places in every run."""

    @abstractmethod
    def run(self, places: Sequence[TensorPlace]) -> None:
        """Run every launch once, or start them in order, on tensors at `places`.

        The caller keeps their memory alive until the launches have finished. Not reentrant: one
        thread at a time may run a program. Raises InternalError for places of another number or in
        another device's memory, and as `Program.run` does.
        """


def other_number(count: int, places: Sequence[TensorPlace]) -> InternalError:
    """Return the error of a movable program on `count` tensors for other places."""
    return InternalError(f"a program on {count} tensors was given {len(places)} places")


class ReboundProgram(MovableProgram):
    """Steps that are bound anew in every run."""

    def __init__(self, device: Device, make: MakeSteps, count: int) -> None:
        self._device, self._make, self._count = device, make, count

    def run(self, places: Sequence[TensorPlace]) -> None:
        """Bind the steps to tensors at `places` and run them."""
        if len(places) != self._count:
            raise other_number(self._count, places)
        handles = [Handle(place.memory, place.offset) for place in places]
        self._device.bind(self._make(handles)).run()


class Device(ABC):
    """One device of some kind; the constructor opens it.

    description: what kernels are prepared for. has_host_memory: whether `view` works.
    makes_temporaries: whether its programs allocate temporaries outside of plans, which
    `Program.temporary_bytes` measures.
    """

    has_host_memory: bool = False
    makes_temporaries: bool = False

    def __init__(self, description: DeviceDescription) -> None:
        self.description = description

    # -- what there is, before a device is opened ----------------------------------------------

    @classmethod
    def count(cls) -> int:
        """Return the number of devices of this kind here."""
        return 1

    @classmethod
    def cores(cls) -> int:
        """Return how many threads can compute at the same time."""
        return 1

    @classmethod
    def model(cls, index: int) -> str:
        """Return the name of the hardware of device `index`, as its system reports it."""
        return ""

    @classmethod
    def libraries(cls) -> Mapping[str, str | None]:
        """Return the version of each library that this kind uses; None for one that is missing."""
        return {}

    @classmethod
    def missing(cls) -> str:
        """Return what is missing for full speed here, as a note for the user; empty if nothing."""
        return ""

    @classmethod
    def recorded(cls, source: str) -> type[Device]:
        """Return this kind with a device that is not here, for which runs are only planned.

        source: its name, or a file of its properties. Raises UserError for a kind without any.
        """
        raise UserError(f"no devices of the kind {cls.__name__} are recorded")

    @classmethod
    def memory_bytes(cls, index: int) -> tuple[int, int] | None:
        """Return the free bytes of a device's own memory, and all of them; None for the host's."""
        return None

    @classmethod
    def unusable(cls, index: int) -> str:
        """Return why device `index`, which is here, cannot be used; empty if it can."""
        return ""

    @classmethod
    def adopting(cls, plans: Mapping[str, str]) -> AbstractContextManager[None]:
        """Return a context in which kernels are prepared with plans of a library made before.

        plans: the records of another run's launches (`ProviderLaunch.record`).
        """
        return nullcontext()

    @classmethod
    @abstractmethod
    def describe(cls, index: int, threads: int) -> DeviceDescription:
        """Return the description of device `index` on which `threads` may compute."""

    # -- memory --------------------------------------------------------------------------------

    @abstractmethod
    def allocate(self, nbytes: int) -> Memory:
        """Return zeroed memory, freed with the last reference to it; UserError if too little."""

    def unbacked(self, nbytes: int) -> Memory:
        """Return memory for programs that are bound but never run; a host device needs none."""
        return self.allocate(nbytes)

    @abstractmethod
    def write(self, handle: Handle, value: Array) -> None:
        """Copy a row-major array to the bytes at `handle`."""

    @abstractmethod
    def read(self, handle: Handle, spec: TensorSpec) -> Array:
        """Return a copy of a tensor in plain layout."""

    def view(self, handle: Handle, spec: TensorSpec) -> Array:
        """Return a tensor's memory as a writable array; host devices only, else InternalError.

        The array keeps the memory alive only where `allocate` says so.
        """
        raise InternalError(f"the memory of {self.description.family} cannot be viewed")

    def adopt(self, array: Array) -> Memory:
        """Return the memory of a contiguous array, which it keeps alive; host devices only, else
        InternalError.
        """
        raise InternalError(f"{self.description.family} cannot use the host's memory")

    def host_array(self, spec: TensorSpec) -> Array:
        """Return a new array of the host, of memory from which the device copies fastest."""
        return np.zeros(spec.shape, numpy_dtype(spec.dtype))

    def fill(self, memory: Memory, begin: int, end: int, byte: int) -> None:
        """Set the bytes of a range of memory."""
        self.write(Handle(memory, begin), np.full(end - begin, byte, np.uint8))

    def tensor(self, handle: Handle, spec: TensorSpec) -> DeviceTensor:
        """Return the tensor at `handle`."""
        return DeviceTensor(self, handle, spec)

    def mirror(self, handle: Handle, spec: TensorSpec) -> Mirror:
        """Return an array that is written or read again and again, such as an io slot."""
        if self.has_host_memory:
            return Mirror(self.view(handle, spec))
        return CopiedMirror(self.tensor(handle, spec))

    # -- programs ------------------------------------------------------------------------------

    @abstractmethod
    def bind(self, steps: Sequence[ProgramStep]) -> Program:
        """Return the program that runs the steps' launches in order.

        Raises InternalError for a launch that this device cannot run.
        """

    def bind_movable(self, make: MakeSteps, count: int, short: bool = False) -> MovableProgram:
        """Return the program of the steps that `make` returns for `count` tensors.

        Where two of the tensors may overlap in a run, `make` must return steps that allow it. A
        program that is `short`, a few microseconds, may run without releasing the interpreter
        lock: to get it back from a busy thread takes a thousand times longer.
        """
        return ReboundProgram(self, make, count)

    def synchronise(self) -> None:
        """Wait until everything that was started has finished."""
        return

    def take_notes(self) -> list[str]:
        """Return notes for the user that programs have left since the last call."""
        return []

    # -- speeds --------------------------------------------------------------------------------

    def peaks(self, remeasure: bool = False) -> Machine | None:
        """Return peak figures, measured once per machine; None if this kind has none."""
        return None

    def known_peaks(self) -> Machine | None:
        """Return the peak figures if they have been measured before, else None."""
        return None

    def identity(self) -> str:
        """Return a text of everything that times on this device depend on.

        Measured times are cached under it, so devices with the same text share them.
        """
        return repr(self.description)

    # -- host code beside the device -----------------------------------------------------------

    def host_loop(self, function: NativeFunction, arguments: Arguments, elements: int) -> HostLoop:
        """Return a loop on host arrays over `elements`; a host device may run it on its threads."""
        return HostLoop(function, arguments)


@dataclass(frozen=True)
class DeviceTensor:
    """Tensor in a device's memory, in plain layout."""

    device: Device
    handle: Handle
    spec: TensorSpec

    def write(self, value: npt.ArrayLike) -> None:
        """Copy a value of the tensor's shape, or a scalar for every element, into the tensor.

        Raises InternalError unless the layout is plain.
        """
        if self.spec.layout != PLAIN:
            raise InternalError(f"{self.spec} has no plain layout; it cannot be written")
        if self.device.has_host_memory:
            self.device.view(self.handle, self.spec)[...] = value
            return
        array = np.empty(self.spec.shape, numpy_dtype(self.spec.dtype))
        array[...] = value
        self.device.write(self.handle, array)

    def read(self) -> Array:
        """Return a copy of the tensor."""
        return self.device.read(self.handle, self.spec)

    def values(self) -> Array:
        """Return the present values for reading: a view where the device has one, else a copy."""
        if self.device.has_host_memory:
            return self.device.view(self.handle, self.spec)
        return self.read()

    def mirror(self) -> Mirror:
        """Return an array that is written or read again and again, such as an io slot."""
        return self.device.mirror(self.handle, self.spec)


class Mirror:
    """Host array with a tensor's values: the tensor's own memory, which needs no copies."""

    def __init__(self, array: Array) -> None:
        self._array = array

    @property
    def array(self) -> Array:
        """The array, which may be changed; waits as `wait` does."""
        self.wait()
        return self._array

    def wait(self) -> None:
        """Wait until `store` has read the array, so that it may be changed."""
        return

    def load(self) -> None:
        """Copy the tensor to the array."""
        return

    def store(self) -> None:
        """Copy the array to the tensor."""
        return


class CopiedMirror(Mirror):
    """Host array beside a tensor in another memory."""

    def __init__(self, tensor: DeviceTensor) -> None:
        super().__init__(tensor.read())
        self._tensor = tensor

    def load(self) -> None:
        """Copy the tensor to the array."""
        np.copyto(self.array, self._tensor.read())

    def store(self) -> None:
        """Copy the array to the tensor."""
        self._tensor.device.write(self._tensor.handle, self.array)
