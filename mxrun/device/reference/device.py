"""The reference device: the NumPy bodies of the operators, one after the other.

It needs no library but NumPy, runs wherever Python does, and is the smallest complete example of a
device.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from mxrun.base.device import REFERENCE, DeviceDescription
from mxrun.base.errors import InternalError
from mxrun.base.tensor import TensorSpec
from mxrun.device.host_memory import Arena, array_of
from mxrun.device.interface import Device, Program, ProgramStep
from mxrun.device.registry import register_device
from mxrun.operator.launch import Handle, Launch, PythonLaunch, Repeat

Array = npt.NDArray[Any]
Body = Callable[[], None]


@register_device(REFERENCE)
class ReferenceDevice(Device):
    """NumPy on the process's own memory."""

    has_host_memory = True
    compiles_host_loops = False
    makes_temporaries = True

    @classmethod
    def describe(cls, index: int, threads: int) -> DeviceDescription:
        """Return the description; NumPy itself decides how many threads it uses."""
        return DeviceDescription(REFERENCE, index, library=f"NumPy {np.__version__}")

    @classmethod
    def largest_team(cls) -> int:
        """Return a number above any team that a config asks for."""
        return 1 << 16

    def allocate(self, nbytes: int) -> Arena:
        """Return an arena that ends at an inaccessible page."""
        return Arena(nbytes)

    def write(self, handle: Handle, value: Array) -> None:
        """Copy a row-major array to the bytes at `handle`."""
        target = array_of(handle, TensorSpec((value.nbytes,), "uint8"))
        np.copyto(target, value.reshape(-1).view(np.uint8))

    def read(self, handle: Handle, spec: TensorSpec) -> Array:
        """Return a copy of a tensor in plain layout."""
        return np.array(self.view(handle, spec))

    def view(self, handle: Handle, spec: TensorSpec) -> Array:
        """Return a tensor's memory as a writable array."""
        return array_of(handle, spec)

    def bind(self, steps: Sequence[ProgramStep]) -> ReferenceProgram:
        """Return the program of the bodies; raises InternalError for any other launch."""
        return ReferenceProgram(
            [
                (step.name, body)
                for step in steps
                for launch in step.launches
                for body in _bodies(launch, ())
            ]
        )


def _bodies(launch: Launch, iterations: tuple[int, ...]) -> Iterator[Body]:
    """Yield the functions that a launch runs, for given iterations of the enclosing loops."""
    if isinstance(launch, Repeat):
        for iteration in range(launch.count):
            for each in launch.program:
                yield from _bodies(each, (*iterations, iteration))
    elif isinstance(launch, PythonLaunch):
        yield launch.prepare(lambda handle, spec: array_of(handle, spec, iterations))
    else:
        raise InternalError(f"the reference device cannot run {type(launch).__name__}")


class ReferenceProgram(Program):
    """Bodies in order, each with the name of its step."""

    def __init__(self, bodies: Sequence[tuple[str, Body]]) -> None:
        self.names = tuple(name for name, _ in bodies)
        self._bodies = tuple(body for _, body in bodies)

    def run(self) -> None:
        """Run every body once."""
        for body in self._bodies:
            body()

    def run_watched(self, after: Callable[[int], None]) -> None:
        """Run the bodies; `after` receives the number of each."""
        for index, body in enumerate(self._bodies):
            body()
            after(index)

    def temporary_bytes(self) -> int:
        """Run once and return the most bytes that the temporaries of one body take."""
        tracemalloc.start()
        try:
            peak = 0
            for body in self._bodies:
                before, _ = tracemalloc.get_traced_memory()
                tracemalloc.reset_peak()
                # The memory may hold anything, such as zeros as divisors.
                with np.errstate(all="ignore"):
                    body()
                peak = max(peak, tracemalloc.get_traced_memory()[1] - before)
            return peak
        finally:
            tracemalloc.stop()
