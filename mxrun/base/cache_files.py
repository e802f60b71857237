"""Files of the user's cache folder, trusted only if no other user can have written them.

Cached content decides results, and some of it is machine code. A folder or file that belongs to
another user, or that others may write, is therefore ignored: it is neither read nor written, and
`distrusted` reports the reason. So is a folder in a place where another user could have put it: a
link of his to a folder of this user's would look like the cache.
"""

from __future__ import annotations

import os
import stat
import tempfile
from contextlib import suppress
from pathlib import Path

from mxrun.base import flags
from mxrun.base.errors import UserError

_WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH
_ROOT_USER = 0
# Messages about untrusted paths, each once, in order of discovery.
_DISTRUSTED: dict[str, None] = {}


def distrusted() -> tuple[str, ...]:
    """Return one sentence for each folder and file that this process did not trust."""
    return tuple(_DISTRUSTED)


def read(kind: str, name: str) -> bytes | None:
    """Return the content of a cached file; None if there is none that can be trusted."""
    folder = _folder(kind)
    if folder is None or not _is_trusted_folder(folder):
        return None
    path = folder / name
    try:
        # O_NONBLOCK: do not block on a pipe of this name.
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
    """Write a file atomically and return its folder; None if it cannot or must not be written.

    It is not made durable: after a loss of power, readers find that it is damaged and do without.
    """
    folder = _folder(kind)
    if folder is None:
        return None
    try:
        folder.parent.parent.mkdir(parents=True, exist_ok=True)
        # `mode` is that of the last folder only.
        for each in (folder.parent, folder):
            each.mkdir(exist_ok=True, mode=0o700)
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


def root() -> Path | None:
    """Return the folder of all kinds; None for a user without a home."""
    return flags.cache_folder()


def usage() -> dict[str, tuple[int, int]]:
    """Return the number of files of each kind and their bytes."""
    found: dict[str, tuple[int, int]] = {}
    for folder in _folders():
        sizes = []
        with suppress(OSError):
            for path in folder.iterdir():
                with suppress(OSError):
                    sizes.append(path.lstat().st_size)
        found[folder.name] = len(sizes), sum(sizes)
    return found


def clear(kind: str) -> int:
    """Remove the files of a kind; return their number.

    Other processes may remove files at the same time. Raises UserError for one that cannot be
    removed.
    """
    folder, removed = _folder(kind), 0
    is_own = folder is not None and _is_trusted_folder(folder)
    for path in list(folder.iterdir()) if folder is not None and is_own else []:
        try:
            path.unlink()
        except FileNotFoundError:
            continue
        except OSError as error:
            raise UserError(f"cannot remove {path}: {error.strerror}") from error
        removed += 1
    return removed


def _folders() -> list[Path]:
    folder = root()
    if folder is None or not folder.is_dir():
        return []
    try:
        return sorted(each for each in folder.iterdir() if each.is_dir() and not each.is_symlink())
    except OSError:
        return []


def _folder(kind: str) -> Path | None:
    folder = root()
    return None if folder is None else folder / kind


def _is_trusted_folder(folder: Path) -> bool:
    """Return whether a kind's folder exists, and only this user or root can have created it and
    can create files in it.
    """
    try:
        # A link has an owner of its own.
        within = [
            (each, status())
            for each in (folder.parent, folder)
            for status in (each.lstat, each.stat)
        ]
        around = folder.parent.parent
        return _is_shared_safely(around, around.stat()) and all(
            _is_trusted(*each) for each in within
        )
    except OSError:
        return False


def _is_shared_safely(path: Path, status: os.stat_result) -> bool:
    """Return whether other users cannot rename this user's entries in a folder."""
    if not status.st_mode & stat.S_IWOTH or status.st_mode & stat.S_ISVTX:
        return True
    _distrust(path, "can be written by all users", f"chmod o-w {path}")
    return False


def _is_trusted(path: Path, status: os.stat_result) -> bool:
    is_link = stat.S_ISLNK(status.st_mode)
    if status.st_uid not in (os.geteuid(), _ROOT_USER):
        reason, remedy = "belongs to another user", "remove it, or set XDG_CACHE_HOME"
    elif status.st_mode & _WRITABLE_BY_OTHERS and not is_link:
        reason, remedy = "can be written by other users", f"chmod go-w {path}"
    else:
        return True
    _distrust(path, reason, remedy)
    return False


def _distrust(path: Path, reason: str, remedy: str) -> None:
    _DISTRUSTED[f"the cache is not used: {path} {reason} ({remedy})"] = None
