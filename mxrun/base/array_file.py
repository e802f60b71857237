"""Files of arrays in the format of safetensors (https://github.com/huggingface/safetensors).

The length of the header as 64 bits, little endian; the header in JSON, padded with spaces to a
multiple of 8; the arrays one after the other, row-major. A file is written here array by array,
because the package's own functions first copy everything into memory. Untrusted files are read with
the package's functions.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Arrays = Mapping[str, Array]

METADATA = "__metadata__"
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


def read_arrays(path: Path) -> dict[str, Array]:
    """Read all arrays of a file, in the order of their names; raises UnreadableArrays."""
    return read_file(path)[0]


def read_file(path: Path) -> tuple[dict[str, Array], dict[str, str]]:
    """Read all arrays of a file and its metadata.

    Raises UnreadableArrays for a file that cannot be opened, is not in this format or has arrays of
    another data type.
    """
    # ml_dtypes gives NumPy the type bfloat16.
    import ml_dtypes  # noqa: F401
    import safetensors

    try:
        with safetensors.safe_open(path, framework="numpy") as file:
            metadata = dict(file.metadata() or {})
            arrays = {name: file.get_tensor(name) for name in sorted(file.keys())}
    # Names of dtypes are looked up in NumPy, which does not have all of them.
    except (safetensors.SafetensorError, ValueError, TypeError, AttributeError, OSError) as error:
        raise UnreadableArrays(f"not a safetensors file: {error}") from error
    for name, array in arrays.items():
        if array.dtype.name not in _TYPES:
            expected = f"one of {', '.join(_TYPES)}"
            problem = f"unsupported dtype of {name!r}"[:200]
            raise UnreadableArrays(problem, expected, array.dtype.name)
    return arrays, metadata
