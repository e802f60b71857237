"""Device that runs the loops of a GPU's plans on emulated threads: `context: emulated`.

Its description is a card's, so that plans have the kernels of cards; its memory is the host's.
Bodies in NumPy run as on the CPU.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from gpu_emulator.emulated import emulated
from mxrun.base.device import DeviceDescription
from mxrun.base.tensor import TensorSpec
from mxrun.codegen.arguments import Arguments, slot_of
from mxrun.codegen.gpu_kernel import GpuKernel
from mxrun.codegen.host_loop import HostLoop, loop_on_one_thread
from mxrun.codegen.jit import NativeFunction, require_arguments
from mxrun.device.cpu.device import CpuDevice
from mxrun.device.cpu.program import CpuProgram
from mxrun.device.cpu.tape import entries_of
from mxrun.device.cuda.card import Card
from mxrun.device.cuda.recorded_cards import recorded_card
from mxrun.device.host_memory import HostMemory
from mxrun.device.interface import ProgramStep
from mxrun.device.registry import register_device
from mxrun.operator.launch import Handle, Launch, LoopLaunch, PythonLaunch, Repeat, Views

# The card whose plans run.
_CARD = "h100"
_BYTE = TensorSpec((1,), "uint8")


@register_device("emulated")
class EmulatedDevice(CpuDevice):
    """One emulated card.

    order: of the threads. is_checked: whether accesses to memory are checked. executed: launches by
    the names of their functions. kernels: all that were executed. changes: of the modules of some
    functions, for mutants.
    """

    order: ClassVar[str] = "forward"
    is_checked: ClassVar[bool] = False
    executed: ClassVar[Counter[str]] = Counter()
    kernels: ClassVar[set[GpuKernel]] = set()
    changes: ClassVar[Mapping[str, Callable[[str], str]]] = {}

    @classmethod
    def describe(cls, index: int, threads: int) -> DeviceDescription:
        """Return the description of a card, without properties from which cuDNN makes plans."""
        return replace(Card.recorded(recorded_card(_CARD).properties).description(index), card="")

    def bind(self, steps: Sequence[ProgramStep]) -> CpuProgram:
        """Return the tape of all launches, of which loops are run by the emulator."""
        own = [replace(step, launches=tuple(map(_emulating, step.launches))) for step in steps]
        return CpuProgram(entries_of(own, 1, self.description.index), own)

    def bind_movable(self, make: Any, count: int, short: bool = False) -> Any:
        """Refuse: programs are bound to fixed places alone."""
        raise NotImplementedError

    def host_loop(self, function: NativeFunction, arguments: Arguments, elements: int) -> HostLoop:
        """Return a loop of the host, on one thread."""
        return loop_on_one_thread(function, arguments, elements)


def _emulating(launch: Launch) -> Launch:
    """Return a launch whose loops are bodies that run the emulator."""
    if isinstance(launch, Repeat):
        return replace(launch, program=tuple(map(_emulating, launch.program)))
    if isinstance(launch, LoopLaunch):
        return PythonLaunch(lambda views: _emulation(launch, views))
    return launch


def _emulation(launch: LoopLaunch, views: Views) -> Callable[[], None]:
    """Return the function that runs a loop's kernel on its tensors' places."""
    require_arguments(launch.function, launch.arguments)
    kernel, given = launch.function.gpu_kernel, launch.arguments
    values = list(_values(given))
    keeps: list[npt.NDArray[np.int64]] = []
    memory = {id(each.memory): each.memory for each in _handles(values)}
    ranges = [(each.address, each.address + each.nbytes) for each in memory.values()]
    ranges += [(a.ctypes.data, a.ctypes.data + a.nbytes) for a in _arrays(values)]

    def slot(value: Any) -> int:
        if isinstance(value, Handle):
            return int(views(replace(value, pitch=0), _BYTE).ctypes.data)
        if isinstance(value, tuple):
            # One slot at least, so that an empty table has an address.
            keeps.append(np.array([*map(slot, value), 0], np.int64))
            ranges.append((keeps[-1].ctypes.data, keeps[-1].ctypes.data + keeps[-1].nbytes))
            return int(keeps[-1].ctypes.data)
        return slot_of(value)

    floats = [kind == "float32" for kind in kernel.parameters]
    is_map = isinstance(given, tuple)
    slots = [
        slot(float(value) if is_float and not is_map else value)
        for value, is_float in zip(values, floats, strict=False)
    ]
    name = getattr(getattr(launch.function, "body", None), "__qualname__", "map")

    def run() -> None:
        EmulatedDevice.executed[name] += 1
        EmulatedDevice.kernels.add(kernel)
        made = emulated(kernel, EmulatedDevice.is_checked, EmulatedDevice.changes.get(name), name)
        made.run(slots, launch.tasks, ranges, EmulatedDevice.order)

    # What the addresses are of.
    run.owners = keeps, values  # type: ignore[attr-defined]
    return run


def _values(given: Arguments | tuple[Any, ...]) -> Iterator[Any]:
    if isinstance(given, tuple):
        yield from given
    else:
        yield from (getattr(given, name) for name in type(given).kinds())


def _flat(values: Sequence[Any]) -> Iterator[Any]:
    for value in values:
        yield from _flat(value) if isinstance(value, tuple) else (value,)


def _handles(values: Sequence[Any]) -> Iterator[Any]:
    for value in _flat(values):
        if isinstance(value, Handle) and isinstance(value.memory, HostMemory):
            yield value


def _arrays(values: Sequence[Any]) -> Iterator[npt.NDArray[Any]]:
    for value in _flat(values):
        if isinstance(value, np.ndarray):
            yield value
