"""Image records that hold arrays of one shape, unpacked without the interpreter."""

from __future__ import annotations

import math
import threading

import numpy as np
from numpy.typing import NDArray

from mxrun.base.tensor import Shape
from mxrun.codegen.arguments import Arguments, Int32s, Int64s, Integer, Uint8s
from mxrun.codegen.host_loop import HostLoop
from mxrun.codegen.jit import native
from mxrun.io.formats.extents import FileExtents
from mxrun.io.formats.image_record import HEADER_BYTES
from mxrun.io.formats.recordio import MAGIC, PART_HEADER_BYTES

Int64 = NDArray[np.int64]

_MAGIC_WORD = int.from_bytes(MAGIC, "little", signed=True)


class ArrayRecords(Arguments):
    """Arguments of `unpack_arrays`: [count] records of one part.

    content, words: the records' bytes, one every `pitch` bytes, and the same memory as 32-bit
    words. sizes: bytes of each record in its file. found: how many of them were read; receives 1
    for a record whose array was unpacked, else 0. header: `header_bytes` bytes before every array.
    array_bytes: bytes of an array. arrays: receives the arrays.
    """

    count: Integer
    pitch: Integer
    content: Uint8s
    words: Int32s
    sizes: Int64s
    found: Int64s
    header: Uint8s
    header_bytes: Integer
    array_bytes: Integer
    arrays: Uint8s


@native
def unpack_arrays(call: ArrayRecords) -> None:
    """Copy the arrays out of the records that are what they are expected to be."""
    for i in range(call.count):
        first, word = i * call.pitch, i * call.pitch // 4
        # The upper bits of the length are zero for a record of one part.
        length, flag = np.int64(call.words[word + 1]), np.int64(call.words[word + 2])
        end = PART_HEADER_BYTES + length
        at = PART_HEADER_BYTES + HEADER_BYTES + 4 * flag
        is_whole = call.found[i] == call.sizes[i] and end <= call.sizes[i] < end + 4
        is_array = flag >= 0 and at + call.header_bytes + call.array_bytes == end
        call.found[i] = 0
        if not (is_whole and is_array and call.words[word] == _MAGIC_WORD):
            continue
        differences = 0
        for j in range(call.header_bytes):
            differences += call.content[first + at + j] != call.header[j]
        # The magic number within a part shows that its length is damaged.
        for j in range(PART_HEADER_BYTES // 4, end // 4):
            differences += call.words[word + j] == _MAGIC_WORD
        if differences == 0:
            pixels = first + at + call.header_bytes
            for j in range(call.array_bytes):
                call.arrays[i * call.array_bytes + j] = call.content[pixels + j]
            call.found[i] = 1


class RecordArrays:
    """Reader of records whose arrays are uint8 of one shape, many at a time; thread-safe."""

    def __init__(self, extents: FileExtents, header: bytes, shape: Shape) -> None:
        """`extents`: of the records. header: the bytes before each array."""
        self._extents, self._shape = extents, shape
        self._header = np.frombuffer(header, np.uint8)
        self._local = threading.local()

    def read(self, records: Int64, position: Int64) -> tuple[NDArray[np.uint8], NDArray[np.bool_]]:
        """Return the arrays of records [n], and which of them were read, [n].

        A record of any other form is not. position: receives the position in `records` of the one
        that is being read, [1].
        """
        content, sizes, found = self._extents.read(records, position)
        arrays = np.empty((len(records), *self._shape), np.uint8)
        loop = self._loop()
        loop.set("count", len(records))
        loop.set("content", content)
        loop.set("words", content)
        loop.set("sizes", sizes)
        loop.set("found", found)
        loop.set("arrays", arrays)
        loop()
        return arrays, found != 0

    def _loop(self) -> HostLoop:
        """Return the calling thread's loop."""
        loop: HostLoop | None = self._local.__dict__.get("loop")
        if loop is None:
            records = ArrayRecords(
                count=0,
                pitch=self._extents.pitch,
                content=None,
                words=None,
                sizes=None,
                found=None,
                header=self._header,
                header_bytes=len(self._header),
                array_bytes=math.prod(self._shape),
                arrays=None,
            )
            # A few microseconds.
            loop = self._local.__dict__["loop"] = HostLoop(unpack_arrays, records)
        return loop
