"""What a data set's content is recognised by."""

from __future__ import annotations

import hashlib

import numpy as np

from mxrun.io.dataset import Dataset

# Bytes of records hashed at a time.
_CHUNK = 1 << 24


def fingerprint(dataset: Dataset) -> str:
    """SHA-256 over names, types, shapes and bytes of all that is in memory, and over what a lazily
    read column says of its records' content, wherever they lie. Raises UserError where that cannot
    be read.
    """
    digest = hashlib.sha256()
    for name, column in sorted(dataset.fields.items()):
        records = np.ascontiguousarray(column.records)
        digest.update(f"{name} {records.dtype} {records.shape} {column.scale}\n".encode())
        flat = records.reshape(-1).view(np.uint8)
        for start in range(0, flat.size, _CHUNK):
            digest.update(flat[start : start + _CHUNK].data)
    for name, lazy in sorted(dataset.lazy.items()):
        digest.update(f"{name} {lazy.count} {lazy.start} {lazy.content()}\n".encode())
        if lazy.rows is not None:
            digest.update(lazy.rows.astype("<i8").tobytes())
    # Names of folders need not be UTF-8; their bytes are what counts, in whatever locale.
    digest.update(" ".join(dataset.classes).encode("utf-8", "surrogateescape"))
    return digest.hexdigest()
