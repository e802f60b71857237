"""Reader of CIFAR's binary files: each record is some label bytes, then 3 x 32 x 32 bytes.

Source of the format: A. Krizhevsky, "Learning Multiple Layers of Features from Tiny Images", 2009,
and the description that accompanies the files.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mxrun.base.errors import Diagnostic, UserError
from mxrun.io.encodings import decoded
from mxrun.io.files import fail, find_file, read_all_bytes

_SHAPE = (3, 32, 32)
_PIXELS = 3 * 32 * 32


def read_cifar(
    files: Sequence[Path], labels: int, classes: Sequence[int]
) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Read all records: images uint8 [count, 3, 32, 32] and labels uint8 [count, labels].

    A record begins with `labels` bytes; byte i must be below `classes[i]`. Raises UserError naming
    file, record and byte offset.
    """
    parts = [_records(path, labels, classes) for path in files]
    records = np.concatenate(parts) if len(parts) > 1 else parts[0]
    return records[:, labels:].reshape(-1, *_SHAPE), records[:, :labels]


def read_names(folder: Path, name: str, count: int) -> tuple[str, ...]:
    """Read the names of `count` classes, one a line.

    Raises UserError if the file does not hold exactly `count` names.
    """
    path = find_file(folder, name)
    lines = decoded(read_all_bytes(path), path).split("\n")
    names = tuple(line.strip() for line in lines if line.strip())
    if len(names) != count:
        problem = f"{path}: wrong number of class names"
        raise UserError(Diagnostic(problem, None, f"{count} lines", str(len(names))))
    return names


def _records(path: Path, labels: int, classes: Sequence[int]) -> NDArray[np.uint8]:
    """Read one file as uint8 [count, labels + 3072]."""
    size = labels + _PIXELS
    content = read_all_bytes(path)
    count, rest = divmod(len(content), size)
    if rest or not count:
        problem = f"record {count}: the file ends within it" if rest else "the file is empty"
        expected = f"records of {size} bytes"
        fail(path, len(content), problem, expected, f"{count} records and {rest} bytes")
    records = np.frombuffer(content, np.uint8).reshape(count, size)
    for at, below in enumerate(classes):
        wrong = records[:, at] >= below
        if wrong.any():
            record = int(np.argmax(wrong))
            problem = f"record {record}: the label is not a class number"
            fail(path, record * size + at, problem, f"0 to {below - 1}", str(records[record, at]))
    return records
