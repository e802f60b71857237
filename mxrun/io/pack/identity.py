"""Identity of a pack: what must be the same for an unfinished pack to be continued."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

import numpy as np

from mxrun.io.dataset.dataset import Dataset
from mxrun.io.dataset.records import location_of_record
from mxrun.io.pack.options import PackSettings


def pack_identity(dataset: Dataset, options: PackSettings) -> dict[str, Any]:
    """Return settings and digests of the records' labels and places as JSON."""
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
    """Return a digest of the places of all records."""
    digest = hashlib.sha256()
    for name, column in sorted(dataset.lazy.items()):
        digest.update(f"{name} {column.shape} {column.count} {column.as_stored}\n".encode())
    for index in range(len(dataset) if dataset.lazy else 0):
        location = location_of_record(dataset, index)
        digest.update(f"{location!r}\n".encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


class SourceDigest:
    """Digest of the files of the records that are packed: their sizes and times of modification.

    A file that has changed since then cannot be packed in part as it was and in part as it is.
    """

    def __init__(self, dataset: Dataset, records: Iterable[int] = ()) -> None:
        self._dataset, self._digest = dataset, hashlib.sha256()
        self._seen: set[str] = set()
        for record in records:
            self.add(record)

    def add(self, record: int) -> None:
        """Add the file of a record."""
        location = location_of_record(self._dataset, record)
        if location is not None and location.file not in self._seen:
            self._seen.add(location.file)
            self._digest.update(_file_state(location.file))

    def hexdigest(self) -> str:
        """Return the digest."""
        return self._digest.hexdigest()


def _file_state(file: str) -> bytes:
    try:
        status = os.stat(file)
    except OSError:
        return b"unreadable\n"
    return b"%d %d\n" % (status.st_size, status.st_mtime_ns)
