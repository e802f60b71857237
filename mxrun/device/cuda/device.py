"""NVIDIA's cards as a device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager

import numpy as np

from mxrun.base.device import DeviceDescription
from mxrun.base.dtype import numpy_dtype
from mxrun.base.errors import Diagnostic, InternalError, UserError
from mxrun.base.machine import Machine
from mxrun.base.once import cached_property, once
from mxrun.base.tensor import PLAIN, TensorSpec
from mxrun.device.cuda import library
from mxrun.device.cuda.card import Card
from mxrun.device.cuda.cudnn import library as cudnn
from mxrun.device.cuda.cudnn.plan import adopting, properties_of_card
from mxrun.device.cuda.memory import CudaMemory, PinnedMemory, PinnedMirror, address_of
from mxrun.device.cuda.modules import Modules
from mxrun.device.cuda.peaks import peaks_of
from mxrun.device.cuda.program import CudaProgram
from mxrun.device.cuda.queue import Queue, free_bytes, queue_of
from mxrun.device.cuda.recorded_cards import recorded_card
from mxrun.device.host_memory import UNBACKED_ADDRESS
from mxrun.device.interface import Array, Device, Mirror, Program, ProgramStep
from mxrun.operator.launch import Handle, Memory

# A machine of such cards.
_CARDS = 8


class CudaDevice(Device):
    """Card with one stream, on which everything runs in order, whichever object started it."""

    def __init__(self, description: DeviceDescription) -> None:
        super().__init__(description)
        self._notes: list[str] = []

    @cached_property
    def _queue(self) -> Queue:
        # Plans are made without it.
        return queue_of(self.description.index)

    @cached_property
    def _modules(self) -> Modules:
        return _modules_of(self.description.index)

    @classmethod
    def recorded(cls, source: str) -> type[Device]:
        """Return the kind with a card whose properties cuDNN has recorded: a name or a file."""
        return _recorded_device(source)

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
        """Return the versions of CuPy and cuDNN."""
        packages = (f"{name} {version}" for name, version in library.installed().items())
        found = cudnn.load()
        return {"cupy": ", ".join(packages) or None, "cudnn": found.version if found else None}

    @classmethod
    def missing(cls) -> str:
        """Return why no card can be used, or why cuDNN is missing; empty if neither is true."""
        why = cudnn.reason()
        without = (
            f"{why}; products and convolutions are mxrun's own, which are slower" if why else ""
        )
        return library.problem() or without

    @classmethod
    def memory_bytes(cls, index: int) -> tuple[int, int]:
        """Return the bytes of a card's memory that are free, and all of them."""
        return free_bytes(library.load(), index)

    @classmethod
    def unusable(cls, index: int) -> str:
        """Return why a card is too old for the kernels; empty if it is not."""
        return card(index).too_old()

    @classmethod
    def adopting(cls, plans: Mapping[str, str]) -> AbstractContextManager[None]:
        """Return a context in which cuDNN's plans are those of `plans`, as far as it has them."""
        return adopting(plans)

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

    def host_array(self, spec: TensorSpec) -> Array:
        """Return a pinned array."""
        return PinnedMemory(self._queue, spec.nbytes).array(0, spec)

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

    def peaks(self, remeasure: bool = False) -> Machine | None:
        """Return peak figures by the card's clocks; None where cuDNN is not there to read them."""
        return self.known_peaks()

    def known_peaks(self) -> Machine | None:
        """Return the same."""
        return peaks_of(self.description.card, {})

    def identity(self) -> str:
        """Return the card's model and number, and the versions of driver and CuPy."""
        driver = library.load().runtime.driverGetVersion()
        return f"{self.description} driver {driver} {library.installed()}"


@once
def _modules_of(index: int) -> Modules:
    """Return the kernels of a card of this process."""
    return Modules(queue_of(index))


@once
def card(index: int) -> Card:
    """Return a card of this machine; raises UserError if none can be used."""
    found = library.load().runtime.getDeviceProperties(index)
    return Card.of(found, "" if cudnn.load() is None else properties_of_card(index))


def _recorded_device(source: str) -> type[Device]:
    """Return the kind of device whose cards are all the recorded one.

    source: the name of a card, or a JSON file of properties with cuDNN's keys. Raises UserError for
    another name or file.
    """
    recorded = recorded_card(source)
    try:
        card = Card.recorded(recorded.properties)
    except (KeyError, TypeError, ValueError) as error:
        problem = f"{source} has no properties of a card: {error!r}"
        raise UserError(
            Diagnostic(problem, hint="`mxrun info --json` writes those of a card")
        ) from (error)

    class RecordedDevice(CudaDevice):
        """The card, which is planned for alone."""

        @classmethod
        def count(cls) -> int:
            """Return the number of cards."""
            return _CARDS

        @classmethod
        def model(cls, index: int) -> str:
            """Return the card's name."""
            return card.name

        @classmethod
        def missing(cls) -> str:
            """Return why cuDNN makes no plans; empty if it does."""
            return cudnn.reason()

        @classmethod
        def memory_bytes(cls, index: int) -> tuple[int, int]:
            """Return the bytes of the card's memory, as if all of them were free."""
            return card.memory_bytes, card.memory_bytes

        @classmethod
        def unusable(cls, index: int) -> str:
            """Return why the card is too old for the kernels; empty if it is not."""
            return card.too_old()

        @classmethod
        def describe(cls, index: int, threads: int) -> DeviceDescription:
            """Return the description of the card."""
            return card.description(index)

        def known_peaks(self) -> Machine | None:
            """Return the figures of the card's data sheet, or those that follow from properties."""
            return peaks_of(recorded.properties, recorded.peaks)

    return RecordedDevice
