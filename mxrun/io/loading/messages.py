"""Messages and shared memory between a run and the processes that transform its records.

A message is JSON behind its length. Arrays lie in a file without a name, which both sides map; it
is gone when both have closed it, however they end.
"""

from __future__ import annotations

import json
import math
import mmap
import os
import socket
import struct
import tempfile
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mxrun.base.errors import Diagnostic, SourceLocation, UserError

Message = Mapping[str, Any]

_LENGTH = struct.Struct("<I")
_MAX_BYTES = 64 << 20
_ALIGNMENT = 64


def send(connection: socket.socket, message: Message) -> None:
    """Send a message; raises OSError if the other side has ended."""
    content = json.dumps(message).encode()
    connection.sendall(_LENGTH.pack(len(content)) + content)


def receive(connection: socket.socket) -> Message:
    """Return the next message; raises EOFError if the other side has ended, and OSError."""
    (length,) = _LENGTH.unpack(_received(connection, _LENGTH.size))
    if length > _MAX_BYTES:
        raise EOFError(f"a message of {length} bytes")
    found: Message = json.loads(_received(connection, length))
    return found


def _received(connection: socket.socket, count: int) -> bytes:
    content = bytearray()
    while len(content) < count:
        more = connection.recv(count - len(content))
        if not more:
            raise EOFError
        content += more
    return bytes(content)


def new_memory_file() -> int:
    """Return the descriptor of a new file without a name, in memory where the system has such."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("mxrun records")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


class SharedArrays:
    """Arrays in a file that two processes map, one after the other in memory.

    The file is closed with the last reference: while a thread uses it, its descriptor must not
    become that of another file.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        weakref.finalize(self, os.close, descriptor)
        self._map: mmap.mmap | None = None
        self._end = 0

    def start(self, offset: int) -> None:
        """Put the next arrays from `offset` on."""
        self._end = offset

    @property
    def end(self) -> int:
        """Offset of the next array."""
        return self._end

    def put(self, array: NDArray[Any]) -> Message:
        """Copy an array into the memory and return where it is."""
        offset = self._end
        self._end = -(-(offset + array.nbytes) // _ALIGNMENT) * _ALIGNMENT
        place = {"offset": offset, "shape": list(array.shape), "dtype": array.dtype.str}
        self.at(place)[...] = array
        return place

    def at(self, place: Message) -> NDArray[Any]:
        """Return the array at a place, which is valid until the next arrays are put there."""
        shape, dtype = place["shape"], np.dtype(place["dtype"])
        if not math.prod(shape):
            return np.empty(shape, dtype)
        offset, count = place["offset"], math.prod(shape)
        memory = self._mapped(offset + count * dtype.itemsize)
        found: NDArray[Any] = np.frombuffer(memory, dtype, count, offset).reshape(shape)
        return found

    def _mapped(self, size: int) -> mmap.mmap:
        """Return the mapped file, which has at least `size` bytes."""
        if self._map is None or len(self._map) < size:
            if os.fstat(self._descriptor).st_size < size:
                # In large steps: each one maps all of it anew.
                os.ftruncate(self._descriptor, max(2 * size, 1 << 20))
            # The arrays in use hold the previous map.
            self._map = mmap.mmap(self._descriptor, os.fstat(self._descriptor).st_size)
        return self._map


def error_to_json(error: UserError) -> list[Message]:
    """Return the diagnostics of an error as JSON."""
    return [asdict(each) for each in error.diagnostics]


def error_from_json(content: Sequence[Message]) -> UserError:
    """Return the error whose diagnostics these are."""
    return UserError(
        Diagnostic(
            **{
                **each,
                "place": each["place"] and SourceLocation(**each["place"]),
                "chain": tuple(each["chain"]),
            }
        )
        for each in content
    )
