"""Devices whose memory is the process's own."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from mxrun.base.tensor import TensorSpec
from mxrun.device.host_memory import Arena, HostMemory, array_of
from mxrun.device.interface import Device
from mxrun.operator.launch import Handle, Memory

Array = npt.NDArray[Any]


class HostDevice(Device):
    """Device whose programs run on arenas; a view keeps its arena alive."""

    has_host_memory = True

    def allocate(self, nbytes: int) -> Arena:
        """Return an arena that ends at an inaccessible page."""
        return Arena(nbytes)

    def write(self, handle: Handle, value: Array) -> None:
        """Copy a row-major array to the bytes at `handle`."""
        np.copyto(_bytes(handle, value.nbytes), value.reshape(-1).view(np.uint8))

    def read(self, handle: Handle, spec: TensorSpec) -> Array:
        """Return a copy of a tensor in plain layout."""
        return np.array(array_of(handle, spec))

    def view(self, handle: Handle, spec: TensorSpec) -> Array:
        """Return a tensor's memory as a writable array."""
        return array_of(handle, spec)

    def adopt(self, array: Array) -> HostMemory:
        """Return the memory of a contiguous array, which it keeps alive."""
        return HostMemory.of(array)

    def fill(self, memory: Memory, begin: int, end: int, byte: int) -> None:
        """Set the bytes of a range of memory."""
        _bytes(Handle(memory, begin), end - begin)[:] = byte


def _bytes(handle: Handle, nbytes: int) -> npt.NDArray[np.uint8]:
    return array_of(handle, TensorSpec((nbytes,), "uint8"))
