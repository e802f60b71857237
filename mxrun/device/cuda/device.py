"""NVIDIA's cards as a device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from mxrun.base.device import DeviceDescription
from mxrun.base.dtype import numpy_dtype
from mxrun.base.errors import InternalError
from mxrun.base.once import once
from mxrun.base.tensor import PLAIN, TensorSpec
from mxrun.device.cuda import library
from mxrun.device.cuda.card import Card
from mxrun.device.cuda.memory import CudaMemory, PinnedMirror, address_of
from mxrun.device.cuda.modules import Modules
from mxrun.device.cuda.program import CudaProgram
from mxrun.device.cuda.queue import Queue
from mxrun.device.host_memory import UNBACKED_ADDRESS
from mxrun.device.interface import Array, Device, Mirror, Program, ProgramStep
from mxrun.operator.launch import Handle, Memory


class CudaDevice(Device):
    """Card with one stream, on which everything runs in order."""

    def __init__(self, description: DeviceDescription) -> None:
        super().__init__(description)
        self._queue = Queue(description.index)
        self._modules = Modules(self._queue)
        self._notes: list[str] = []

    @classmethod
    def count(cls) -> int:
        """Return the number of cards; 0 if none can be used."""
        return 0 if library.problem() else int(library.load().runtime.getDeviceCount())

    @classmethod
    def model(cls, index: int) -> str:
        """Return the card's name."""
        return card(index).name

    @classmethod
    def libraries(cls) -> Mapping[str, str | None]:
        """Return CuPy's version."""
        packages = library.installed()
        return {
            "cupy": ", ".join(f"{name} {version}" for name, version in packages.items()) or None
        }

    @classmethod
    def missing(cls) -> str:
        """Return why no card can be used; empty if one can."""
        return library.problem()

    @classmethod
    def unusable(cls, index: int) -> str:
        """Return why a card is too old for the kernels; empty if it is not."""
        return card(index).too_old()

    @classmethod
    def describe(cls, index: int, threads: int) -> DeviceDescription:
        """Return the description of a card; raises UserError if it cannot be used."""
        return card(index).description(index)

    def allocate(self, nbytes: int) -> CudaMemory:
        """Return zeroed memory of the card."""
        return CudaMemory.zeroed(self._queue, nbytes)

    def unbacked(self, nbytes: int) -> CudaMemory:
        """Return a range of addresses without memory."""
        return CudaMemory(UNBACKED_ADDRESS, nbytes)

    def write(self, handle: Handle, value: Array) -> None:
        """Copy a row-major array to the bytes at `handle`."""
        self._queue.use()
        self._queue.write(address_of(handle), np.ascontiguousarray(value))

    def read(self, handle: Handle, spec: TensorSpec) -> Array:
        """Return a copy of a tensor in plain layout."""
        if spec.layout != PLAIN:
            raise InternalError(f"{spec} has no plain layout; it needs a reorder")
        array = np.empty(spec.shape, numpy_dtype(spec.dtype))
        self._queue.use()
        self._queue.read(address_of(handle), array)
        return array

    def fill(self, memory: Memory, begin: int, end: int, byte: int) -> None:
        """Set the bytes of a range of memory."""
        self._queue.use()
        self._queue.fill(address_of(Handle(memory, begin)), byte, end - begin)

    def mirror(self, handle: Handle, spec: TensorSpec) -> Mirror:
        """Return a pinned array, which the card copies by itself."""
        return PinnedMirror(self._queue, handle, spec)

    def bind(self, steps: Sequence[ProgramStep]) -> Program:
        """Return the program, whose tables and constants are on the card from now on."""
        return CudaProgram(self._queue, self._modules, steps, self._notes.append)

    def synchronise(self) -> None:
        """Wait until everything that was started has finished."""
        self._queue.use()
        self._queue.wait()

    def take_notes(self) -> list[str]:
        """Return what kept programs from being captured."""
        notes = [*self._notes]
        del self._notes[: len(notes)]
        return notes

    def identity(self) -> str:
        """Return the card's model and number, and the versions of driver and CuPy."""
        driver = library.load().runtime.driverGetVersion()
        return f"{self.description} driver {driver} {library.installed()}"


@once
def card(index: int) -> Card:
    """Return a card of this machine; raises UserError if none can be used."""
    return Card.of(library.load().runtime.getDeviceProperties(index))
