"""The lock of a run's folder: one process writes it, and only as long as it is the same folder."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from mxrun.base.errors import Diagnostic, UserError
from mxrun.base.files import writing

LOCK_FILE = ".lock"

# All that a lock file ever holds: the number of the process that has it.
_CONTENT = re.compile(rb"[0-9]{0,20}\n?")


@dataclass(frozen=True)
class RunLock:
    """The right to write a run's folder."""

    path: Path
    descriptor: int

    def check(self) -> None:
        """Raise UserError where the folder was removed or replaced since it was locked.

        What is there now may be another run, which must not be written.
        """
        if not _is_named(self.descriptor, self.path / LOCK_FILE):
            raise UserError(
                Diagnostic(
                    f"{self.path} was removed or replaced while the run was writing it",
                    hint="the run ends and leaves what is there now alone; start it again",
                )
            )


@contextmanager
def only_writer(path: Path) -> Iterator[RunLock]:
    """While it is entered no other process writes the run in `path`; the folder is made.

    The lock is the system's (flock) on a file with this process's number, so that it ends with the
    process, however that ends. Raises UserError naming the process that has it, and where the
    lock's name belongs to something else.
    """
    with writing(path):
        path.mkdir(parents=True, exist_ok=True)
        descriptor = _locked(path / LOCK_FILE)
    try:
        with writing(path):
            os.truncate(descriptor, 0)
            os.write(descriptor, b"%d\n" % os.getpid())
        yield RunLock(path, descriptor)
    finally:
        # While it is still locked: who opens it by then sees that it is not there any more.
        if _is_named(descriptor, path / LOCK_FILE):
            with suppress(OSError):
                (path / LOCK_FILE).unlink()
        os.close(descriptor)


def _locked(path: Path) -> int:
    """The descriptor of a locked file that still has its name."""
    while True:
        descriptor = _opened(path)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _check_is_lock(path, descriptor)
            if _is_named(descriptor, path):
                return descriptor
        except BlockingIOError as error:
            holder = os.pread(descriptor, 20, 0).decode("ascii", "replace").strip()
            os.close(descriptor)
            raise UserError(
                Diagnostic(
                    f"another process is writing the run in {path.parent}",
                    got=f"process {holder or 'not known yet'}",
                    hint="wait for it, stop it (SIGTERM saves first), or say name=OTHER",
                )
            ) from error
        except (OSError, UserError):
            os.close(descriptor)
            raise
        os.close(descriptor)


def _opened(path: Path) -> int:
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise _no_lock(path, "a link") from error
        raise


def _check_is_lock(path: Path, descriptor: int) -> None:
    """Raise UserError for a file that is no lock: it must not be written."""
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        raise _no_lock(path, "no plain file")
    if status.st_nlink > 1:
        raise _no_lock(path, "a file that has another name as well")
    if not _CONTENT.fullmatch(os.pread(descriptor, 64, 0)):
        raise _no_lock(path, "a file with other content")


def _is_named(descriptor: int, path: Path) -> bool:
    """Whether an open file is the one of this name."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path, follow_symlinks=False))
    except OSError:
        return False


def _no_lock(path: Path, what: str) -> UserError:
    return UserError(
        Diagnostic(
            f"{path} is not the lock of a run",
            expected="nothing, or a plain file that mxrun made",
            got=what,
            hint="move it away",
        )
    )
