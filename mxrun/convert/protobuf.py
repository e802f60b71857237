"""Encoder for the part of protobuf's binary format that ONNX needs.

A field is a key, number << 3 | kind, then its value: a varint (kind 0), 4 bytes (kind 5), or a
length and that many bytes (kind 2): https://protobuf.dev/programming-guides/encoding.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

_VARINT, _BYTES, _FIXED32 = 0, 2, 5
_SEVEN_BITS, _MORE = 0x7F, 0x80
_INT64 = (1 << 64) - 1


def integer(field: int, value: int) -> bytes:
    """Encode an int64; negative values in two's complement."""
    return _varint(field << 3 | _VARINT) + _varint(value & _INT64)


def integers(field: int, values: Iterable[int]) -> bytes:
    """Encode repeated int64, one field each."""
    return b"".join(integer(field, value) for value in values)


def real(field: int, value: float) -> bytes:
    """Encode a float."""
    return _varint(field << 3 | _FIXED32) + struct.pack("<f", value)


def text(field: int, value: str) -> bytes:
    """Encode a string."""
    return message(field, value.encode())


def texts(field: int, values: Iterable[str]) -> bytes:
    """Encode repeated strings."""
    return b"".join(text(field, value) for value in values)


def message(field: int, content: bytes) -> bytes:
    """Encode bytes or an embedded message."""
    return b"".join((_varint(field << 3 | _BYTES), _varint(len(content)), content))


def _varint(value: int) -> bytes:
    """Encode seven bits per byte, the lowest first; all bytes but the last have the top bit set."""
    encoded = bytearray()
    while value > _SEVEN_BITS:
        encoded.append(value & _SEVEN_BITS | _MORE)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
