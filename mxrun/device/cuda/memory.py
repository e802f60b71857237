"""Memory of a card, and pinned memory of the host, which the card copies from and to."""

from __future__ import annotations

import ctypes
import math
from typing import Any

import numpy as np
import numpy.typing as npt

from mxrun.base.dtype import numpy_dtype
from mxrun.base.errors import InternalError
from mxrun.base.tensor import PLAIN, TensorSpec
from mxrun.device.cuda.queue import PinnedPlace, Queue
from mxrun.device.interface import Mirror
from mxrun.operator.launch import Handle, Memory

Array = npt.NDArray[Any]


class CudaMemory(Memory):
    """Block at `address` in a card's memory; `owner` keeps it allocated."""

    def __init__(self, address: int, nbytes: int, owner: Any = None) -> None:
        self.address, self.nbytes, self._owner = address, nbytes, owner

    @classmethod
    def zeroed(cls, queue: Queue, nbytes: int) -> CudaMemory:
        """Allocate zeroed memory; raises UserError if the card has too little.

        CUDA aligns it to 256 bytes at least.
        """
        queue.use()
        with queue.named("the arena", nbytes):
            memory = queue.cupy.memory.Memory(max(nbytes, 1))
        queue.fill(memory.ptr, 0, nbytes)
        return cls(memory.ptr, nbytes, memory)


def address_of(handle: Handle, iterations: tuple[int, ...] = ()) -> int:
    """Return a tensor's address on the card, in the given iterations of the enclosing loops.

    Raises InternalError for another device's memory.
    """
    memory = handle.memory
    if not isinstance(memory, CudaMemory):
        raise InternalError(f"a card cannot access {type(memory).__name__}")
    moves = zip(iterations, handle.strides, strict=False)
    return memory.address + handle.offset + sum(number * stride for number, stride in moves)


class PinnedMemory:
    """Host memory that is not paged, from and to which a card copies by itself.

    CuPy gives it to others once nothing refers to it, also while a card copies.
    """

    def __init__(self, queue: Queue, nbytes: int) -> None:
        queue.use()
        with queue.named("pinned host memory", nbytes):
            block = queue.cupy.pinned_memory.alloc_pinned_memory(max(nbytes, 1))
        self.address, self.nbytes = int(block.ptr), nbytes
        self._bytes = (ctypes.c_char * max(nbytes, 1)).from_address(self.address)
        # Arrays refer to these bytes, and so keep the block.
        self._bytes.owner = block  # type: ignore[attr-defined]

    def place(self, offset: int) -> PinnedPlace:
        """Return the place of a byte."""
        return PinnedPlace(self, self.address + offset)

    def array(self, offset: int, spec: TensorSpec) -> Array:
        """Return a tensor at `offset` as a writable array.

        Raises InternalError unless its layout is plain.
        """
        if spec.layout != PLAIN:
            raise InternalError(f"{spec} has no plain layout; it needs a reorder")
        count = math.prod(spec.shape)
        content = memoryview(self._bytes)
        flat: Array = np.frombuffer(content, numpy_dtype(spec.dtype), count, offset)
        return flat.reshape(spec.shape)


class PinnedMirror(Mirror):
    """Pinned host array beside a tensor on a card."""

    def __init__(self, queue: Queue, handle: Handle, spec: TensorSpec) -> None:
        self._queue, self._handle, self._spec = queue, handle, spec
        self._pinned = PinnedMemory(queue, spec.nbytes)
        self._stored, self._is_stored = queue.event(), True
        super().__init__(self._pinned.array(0, spec))
        self.load()

    def load(self) -> None:
        """Copy the tensor to the array."""
        queue = self._queue
        queue.use()
        queue.copy_out(self._pinned.place(0), address_of(self._handle), self._spec.nbytes)
        queue.wait("a program, or the copy of a result,")
        self._is_stored = True

    def store(self) -> None:
        """Start to copy the array to the tensor."""
        queue = self._queue
        queue.use()
        queue.copy_in(address_of(self._handle), self._pinned.place(0), self._spec.nbytes)
        self._stored.record(queue.stream)
        self._is_stored = False

    def wait(self) -> None:
        """Wait until the last store has read the array."""
        if not self._is_stored:
            with self._queue.named("a program, or the copy of an input,"):
                self._stored.synchronize()
            self._is_stored = True
