"""Atomic, durable file writes, and errors that explain why a file cannot be written."""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from mxrun.base.errors import Diagnostic, UserError

# Temporary names of files and folders that are still being written, or about to be removed.
PARTIAL = r"(?:\.[0-9a-f]{16})?\.partial"
"""Pattern of the suffix that the temporary name of an incomplete file appends to its name."""

_HIDDEN = re.compile(rf"(^|/)\.([^/]+?)(?:{PARTIAL}|\.replaced|\.removed)(?=/|$)")


@contextmanager
def report_write_errors(path: Path) -> Iterator[None]:
    """Context manager that converts an OSError into a UserError naming the file.

    Temporary names are replaced by the final one in the message.
    """
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
    """Make the names in a folder durable with fsync."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folder(path: Path) -> None:
    """Create a folder durably, and those above it; nothing happens if it exists."""
    if not path.is_dir():
        make_folder(path.parent)
        path.mkdir(exist_ok=True)
        sync_folder(path.parent)


def is_replaceable(path: Path) -> bool:
    """Return whether `whole_file` replaces `path` by a new file: if it is a plain file or missing.

    Devices and pipes are not replaced.
    """
    return path.is_file() or not path.exists()


def check_writable(*paths: Path | None) -> None:
    """Raise UserError for files that `whole_file` cannot write, as far as that can be predicted.

    Call it before long work, and before writing several files if none may be written alone.
    """
    found = [(path, why) for path in paths if path is not None and (why := why_unwritable(path))]
    if found:
        raise UserError(
            Diagnostic(
                f"cannot write {path}: {why}", expected="a file in a folder that can be written"
            )
            for path, why in found
        )


def check_outputs(inputs: Mapping[Path, str], outputs: Mapping[str, Path | None]) -> None:
    """Raise UserError for an output file that is an input or another output, or not writable.

    inputs: names of files by path; outputs: paths by name. Names are those of options or arguments.
    """
    names = {path.resolve(): name for path, name in inputs.items()}
    for name, path in outputs.items():
        if path is not None:
            first = names.setdefault(path.resolve(), name)
            if first != name:
                raise UserError(
                    f"{first} and {name} name the same file, {path}: use different files"
                )
    check_writable(*outputs.values())


def why_unwritable(path: Path) -> str | None:
    """Return why no file can be written at `path`, as far as predictable; None if it can.

    A file called - is refused: whoever writes it means standard output.
    """
    if path == Path("-"):
        return "- is not a file: for standard output write /dev/stdout"
    try:
        path.exists()
        target = Path(os.path.realpath(path))
    except (OSError, ValueError) as error:
        return getattr(error, "strerror", None) or str(error)
    if target.is_dir():
        return "it is a folder"
    if not is_replaceable(path):
        return None
    if not target.parent.is_dir():
        return f"there is no folder {target.parent}"
    if not os.access(target.parent, os.W_OK):
        return f"nothing can be written in {target.parent}"
    return None


@contextmanager
def atomic_file(path: Path, follow: bool = True) -> Iterator[IO[bytes]]:
    """Context manager that yields a file and atomically renames it to `path` at the end.

    After a crash `path` is either the old file or the new one, complete and durable. If several
    processes write at once, the last writer's file remains, complete. A symbolic link stays and its
    target is written; unless `follow`, the file replaces the link. Devices and pipes cannot be
    replaced and are written directly. Raises UserError if the file cannot be written.
    """
    with report_write_errors(path):
        if not is_replaceable(path):
            with path.open("wb") as file:
                yield file
            return
        target = Path(os.path.realpath(path)) if follow and path.is_symlink() else path
        # A random name: no other writer uses it, and O_EXCL | O_NOFOLLOW never opens an existing
        # file or link.
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
            # After the rename the partial file no longer exists.
            with suppress(OSError):
                partial.unlink()
        sync_folder(target.parent)


def write_bytes(path: Path, content: bytes) -> None:
    """Write bytes atomically, see `whole_file`; raises UserError if the file cannot be written."""
    with atomic_file(path) as file:
        file.write(content)


def write_text(path: Path, content: str) -> None:
    """Write UTF-8 text atomically, see `whole_file`; raises UserError if it cannot be written."""
    write_bytes(path, content.encode("utf-8"))
