"""Files written so that they are whole or not there, and say why when they cannot be written."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from mxrun.base.errors import Diagnostic, UserError

# The names that files and folders have until they are whole, and once they are to go.
_HIDDEN = re.compile(r"(^|/)\.([^/]+)\.(?:partial|replaced|removed)(?=/|$)")


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn what the system says against writing `path` into a UserError that names it."""
    try:
        yield
    except OSError as error:
        named = error.filename if isinstance(error.filename, str) else str(path)
        at = _HIDDEN.sub(r"\1\2", named)
        reason = (error.strerror or str(error)).lower()
        raise UserError(
            Diagnostic(
                f"cannot write {at}: {reason}",
                hint="check free space and permissions, or write to another folder",
            )
        ) from error


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def is_replaced(path: Path) -> bool:
    """Whether `whole_file` puts a new file in place of `path`: anything but a device, a pipe or
    another thing that is no plain file is.
    """
    return path.is_file() or not path.exists()


@contextmanager
def whole_file(path: Path) -> Iterator[IO[bytes]]:
    """A file to write: after a crash `path` is what it was or the new file, whole and durable.

    A link stays, and the file that it names is written. Devices and pipes, which nothing can
    replace, are written as they are. Raises UserError when the file cannot be written.
    """
    with writing(path):
        if not is_replaced(path):
            with path.open("wb") as file:
                yield file
            return
        target = Path(os.path.realpath(path)) if path.is_symlink() else path
        partial = target.with_name(f".{target.name}.partial")
        try:
            with partial.open("wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            partial.replace(target)
        finally:
            # Once it has its name it is not there any more.
            with suppress(OSError):
                partial.unlink()
        sync_folder(target.parent)


def write_text(path: Path, content: str) -> None:
    """Write a text as `whole_file` does; raises UserError when the file cannot be written."""
    with whole_file(path) as file:
        file.write(content.encode("utf-8"))
