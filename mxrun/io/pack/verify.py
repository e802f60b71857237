"""Check of the files of a pack: everything is read back as readers of the format do."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mxrun.base.dataclass import dataclass
from mxrun.base.errors import Diagnostic, UserError
from mxrun.io.formats.byte_file import ByteFile
from mxrun.io.formats.recordio import read_index, read_record, scan_records
from mxrun.io.formats.tar_shards import scan_tar_records
from mxrun.io.pack.options import PackForm

_CHUNK = 1 << 20


@dataclass(frozen=True)
class PackedFile:
    """File of a pack: its records, bytes and SHA-256."""

    name: str
    records: int
    bytes: int
    sha256: str


def verify_shard(
    form: PackForm,
    folder: Path,
    names: tuple[str, ...],
    checksums: NDArray[np.uint32],
    advance: Callable[[int], None],
) -> list[PackedFile]:
    """Read a shard's records and compare each with the CRC-32 of what was written.

    advance: receives the number of records that are read. Raises UserError for a difference.
    """
    path = folder / names[0]
    count = 0
    for count, crc in enumerate(_CHECKSUMS[form](path), 1):
        if count > len(checksums) or crc != checksums[count - 1]:
            raise _damaged(path, f"record {count - 1} is not what was written")
        advance(count)
    if count != len(checksums):
        raise _damaged(path, f"{count:,} records can be read of {len(checksums):,}")
    return [_described(folder / name, count) for name in names]


def _damaged(path: Path, what: str) -> UserError:
    hint = "check the disk; the same command packs anew"
    return UserError(Diagnostic(f"{path}: {what}", hint=hint))


def _record_checksums(path: Path) -> Iterator[int]:
    """Yield the CRC-32 of each payload of a RecordIO file, which must be where its index says."""
    file = ByteFile(path)
    starts = [*read_index(path.with_suffix(".idx")).values()]
    for number, head in enumerate(scan_records(file, 0)):
        if number >= len(starts) or starts[number] != head.start:
            raise _damaged(path, f"record {number} is not where the index says")
        yield zlib.crc32(read_record(file, head.start, head.size))


def _tar_checksums(path: Path) -> Iterator[int]:
    """Yield the CRC-32 of the members of each record of a tar file."""
    file = ByteFile(path)
    for record in scan_tar_records(file):
        crc = 0
        for member in record.members.values():
            crc = zlib.crc32(file.read(member.start, member.size), crc)
        yield crc


_CHECKSUMS: dict[PackForm, Callable[[Path], Iterator[int]]] = {
    "rec": _record_checksums,
    "tar": _tar_checksums,
}


def _described(path: Path, records: int) -> PackedFile:
    digest = hashlib.sha256()
    size = 0
    with path.open("rb") as stream:
        while chunk := stream.read(_CHUNK):
            digest.update(chunk)
            size += len(chunk)
    return PackedFile(path.name, records, size, digest.hexdigest())
