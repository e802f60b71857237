"""Fingerprint of a data set's content."""

from __future__ import annotations

import hashlib

import numpy as np

from mxrun.io.dataset.dataset import Dataset

# Number of bytes of records hashed at a time.
_CHUNK = 1 << 24


def fingerprint(dataset: Dataset) -> str:
    """Return the SHA-256 of a data set's content, whatever the path of its files.

    It covers names, dtypes, shapes and bytes of the fields in memory, the content digest of each
    lazily read column, and the names of the classes. Raises UserError if a lazily read column
    cannot be read.
    """
    digest = hashlib.sha256()
    for name, column in sorted(dataset.fields.items()):
        shape, records = column.records.shape, np.ascontiguousarray(column.distinct)
        digest.update(f"{name} {records.dtype} {shape} {column.scale}\n".encode())
        flat = records.reshape(-1).view(np.uint8)
        for start in range(0, flat.size, _CHUNK):
            digest.update(flat[start : start + _CHUNK].data)
        if column.starts is not None:
            digest.update(column.starts.astype("<i8").tobytes())
    for name, lazy in sorted(dataset.lazy.items()):
        digest.update(f"{name} {lazy.count} {lazy.start} {lazy.content()}\n".encode())
        if lazy.rows is not None:
            digest.update(lazy.rows.astype("<i8").tobytes())
    # Names of folders need not be UTF-8; hash their bytes, so that the locale has no influence.
    digest.update(" ".join(dataset.classes).encode())
    return digest.hexdigest()
