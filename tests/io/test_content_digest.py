"""Digests of the content of files: all of it, and samples of large files."""

from __future__ import annotations

import os
from pathlib import Path

from mxrun.io.formats.content_digest import WHOLE_BYTES, content_digest


def digest(*paths: Path) -> str:
    return content_digest([(b"", path) for path in paths])


def change(path: Path, offset: int) -> None:
    with path.open("r+b") as stream:
        stream.seek(offset)
        stream.write(b"changed")


def test_every_byte_of_small_files_counts(tmp_path):
    first, second = tmp_path / "a", tmp_path / "b"
    first.write_bytes(bytes(100_000))
    second.write_bytes(bytes(50_000))
    before = digest(first, second)
    # Times of files and where they are do not count, but their order and bounds do.
    os.utime(first, (1, 1))
    assert digest(first.rename(tmp_path / "c"), second) == before
    first = tmp_path / "c"
    assert digest(second, first) != before
    change(first, 77_777)
    assert digest(first, second) != before
    names = content_digest([(b"x", first), (b"y", second)])
    assert names != content_digest([(b"y", first), (b"x", second)])


def test_large_files_count_by_samples(tmp_path):
    """Files of zeros that take no space on the disk."""
    paths = [tmp_path / "a", tmp_path / "b"]
    for path in paths:
        path.touch()
        os.truncate(path, WHOLE_BYTES)
    before = digest(*paths)
    assert digest(*paths) == before
    distance = 2 * WHOLE_BYTES // 4096
    for path, offset in ((paths[0], 0), (paths[1], WHOLE_BYTES - 8), (paths[0], 5 * distance)):
        change(path, offset)
        after = digest(*paths)
        assert after != before
        before = after
    change(paths[0], 5 * distance + 8192)
    assert digest(*paths) == before
    os.truncate(paths[0], WHOLE_BYTES + 1)
    assert digest(*paths) != before


def test_files_that_cannot_be_read_count_by_name(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    missing, pipe = (content_digest([(b"n", tmp_path / name)]) for name in ("none", "pipe"))
    assert missing == pipe
    assert missing != content_digest([(b"m", tmp_path / "none")])
