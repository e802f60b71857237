"""Files written so that they are whole or not there, and say why when they cannot be written."""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from mxrun.base.errors import Diagnostic, UserError

# The names that files and folders have until they are whole, and once they are to go.
PARTIAL = r"(?:\.[0-9a-f]{16})?\.partial"
"""A pattern: what the name of a file that is not whole yet has behind that of the file."""

_HIDDEN = re.compile(rf"(^|/)\.([^/]+?)(?:{PARTIAL}|\.replaced|\.removed)(?=/|$)")


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


def check_writable(*paths: Path | None) -> None:
    """Raise UserError for files that `whole_file` could not write, as far as is known before.

    For what takes long, and for several files, of which none is written unless all can be.
    """
    found = [(path, why) for path in paths if path is not None and (why := why_unwritable(path))]
    if found:
        raise UserError(
            Diagnostic(
                f"cannot write {path}: {why}", expected="a file in a folder that can be written"
            )
            for path, why in found
        )


def why_unwritable(path: Path) -> str | None:
    """Why no file can be written at `path`, as far as is known before; None where it can."""
    target = Path(os.path.realpath(path))
    if target.is_dir():
        return "it is a folder"
    if not is_replaced(path):
        return None
    if not target.parent.is_dir():
        return f"there is no folder {target.parent}"
    if not os.access(target.parent, os.W_OK):
        return f"nothing can be written in {target.parent}"
    return None


@contextmanager
def whole_file(path: Path, follow: bool = True) -> Iterator[IO[bytes]]:
    """A file to write: after a crash `path` is what it was or the new file, whole and durable.

    Of several writers at once the last one's file is there in the end, whole. A link stays, and the
    file that it names is written; unless `follow`, the file takes the link's place. Devices and
    pipes, which nothing can replace, are written as they are. Raises UserError when the file cannot
    be written.
    """
    with writing(path):
        if not is_replaced(path):
            with path.open("wb") as file:
                yield file
            return
        target = Path(os.path.realpath(path)) if follow and path.is_symlink() else path
        # A name of its own: no other writer has it, and nothing that lies there is followed.
        partial = target.with_name(f".{target.name}.{secrets.token_hex(8)}.partial")
        created = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(partial, created, 0o666)
        try:
            with os.fdopen(descriptor, "wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            partial.replace(target)
        finally:
            # Once it has its name it is not there any more.
            with suppress(OSError):
                partial.unlink()
        sync_folder(target.parent)


def write_bytes(path: Path, content: bytes) -> None:
    """Write bytes as `whole_file` does; raises UserError when the file cannot be written."""
    with whole_file(path) as file:
        file.write(content)


def write_text(path: Path, content: str) -> None:
    """Write a text as `whole_file` does; raises UserError when the file cannot be written."""
    write_bytes(path, content.encode("utf-8"))
