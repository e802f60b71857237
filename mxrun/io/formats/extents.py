"""Extents of files, of which many are read by one call that holds no interpreter lock."""

from __future__ import annotations

import ctypes
import math
import threading
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mxrun.base.tensor import Shape
from mxrun.codegen.arguments import Arguments, Int64s, Integer
from mxrun.codegen.host_loop import HostLoop
from mxrun.codegen.intrinsics import call_address
from mxrun.codegen.jit import native
from mxrun.io.formats.byte_file import ByteFile

Int64 = NDArray[np.int64]
# Returns file numbers, first bytes and sizes of the extents of some numbers, [n] each.
FindExtents = Callable[[Int64], tuple[Int64, Int64, Int64]]
# Bytes of an extent up to which the cost of a call for it alone matters.
SMALL_BYTES = 1 << 14
# Every extent begins at a multiple of this in memory.
_ALIGNMENT = 64


class ExtentReads(Arguments):
    """Arguments of `read_extents`: [count] each.

    pread: address of the C function. address: of the memory; extent i is read to its bytes from
    i * pitch on. found: receives the numbers of bytes that were read, negative for an error.
    position: receives the number of the extent that is being read.
    """

    count: Integer
    pread: Integer
    address: Integer
    pitch: Integer
    descriptors: Int64s
    starts: Int64s
    sizes: Int64s
    found: Int64s
    position: Int64s


@native
def read_extents(call: ExtentReads) -> None:
    """Read extents of files, one after the other."""
    for i in range(call.count):
        call.position[0] = i
        call.found[i] = call_address(
            call.pread,
            call.descriptors[i],
            call.address + i * call.pitch,
            call.sizes[i],
            call.starts[i],
            0,
            0,
        )


def small_extents(files: Sequence[ByteFile], find: FindExtents, largest: int) -> FileExtents | None:
    """Return extents; None if they are read as fast one by one, or a file does not stay open.

    largest: number of bytes of the largest.
    """
    is_open = all(file.descriptor >= 0 for file in files)
    return FileExtents(files, find, largest) if is_open and largest <= SMALL_BYTES else None


class FileExtents:
    """Extents of open files, read many at a time; thread-safe, with memory for each thread."""

    def __init__(self, files: Sequence[ByteFile], find: FindExtents, largest: int) -> None:
        """`largest`: number of bytes of the largest extent. The files stay open."""
        self._files, self._find = tuple(files), find
        self._descriptors = np.array([file.descriptor for file in files], np.int64)
        self.pitch = -(-largest // _ALIGNMENT) * _ALIGNMENT
        self._local = threading.local()

    def read(self, numbers: Int64, position: Int64) -> tuple[NDArray[np.uint8], Int64, Int64]:
        """Read the extents of these numbers, [n].

        position: receives the position in `numbers` of the one that is being read, [1]. Returns the
        bytes, [n, pitch], which are valid until the thread's next call; the sizes; and the number
        of bytes read of each, which is not its size if the reading failed.
        """
        memory, loop = self._of_thread(len(numbers))
        file_numbers, starts, sizes = self._find(numbers)
        found = np.empty(len(numbers), np.int64)
        loop.set("count", len(numbers))
        loop.set("descriptors", self._descriptors[file_numbers])
        loop.set("starts", starts)
        loop.set("sizes", sizes)
        loop.set("found", found)
        loop.set("position", position)
        loop()
        return memory[: len(numbers)], sizes, found

    def _of_thread(self, count: int) -> tuple[NDArray[np.uint8], HostLoop]:
        """Return the calling thread's memory, for at least `count` extents, and its loop."""
        kept: tuple[NDArray[np.uint8], HostLoop] | None = self._local.__dict__.get("kept")
        if kept is None or len(kept[0]) < count:
            memory = np.empty((count, self.pitch), np.uint8)
            reads = ExtentReads(
                count=0,
                pread=_pread_address(),
                address=memory.ctypes.data,
                pitch=self.pitch,
                descriptors=None,
                starts=None,
                sizes=None,
                found=None,
                position=None,
            )
            kept = memory, HostLoop(read_extents, reads, unlocked=True)
            self._local.__dict__["kept"] = kept
        return kept


class PlainArrays:
    """Reader of extents that are a header and an array of one shape and dtype; thread-safe."""

    def __init__(
        self, extents: FileExtents, header: bytes, shape: Shape, dtype: np.dtype[Any]
    ) -> None:
        """`header`: the bytes before each array, which may be none."""
        self._extents, self._header = extents, np.frombuffer(header, np.uint8)
        self._shape, self._dtype = shape, dtype

    def read(self, numbers: Int64, position: Int64) -> tuple[NDArray[Any], NDArray[np.bool_]]:
        """Return the arrays of extents [n], and which of them were read, [n].

        One that has another header, or holds infinity or NaN, is not. position: receives the
        position in `numbers` of the one that is being read, [1].
        """
        content, sizes, found = self._extents.read(numbers, position)
        start = len(self._header)
        end = start + math.prod(self._shape) * self._dtype.itemsize
        is_read = (found == end) & (sizes == end)
        if start:
            is_read &= (content[:, :start] == self._header).all(axis=1)
        arrays = content[:, start:end].copy().view(self._dtype)
        if self._dtype.kind == "f":
            is_read &= np.isfinite(arrays).all(axis=1)
        return arrays.reshape(len(numbers), *self._shape), is_read


@cache
def _pread_address() -> int:
    address = ctypes.cast(ctypes.CDLL(None).pread, ctypes.c_void_p).value
    assert address is not None
    return address
