"""Identity of a pack: what must be the same for an unfinished pack to be continued."""

from __future__ import annotations

import hashlib
import os
from dataclasses import asdict
from typing import Any

import numpy as np

from mxrun.io.dataset.dataset import Dataset
from mxrun.io.dataset.records import location_of_record
from mxrun.io.pack.options import PackOptions


def pack_identity(dataset: Dataset, options: PackOptions) -> dict[str, Any]:
    """Return settings and digests of the records as JSON.

    Files count by name, size and time of modification, not by content.
    """
    import PIL

    return {
        "options": asdict(options),
        "labels": _labels(dataset),
        "records": _records(dataset),
        "Pillow": PIL.__version__,
    }


def _labels(dataset: Dataset) -> str:
    digest = hashlib.sha256(repr((dataset.name, dataset.split, dataset.classes)).encode())
    for name, column in sorted(dataset.fields.items()):
        records = np.ascontiguousarray(column.records)
        digest.update(f"{name} {records.dtype} {records.shape}\n".encode())
        digest.update(records.reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def _records(dataset: Dataset) -> str:
    """Return a digest of the places of all records and of the files that hold them."""
    digest = hashlib.sha256()
    seen: set[str] = set()
    for name, column in sorted(dataset.lazy.items()):
        digest.update(f"{name} {column.shape} {column.count}\n".encode())
    for index in range(len(dataset) if dataset.lazy else 0):
        location = location_of_record(dataset, index)
        if location is None:
            continue
        digest.update(f"{location!r}\n".encode("utf-8", "surrogateescape"))
        if location.file not in seen:
            seen.add(location.file)
            digest.update(_file_state(location.file))
    return digest.hexdigest()


def _file_state(file: str) -> bytes:
    try:
        status = os.stat(file)
    except OSError:
        return b"unreadable\n"
    return b"%d %d\n" % (status.st_size, status.st_mtime_ns)
