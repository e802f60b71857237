"""Files of arrays in the format of safetensors (https://github.com/huggingface/safetensors).

The length of the header as 64 bits, little endian; the header in JSON, padded with spaces to a
multiple of 8; the arrays one after the other, row-major. A file is written here array by array,
because the package's own functions first copy everything into memory. Untrusted files are read with
the package's functions.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Arrays = Mapping[str, Array]

METADATA = "__metadata__"
# As many as tensors may have here; NumPy has no more than 64.
_MOST_AXES = 32
_TYPES = {
    "float64": "F64",
    "float32": "F32",
    "float16": "F16",
    "bfloat16": "BF16",
    "int64": "I64",
    "int32": "I32",
    "int8": "I8",
    "uint8": "U8",
}


class UnreadableArrays(Exception):
    """Reason why a file of arrays cannot be read; expected, got: of its content, if known."""

    def __init__(self, problem: str, expected: str = "", got: str = "") -> None:
        super().__init__(problem)
        self.problem, self.expected, self.got = problem, expected, got


def file_parts(
    arrays: Arrays, metadata: Mapping[str, str] | None = None
) -> Iterator[bytes | memoryview]:
    """Yield the parts of a file: header, then the arrays in the order of their names.

    metadata: texts that the header holds besides.
    """
    yield _header(arrays, metadata or {})
    for name in sorted(arrays):
        yield _content(arrays[name])


def _content(array: Array) -> bytes | memoryview:
    little_endian = array.astype(array.dtype.newbyteorder("<"), order="C", copy=False)
    return little_endian.reshape(-1).view(np.uint8).data


def _header(arrays: Arrays, metadata: Mapping[str, str]) -> bytes:
    entries: dict[str, Any] = {METADATA: dict(metadata)} if metadata else {}
    offset = 0
    for name in sorted(arrays):
        array = arrays[name]
        end = offset + array.nbytes
        entries[name] = {
            "dtype": _TYPES[array.dtype.name],
            "shape": list(array.shape),
            "data_offsets": [offset, end],
        }
        offset = end
    text = json.dumps(entries, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def parse_arrays(content: bytes) -> dict[str, Array]:
    """Return all arrays of a file's content, in the order of their names.

    Raises UnreadableArrays for another format, and for arrays of another data type.
    """
    # ml_dtypes gives NumPy the type bfloat16.
    import ml_dtypes  # noqa: F401
    import safetensors

    try:
        deserialize: Callable[[bytes], Any] = safetensors.deserialize
        found = dict(deserialize(content))
    except safetensors.SafetensorError as error:
        raise UnreadableArrays(f"not a safetensors file: {error}") from error
    names = {code: name for name, code in _TYPES.items()}
    arrays = {}
    for name, part in sorted(found.items()):
        if part["dtype"] not in names:
            expected = f"one of {', '.join(_TYPES)}"
            problem = f"unsupported dtype of {name!r}"[:200]
            raise UnreadableArrays(problem, expected, part["dtype"])
        if len(part["shape"]) > _MOST_AXES:
            problem = f"too many axes of {name!r}"[:200]
            raise UnreadableArrays(problem, f"{_MOST_AXES} at most", str(len(part["shape"])))
        values = np.frombuffer(part["data"], names[part["dtype"]])
        arrays[name] = values.reshape(part["shape"])
    return arrays


def parse_metadata(content: bytes) -> dict[str, str]:
    """Return the metadata of a file's content that `parse_arrays` accepts."""
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    return dict(header.get(METADATA) or {})
