"""The reference device: the NumPy bodies of the operators, one after the other.

It proves the kernels of other devices, needs no library but NumPy, and is the smallest complete
example of a device. Loading of data and planning of memory are the same compiled loops on every
device.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np

from mxrun.base.device import REFERENCE, DeviceDescription, NumpyBodies
from mxrun.base.errors import InternalError
from mxrun.device.host_device import HostDevice
from mxrun.device.host_memory import Body, array_of, limited_body
from mxrun.device.interface import Program, ProgramStep
from mxrun.operator.launch import Launch, PythonLaunch, Repeat
from mxrun.runtime.numpy_threads import matrix_library


class ReferenceDevice(HostDevice):
    """NumPy on the process's own memory."""

    makes_temporaries = True

    @classmethod
    def describe(cls, index: int, threads: int) -> DeviceDescription:
        """Return the description; all bodies run on one thread."""
        library = ", ".join(filter(None, (f"NumPy {np.__version__}", matrix_library())))
        return DeviceDescription(REFERENCE, index, NumpyBodies.ROUNDED, threads, library=library)

    def bind(self, steps: Sequence[ProgramStep]) -> ReferenceProgram:
        """Return the program of the bodies; raises InternalError for any other launch."""
        return ReferenceProgram(steps)


def _bodies(launch: Launch, iterations: tuple[int, ...]) -> Iterator[Body]:
    """Yield the functions that a launch runs, for given iterations of the enclosing loops."""
    if isinstance(launch, Repeat):
        for iteration in range(launch.count):
            for each in launch.program:
                bodies = _bodies(each, (*iterations, iteration))
                if launch.limit is not None:
                    rank = launch.rank(iteration)
                    limited = partial(limited_body, launch.limit, rank, iterations)
                    bodies = map(limited, bodies)
                yield from bodies
    elif isinstance(launch, PythonLaunch):
        yield launch.prepare(lambda handle, spec: array_of(handle, spec, iterations))
    else:
        raise InternalError(f"the reference device cannot run {type(launch).__name__}")


class ReferenceProgram(Program):
    """Bodies in order, each with the name of its step; the steps hold their memory."""

    def __init__(self, steps: Sequence[ProgramStep]) -> None:
        bodies = [
            (step.name, body)
            for step in steps
            for launch in step.launches
            for body in _bodies(launch, ())
        ]
        self.names = tuple(name for name, _ in bodies)
        self._bodies = tuple(body for _, body in bodies)
        self._steps = tuple(steps)

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
        started = not tracemalloc.is_tracing()
        if started:
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
            if started:
                tracemalloc.stop()
