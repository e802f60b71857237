"""Digests of the content of files that are too large to be kept in memory.

A digest decides whether a resumed run reads the data that it was started with. It covers the size
of every file, and all bytes of files of at most 1 GiB together. Of more, reading everything at each
start would take minutes, so 4,096 blocks at equal distances count, and the first and the last block
of each file. Times of files do not count: copies have others. A change that keeps all sizes and is
outside of the blocks is not seen; what changes the size of a record moves all blocks after it.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

WHOLE_BYTES = 1 << 30
_BLOCKS, _BLOCK = 4096, 4096
_CHUNK = 1 << 20


def content_digest(files: Sequence[tuple[bytes, Path]]) -> str:
    """Return the SHA-256 of names, sizes and content of files, in their order.

    Each file has a name, such as its path below a folder; an empty one does not count. A file that
    cannot be read, or is not a regular file (reading a pipe may never end), counts by its name
    only. A run is saved before a record in it stops the run; once the file is repaired, the digest
    differs and it is another run.
    """
    digest = hashlib.sha256()
    sizes = [_size(path) for _, path in files]
    total = sum(max(0, size) for size in sizes)
    distance = 0 if total <= WHOLE_BYTES else total // _BLOCKS
    position = 0
    for (name, path), size in zip(files, sizes, strict=True):
        content = _content(path, size, position, distance) if size >= 0 else iter((None,))
        parts = hashlib.sha256()
        for part in content:
            if part is None:
                size = -1
                break
            parts.update(part)
        digest.update(name)
        digest.update(b"\0unreadable\n" if size < 0 else b"\0%d\n%s" % (size, parts.digest()))
        position += max(0, size)
    return digest.hexdigest()


def _size(path: Path) -> int:
    """Return the size of a regular file; -1 of anything else."""
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return -1
    return status.st_size if stat.S_ISREG(status.st_mode) else -1


def _content(path: Path, size: int, position: int, distance: int) -> Iterator[bytes | None]:
    """Yield the bytes of a file that count, or None once it cannot be read.

    position: number of bytes of the files before it. distance: that of the blocks over all files; 0
    for all bytes.
    """
    try:
        with path.open("rb", buffering=0) as stream:
            if not distance:
                while chunk := stream.read(_CHUNK):
                    yield chunk
                return
            # Without it the system reads ahead, many times what counts.
            if hasattr(os, "posix_fadvise"):
                os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
            first = -position % distance
            starts = {0, max(0, size - _BLOCK), *range(first, size, distance)}
            for start in sorted(starts):
                yield os.pread(stream.fileno(), _BLOCK, start)
    except OSError:
        yield None
