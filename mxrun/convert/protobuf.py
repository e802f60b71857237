"""Messages in protobuf's binary form, as far as writing ONNX needs it.

A field is a key, number << 3 | kind, then its value: a varint (kind 0), 4 bytes (kind 5), or a
length and so many bytes (kind 2): https://protobuf.dev/programming-guides/encoding.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

_VARINT, _BYTES, _FIXED32 = 0, 2, 5
_SEVEN_BITS, _MORE = 0x7F, 0x80
_INT64 = (1 << 64) - 1


def integer(field: int, value: int) -> bytes:
    """An int64; negative ones as two's complement."""
    return _varint(field << 3 | _VARINT) + _varint(value & _INT64)


def integers(field: int, values: Iterable[int]) -> bytes:
    """Repeated int64, one field each."""
    return b"".join(integer(field, value) for value in values)


def real(field: int, value: float) -> bytes:
    """A float."""
    return _varint(field << 3 | _FIXED32) + struct.pack("<f", value)


def text(field: int, value: str) -> bytes:
    """A string."""
    return message(field, value.encode())


def texts(field: int, values: Iterable[str]) -> bytes:
    """Repeated strings."""
    return b"".join(text(field, value) for value in values)


def message(field: int, content: bytes) -> bytes:
    """Bytes, or a message within a message."""
    return b"".join((_varint(field << 3 | _BYTES), _varint(len(content)), content))


def _varint(value: int) -> bytes:
    """Seven bits a byte, the lowest first; all but the last have the top bit set."""
    encoded = bytearray()
    while value > _SEVEN_BITS:
        encoded.append(value & _SEVEN_BITS | _MORE)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
