"""Digests of files, and of what compressed files hold."""

from __future__ import annotations

import gzip
import hashlib
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from mxrun.io.files import unreadable_error

_CHUNK = 1 << 20
# Limit of the content of a compressed file, against decompression bombs.
_MAX_CONTENT = 1 << 30


def sha256_of(file: BinaryIO | Path) -> str:
    """Return the SHA-256 of a file; raises UserError if it cannot be read."""
    digest = hashlib.sha256()
    with _opened(file) as stream:
        while chunk := stream.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def content_sha256(file: BinaryIO | Path) -> str:
    """Return the SHA-256 of what a gzip file holds; empty for other and for damaged files."""
    digest, size = hashlib.sha256(), 0
    with _opened(file) as stream:
        try:
            with gzip.GzipFile(fileobj=stream, mode="rb") as unpacked:
                while (chunk := unpacked.read(_CHUNK)) and size <= _MAX_CONTENT:
                    digest.update(chunk)
                    size += len(chunk)
        except (gzip.BadGzipFile, EOFError, zlib.error):
            return ""
    return digest.hexdigest() if size <= _MAX_CONTENT else ""


@contextmanager
def _opened(file: BinaryIO | Path) -> Iterator[BinaryIO]:
    """Context manager for a file from its beginning, opened here if it is a path."""
    if not isinstance(file, Path):
        file.seek(0)
        yield file
        return
    try:
        with file.open("rb") as stream:
            yield stream
    except OSError as error:
        raise unreadable_error(file, error) from error
