"""Lock of a run's folder: one process may write it, until the folder is replaced."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from mxrun.base.dataclass import dataclass
from mxrun.base.errors import Diagnostic, UserError
from mxrun.base.files import make_folder, report_write_errors
from mxrun.train.advice import ON_COMMAND_LINE, Advice

LOCK_FILE = ".lock"

# Content of a lock file: the id of the process that holds it. A loss of power may leave zeros.
_CONTENT = re.compile(rb"\0*|[0-9]{0,20}\n?")


@dataclass(frozen=True)
class RunLock:
    """Exclusive right to write a run's folder."""

    path: Path
    descriptor: int

    def check(self) -> None:
        """Raise UserError if the folder has been removed or replaced since it was locked.

        The folder that is there now may be another run's and must not be written.
        """
        if not _is_named(self.descriptor, self.path / LOCK_FILE):
            raise UserError(
                Diagnostic(
                    f"{self.path} was removed or replaced while the run was writing it",
                    hint="the run has stopped without changing the present folder; start it again",
                )
            )


@contextmanager
def only_writer(path: Path, advice: Advice = ON_COMMAND_LINE) -> Iterator[RunLock]:
    """Create the folder `path` and lock it against other processes within the block.

    The lock is the system's (flock) on a file with this process's id, so that it ends with the
    process in any case. Raises UserError naming the process that holds the lock, or if the lock
    file's name is used by something else. advice: words for what to do then.
    """
    with report_write_errors(path):
        make_folder(path)
        descriptor = _locked(path / LOCK_FILE, advice)
    try:
        with report_write_errors(path):
            os.truncate(descriptor, 0)
            os.write(descriptor, b"%d\n" % os.getpid())
        yield RunLock(path, descriptor)
    finally:
        # Unlink before unlocking: a process that has opened the file sees that its name is gone.
        if _is_named(descriptor, path / LOCK_FILE):
            with suppress(OSError):
                (path / LOCK_FILE).unlink()
        os.close(descriptor)


def is_being_written(path: Path) -> bool:
    """Return whether a process is writing the run in the folder `path`.

    The lock is tried only if its process exists, so that no starting run finds it taken.
    """
    try:
        descriptor = os.open(path / LOCK_FILE, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        holder = os.pread(descriptor, 21, 0).strip()
        if not holder.isdigit() or not _exists(int(holder)):
            return False
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return False


def _exists(process: int) -> bool:
    """Return whether there is a process with this id."""
    try:
        os.kill(process, 0)
    except PermissionError:
        return True
    except (OSError, OverflowError):
        return False
    return process > 0


def _locked(path: Path, advice: Advice) -> int:
    """Return the descriptor of a locked file that still has its name."""
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
                    hint=f"wait for it, stop it (SIGTERM saves first), or give {advice.other_name}",
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
    """Raise UserError if a file is not a lock file and therefore must not be written."""
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        raise _no_lock(path, "not a regular file")
    if status.st_nlink > 1:
        raise _no_lock(path, "a file with another hard link")
    if not _CONTENT.fullmatch(os.pread(descriptor, 64, 0)):
        raise _no_lock(path, "a file with other content")


def _is_named(descriptor: int, path: Path) -> bool:
    """Return whether `path` still names the open file."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path, follow_symlinks=False))
    except OSError:
        return False


def _no_lock(path: Path, got: str) -> UserError:
    return UserError(
        Diagnostic(
            f"{path} is not the lock of a run",
            expected="no file, or a regular file made by mxrun",
            got=got,
            hint="move it away",
        )
    )
