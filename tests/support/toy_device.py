"""Toy device: a plugin with the kind `toy`, whose memory is bytes that no array can view.

It runs the NumPy bodies of operators. A body gets arrays in a buffer of the host; before each run
its tensors are copied there, and afterwards those that have changed are copied back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from mxrun.base.device import DeviceDescription, NumpyBodies
from mxrun.base.dtype import numpy_dtype
from mxrun.base.errors import InternalError, UserError
from mxrun.base.tensor import PLAIN, TensorSpec
from mxrun.device.interface import Device, Program, ProgramStep
from mxrun.device.registry import register_device
from mxrun.operator.launch import Handle, Launch, Memory, PythonLaunch, Repeat

Array = npt.NDArray[Any]
# What runs once; it is given the number of the present iteration of each enclosing Repeat.
Call = Callable[[tuple[int, ...]], None]


class ToyMemory(Memory):
    """Memory of the toy device; its contents enter and leave it only as copies."""

    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes
        self._contents = bytearray(nbytes)

    def load(self, begin: int, nbytes: int) -> bytes:
        """Return a copy of `nbytes` bytes from `begin` on."""
        self._check(begin, nbytes)
        return bytes(self._contents[begin : begin + nbytes])

    def store(self, begin: int, contents: bytes) -> None:
        """Copy bytes into the memory, from `begin` on."""
        self._check(begin, len(contents))
        self._contents[begin : begin + len(contents)] = contents

    def _check(self, begin: int, nbytes: int) -> None:
        if not 0 <= begin <= begin + nbytes <= self.nbytes:
            raise InternalError(f"bytes {begin} to {begin + nbytes} of {self.nbytes} on a toy")


class Window:
    """Array of one tensor for a Python body: a part of a buffer that stands for its memory."""

    def __init__(self, handle: Handle, spec: TensorSpec, buffer: Array) -> None:
        if spec.layout != PLAIN or handle.pitch:
            raise InternalError(f"a toy has no array of {spec} with a pitch of {handle.pitch}")
        self._handle, self._memory = handle, memory_of(handle)
        self._bytes = buffer[handle.offset : handle.offset + spec.nbytes]
        self._before = self._bytes.copy()
        self.array = self._bytes.view(numpy_dtype(spec.dtype)).reshape(spec.shape)

    def load(self, iterations: tuple[int, ...]) -> None:
        """Copy the tensor's bytes in this iteration to the array."""
        contents = self._memory.load(self._begin(iterations), self._bytes.size)
        self._before[:] = self._bytes[:] = np.frombuffer(contents, np.uint8)

    def store(self, iterations: tuple[int, ...]) -> None:
        """Copy the array back, if the body has changed it: nothing says which tensors it writes."""
        if not np.array_equal(self._bytes, self._before):
            self._memory.store(self._begin(iterations), self._bytes.tobytes())

    def _begin(self, iterations: tuple[int, ...]) -> int:
        moves = zip(self._handle.strides, iterations, strict=True)
        return self._handle.offset + sum(stride * number for stride, number in moves)


def memory_of(handle: Handle) -> ToyMemory:
    """Return the memory of a handle; raises InternalError if another device owns it."""
    if not isinstance(handle.memory, ToyMemory):
        raise InternalError("a toy was given the memory of another device")
    return handle.memory


class ToyProgram(Program):
    """Calls in order; an error of a body propagates unchanged."""

    def __init__(self, steps: Sequence[ProgramStep]) -> None:
        # Tensors of one memory that move together share a buffer, and so overlap in it if they do.
        self._buffers: dict[tuple[ToyMemory, tuple[int, ...]], Array] = {}
        self.names = tuple(step.name for step in steps for _ in step.launches)
        self._calls = [self._bound(launch) for step in steps for launch in step.launches]

    def run(self) -> None:
        """Run every call once."""
        for call in self._calls:
            call(())

    def run_watched(self, after: Callable[[int], None]) -> None:
        """Run the calls one by one; `after` receives the number of each."""
        for number, call in enumerate(self._calls):
            call(())
            after(number)

    def _bound(self, launch: Launch) -> Call:
        if isinstance(launch, PythonLaunch):
            return self._python(launch)
        if not isinstance(launch, Repeat):
            raise InternalError(f"a toy cannot run a {type(launch).__name__}")
        count, calls = launch.count, [self._bound(each) for each in launch.program]

        def repeat(iterations: tuple[int, ...]) -> None:
            for number in range(count):
                for call in calls:
                    call((*iterations, number))

        return repeat

    def _python(self, launch: PythonLaunch) -> Call:
        """Return the call of a Python body: its tensors in, the body, its tensors out."""
        windows: list[Window] = []

        def views(handle: Handle, spec: TensorSpec) -> Array:
            memory = memory_of(handle)
            together = memory, handle.strides
            if together not in self._buffers:
                self._buffers[together] = np.zeros(memory.nbytes, np.uint8)
            windows.append(Window(handle, spec, self._buffers[together]))
            return windows[-1].array

        body = launch.prepare(views)

        def call(iterations: tuple[int, ...]) -> None:
            for each in windows:
                each.load(iterations)
            body()
            for each in windows:
                each.store(iterations)

        return call


@register_device("toy")
class ToyDevice(Device):
    """One of two toys."""

    @classmethod
    def count(cls) -> int:
        """Return the number of toys."""
        return 2

    @classmethod
    def describe(cls, index: int, threads: int) -> DeviceDescription:
        """Return a description for which the NumPy bodies of operators are chosen."""
        return DeviceDescription("toy", index, NumpyBodies.ROUNDED)

    def allocate(self, nbytes: int) -> ToyMemory:
        """Return zeroed memory."""
        try:
            return ToyMemory(nbytes)
        except MemoryError as error:
            raise UserError(f"a toy has no {nbytes:,} bytes left") from error

    def write(self, handle: Handle, value: Array) -> None:
        """Copy a row-major array to the bytes at `handle`."""
        memory_of(handle).store(handle.offset, value.tobytes())

    def read(self, handle: Handle, spec: TensorSpec) -> Array:
        """Return a copy of a tensor."""
        contents = bytearray(memory_of(handle).load(handle.offset, spec.nbytes))
        return np.frombuffer(contents, numpy_dtype(spec.dtype)).reshape(spec.shape)

    def bind(self, steps: Sequence[ProgramStep]) -> Program:
        """Return the program of the steps' launches."""
        return ToyProgram(steps)
