"""Files of the user's cache folder, which count only where nobody else can have written them.

What is read here decides results, and some of it is machine code. A folder or file of another
user's, or one that others may write, is therefore as if it were not there: nothing is read from it,
nothing is written to it, and `distrusted` says why.
"""

from __future__ import annotations

import os
import stat
import tempfile
from contextlib import suppress
from pathlib import Path

from mxrun.base import flags

_WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH
_ROOT_USER = 0
# What is not trusted and why, each once, in the order in which it was met.
_DISTRUSTED: dict[str, None] = {}


def distrusted() -> tuple[str, ...]:
    """One sentence for each folder and file that this process met and did not use."""
    return tuple(_DISTRUSTED)


def read(kind: str, name: str) -> bytes | None:
    """The content of a file among those of a kind; None where there is none that can be trusted."""
    folder = _folder(kind)
    if folder is None or not _is_trusted_folder(folder):
        return None
    path = folder / name
    try:
        # A pipe in the file's place must not be waited for.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or not _is_trusted(path, status):
            return None
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            return file.read()
    except OSError:
        return None
    finally:
        os.close(descriptor)


def write(kind: str, name: str, content: bytes) -> Path | None:
    """Write a file whole, and return its folder; None where that cannot be or must not be done."""
    folder = _folder(kind)
    if folder is None:
        return None
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not _is_trusted_folder(folder):
            return None
        descriptor, partial = tempfile.mkstemp(dir=folder)
    except OSError:
        return None
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        Path(partial).replace(folder / name)
    except OSError:
        with suppress(OSError):
            Path(partial).unlink()
    return folder


def _folder(kind: str) -> Path | None:
    root = flags.cache_folder()
    return None if root is None else root / kind


def _is_trusted_folder(folder: Path) -> bool:
    """Whether a folder is there and only this user, or the system's, can name files in it."""
    try:
        return _is_trusted(folder, folder.stat())
    except OSError:
        return False


def _is_trusted(path: Path, status: os.stat_result) -> bool:
    if status.st_uid not in (os.geteuid(), _ROOT_USER):
        reason, remedy = "belongs to another user", "remove it, or set XDG_CACHE_HOME"
    elif status.st_mode & _WRITABLE_BY_OTHERS:
        reason, remedy = "can be written by other users", f"chmod go-w {path}"
    else:
        return True
    _DISTRUSTED[f"the cache is not used: {path} {reason} ({remedy})"] = None
    return False
