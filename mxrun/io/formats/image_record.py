"""Image records: labels, identifiers and an image, the payload of MXNet's RecordIO files.

A payload begins with flag uint32, label float32, id uint64 and id2 uint64, little-endian. A flag of
0 means one label, that of the header; a greater flag is the number of float32 labels that follow.
The image follows: the bytes of an image file, or of an array in NumPy's format (.npy), uint8
[channels, height, width], which needs no decoding and is mxrun's own. Source of the format:
MXNet's `recordio.py` and `image_recordio.h`.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from mxrun.base.dataclass import dataclass
from mxrun.base.errors import Diagnostic, UserError

HEADER_BYTES = 24
_HEADER = struct.Struct("<IfQQ")


@dataclass(frozen=True, eq=False)
class ImageRecord:
    """Header and content of an image record.

    labels: float32 [n]. number, second_number: id and id2 of the header. content: the bytes of an
    image file or of an array.
    """

    labels: NDArray[np.float32]
    number: int
    second_number: int
    content: bytes | memoryview


def pack_image_record(
    labels: float | Sequence[float] | NDArray[np.float32], number: int, content: bytes
) -> bytes:
    """Return the payload of an image record.

    labels: one number, or several, [n] with n >= 1, such as a box's corners. number: its id.
    """
    if isinstance(labels, (int, float)):
        return _HEADER.pack(0, labels, number, 0) + content
    several = np.asarray(labels, "<f4").reshape(-1)
    return _HEADER.pack(len(several), 0.0, number, 0) + several.tobytes() + content


def labels_end(head: bytes | memoryview) -> int:
    """Return the number of bytes of header and labels, at least HEADER_BYTES, from the header."""
    flag = int.from_bytes(head[:4], "little")
    return HEADER_BYTES + 4 * flag


def read_labels(payload: bytes | memoryview, where: object) -> tuple[float, ...]:
    """Return the labels at the beginning of a payload; raises UserError as unpacking does."""
    if len(payload) < HEADER_BYTES:
        raise _error(where, f"a header of {HEADER_BYTES} bytes", len(payload))
    flag, label, _, _ = _HEADER.unpack_from(payload)
    if not flag:
        return (label,)
    if labels_end(payload) > len(payload):
        raise _error(where, f"{flag:,} labels of 4 bytes after the header", len(payload))
    return struct.unpack_from(f"<{flag}f", payload, HEADER_BYTES)


def unpack_image_record(payload: bytes | memoryview, where: object) -> ImageRecord:
    """Split a payload; raises UserError, beginning with `where`, unless its labels are complete."""
    labels = np.array(read_labels(payload, where), np.float32)
    _, _, number, second_number = _HEADER.unpack_from(payload)
    return ImageRecord(labels, number, second_number, payload[labels_end(payload) :])


def _error(where: object, expected: str, size: int) -> UserError:
    problem = f"{where}: not an image record"
    hint = "MXNet's im2rec, mx.recordio.pack and `mxrun pack` write image records"
    return UserError(Diagnostic(problem, None, expected, f"{size:,} bytes", hint=hint))
