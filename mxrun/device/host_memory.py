"""Memory in the process's own address space: the arena of the CPU and the reference device."""

from __future__ import annotations

import ctypes
import math
import mmap
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from mxrun.base.dtype import numpy_dtype
from mxrun.base.errors import Diagnostic, InternalError, UserError
from mxrun.base.tensor import PLAIN, Shape, TensorSpec
from mxrun.operator.launch import Handle, Memory

Body = Callable[[], None]
Array = npt.NDArray[Any]

UNBACKED_ADDRESS = 1 << 40
"""Address in the unused middle of the address space."""

_PROT_NONE = 0
# Mappings from this size on use huge pages. Sums of 12 MB tensors take 0.85 to 0.95 ms with them
# and 1.05 to 1.6 without, on one core of a virtual machine, whose page walks are slow.
_MIN_HUGE_BYTES = 4 << 20
# Addresses that each movable tensor gets for offsets before the first run.
_MOVABLE_BYTES = 1 << 36


class HostMemory(Memory):
    """Memory at `address`; `owner` holds the reference that keeps it alive."""

    def __init__(self, address: int, nbytes: int, owner: Any = None) -> None:
        self.address, self.nbytes, self._owner = address, nbytes, owner

    @classmethod
    def of(cls, array: Array) -> HostMemory:
        """Return the memory of an array."""
        return cls(array.ctypes.data, array.nbytes, array)

    def array(self, offset: int, spec: TensorSpec) -> Array:
        """Return the tensor at `offset` as a writable array, without a copy.

        Raises InternalError unless its layout is plain. The memory must outlive the array.
        """
        if spec.layout != PLAIN:
            raise InternalError(f"{spec} has no plain layout; it needs a reorder")
        return array_at(self.address + offset, spec.shape, spec.dtype)


class MovableMemory(HostMemory):
    """Stand-in for the memory of tensor `number` of a program that runs at changing places.

    address: that of the tensor in the present run; before the first, one that is never accessed.
    """

    def __init__(self, number: int) -> None:
        super().__init__(UNBACKED_ADDRESS + number * _MOVABLE_BYTES, _MOVABLE_BYTES)
        self.number = number


class Arena(HostMemory):
    """Zeroed memory of `nbytes`, a multiple of 64; an access to the next byte faults.

    Arrays taken from it hold a reference to the mapping. Raises UserError if there is too little
    memory.
    """

    def __init__(self, nbytes: int) -> None:
        page = mmap.PAGESIZE
        body = -(-nbytes // page) * page
        self._mapping = _mapped(body + page)
        self._start = body - nbytes
        self.mapping_address = ctypes.addressof(ctypes.c_char.from_buffer(self._mapping))
        self.mapping_bytes = body
        super().__init__(self.mapping_address + self._start, nbytes, self._mapping)
        protect(self.mapping_address + body, page, _PROT_NONE)

    def array(self, offset: int, spec: TensorSpec) -> Array:
        """Return the tensor at `offset` as a writable array, without a copy."""
        if spec.layout != PLAIN:
            raise InternalError(f"{spec} has no plain layout; it needs a reorder")
        count = math.prod(spec.shape)
        flat = np.frombuffer(self._mapping, numpy_dtype(spec.dtype), count, self._start + offset)
        return flat.reshape(spec.shape)


def address_of(handle: Handle, iterations: tuple[int, ...] = ()) -> int:
    """Return a tensor's address in the given iterations of the enclosing loops.

    Raises InternalError for another device's memory.
    """
    memory = handle.memory
    if not isinstance(memory, HostMemory):
        raise InternalError(f"the host cannot access {type(memory).__name__}")
    return memory.address + handle.offset + _moved(handle, iterations)


def array_of(handle: Handle, spec: TensorSpec, iterations: tuple[int, ...] = ()) -> Array:
    """Return a tensor as a writable array, without a copy, in the given iterations.

    Raises InternalError for another device's memory and unless the layout is plain.
    """
    memory = handle.memory
    if not isinstance(memory, HostMemory):
        raise InternalError(f"the host cannot access {type(memory).__name__}")
    return memory.array(handle.offset + _moved(handle, iterations), spec)


def limited_body(limit: Handle, rank: int, iterations: tuple[int, ...], body: Body) -> Body:
    """Return a body that does nothing unless the number at `limit` is above `rank`."""
    number = array_of(limit, TensorSpec((1,), "int64"), iterations)

    def run() -> None:
        if rank < number[0]:
            body()

    return run


def _moved(handle: Handle, iterations: tuple[int, ...]) -> int:
    moves = zip(iterations, handle.strides, strict=False)
    return sum(iteration * stride for iteration, stride in moves)


def protect(address: int, nbytes: int, rights: int) -> None:
    """Set the rights of memory pages (mprotect(2)); raises InternalError if that fails."""
    if _mprotect()(address, nbytes, rights):
        raise InternalError(f"mprotect failed: error {ctypes.get_errno()}")


@cache
def _mprotect() -> Callable[[int, int, int], int]:
    """Return the C function, opened once: opening takes as long as mapping the memory."""
    function = ctypes.CDLL(None, use_errno=True).mprotect
    function.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    return function


def array_at(address: int, shape: Shape, dtype: str) -> Array:
    """Return a writable array over unowned memory: `shape` elements of `dtype` at `address`."""
    element = numpy_dtype(dtype)
    count = math.prod(shape)
    if count == 0:
        return np.empty(shape, element)
    memory = (ctypes.c_char * (count * element.itemsize)).from_address(address)
    array: Array = np.ndarray(shape, element, buffer=memoryview(memory))
    return array


def _mapped(nbytes: int) -> mmap.mmap:
    try:
        mapping = mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        if nbytes >= _MIN_HUGE_BYTES and hasattr(mmap, "MADV_HUGEPAGE"):
            # A kernel without huge pages refuses, and nothing depends on them.
            with suppress(OSError):
                mapping.madvise(mmap.MADV_HUGEPAGE)
        return mapping
    except (OSError, OverflowError) as error:
        raise UserError(
            Diagnostic(
                f"out of memory: the arena needs {nbytes:,} bytes",
                hint="lower data.batch_size, or allow the process more memory",
            )
        ) from error
