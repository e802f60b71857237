"""Messages between mxrun and a peer's helper process: one JSON line, then raw array bytes.

The file runs on both sides. A peer's environment has its own NumPy and Python but no mxrun, so this
file and the workers import only the standard library, NumPy, the peer and each other; `worker.py`
makes them importable there.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import IO, Any

import numpy as np

# Bytes of an array that are read at once.
_PART_BYTES = 1 << 20

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Message:
    """JSON-compatible `fields` and named arrays (numbers and booleans of any shape)."""

    fields: Mapping[str, Any]
    arrays: Mapping[str, Array] = field(default_factory=dict)


Handlers = Mapping[str, Callable[[Message], Message]]


def write(stream: IO[bytes], message: Message) -> None:
    """Send a message: `{"fields": ..., "arrays": [[name, type, shape], ...]}`, newline, bytes.

    Arrays are sent row-major and little-endian, in the order the line lists them. Raises ValueError
    for arrays of anything but numbers and booleans.
    """
    blocks: list[Array] = []
    listing: list[list[Any]] = []
    for name, array in message.arrays.items():
        if array.dtype.kind not in "biuf":
            raise ValueError(f"array {name!r} holds {array.dtype}, which cannot be sent")
        block = np.asarray(array, dtype=array.dtype.newbyteorder("<"), order="C")
        blocks.append(block)
        listing.append([name, block.dtype.str, list(block.shape)])
    header = json.dumps({"fields": dict(message.fields), "arrays": listing})
    stream.write(header.encode() + b"\n")
    for block in blocks:
        stream.write(block.tobytes())
    stream.flush()


def read(stream: IO[bytes]) -> Message | None:
    """Receive a message; None if the stream ends between messages.

    Raises EOFError if it ends inside a message, ValueError for a line that is not a header.
    """
    line = stream.readline()
    if not line:
        return None
    header = json.loads(line)
    arrays: dict[str, Array] = {}
    for name, type_name, shape in header["arrays"]:
        # Read in parts: a second copy of the array would count in the peer's peak memory.
        array = np.empty(shape, np.dtype(type_name))
        count = _read_into(stream, array)
        if count < array.nbytes:
            raise EOFError(f"array {name!r} ends after {count} of {array.nbytes} bytes")
        arrays[name] = array.astype(array.dtype.newbyteorder("="), copy=False)
    return Message(header["fields"], arrays)


def _read_into(stream: IO[bytes], array: Array) -> int:
    """Fill an array with the stream's next bytes; return their number, less if the stream ends."""
    block = array.reshape(-1).view(np.uint8)
    position = 0
    while part := stream.read(min(_PART_BYTES, len(block) - position)):
        block[position : position + len(part)] = np.frombuffer(part, np.uint8)
        position += len(part)
    return position


def claim_standard_output() -> IO[bytes]:
    """Return the stream for replies, and redirect standard output to standard error.

    Libraries print to file descriptor 1, from C as well, so replies get a descriptor of their own.
    Call it before the peer is imported.
    """
    replies = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    return replies


def serve(
    requests: IO[bytes],
    replies: IO[bytes],
    handlers: Handlers,
    rejections: tuple[type[Exception], ...],
) -> None:
    """Answer requests until their stream ends.

    rejections: exceptions by which the peer refuses a request; their text becomes the reply. Any
    other exception is a defect and ends the process.
    """
    while (message := read(requests)) is not None:
        try:
            reply = handlers[message.fields["request"]](message)
        except rejections as rejection:
            reply = Message({"rejected": f"{type(rejection).__name__}: {rejection}"})
        write(replies, reply)


def group(arrays: Mapping[str, Array], prefix: str) -> dict[str, Array]:
    """Return the arrays called `prefix/name` by name, in order."""
    start = prefix + "/"
    return {key[len(start) :]: array for key, array in arrays.items() if key.startswith(start)}


def prefixed(prefix: str, arrays: Mapping[str, Array]) -> dict[str, Array]:
    """Prefix every name with `prefix/`, the inverse of `group`."""
    return {f"{prefix}/{name}": array for name, array in arrays.items()}


def numbered(arrays: list[Array]) -> dict[str, Array]:
    """Return the arrays keyed by their position."""
    return {str(index): array for index, array in enumerate(arrays)}
