"""Reading data files: paths, size and memory limits, and error messages."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

from mxrun.base.errors import Diagnostic, SourceLocation, UserError
from mxrun.runtime.memory_limits import remaining_bytes

# Folders that file servers and archives add: thumbnails, bins and the resource forks of macOS.
_HIDDEN_FOLDERS = frozenset({"@eaDir", "@Recycle", "#recycle", "$RECYCLE.BIN", "__MACOSX"})
# Memory limit of a data set that is read at once.
MAXIMUM_BYTES = 4 << 30
_CHUNK = 1 << 20


def user_path(text: str) -> Path:
    """Return a path as written by the user, with `~` expanded to the home folder."""
    return Path(os.path.expanduser(text))


def is_hidden(path: str) -> bool:
    """Return whether a relative path leads to a hidden file, or through a hidden folder.

    They hold previews, copies and settings, such as `.ipynb_checkpoints` and `@eaDir`: no records.
    """
    parts = path.split("/")
    return any(
        part in _HIDDEN_FOLDERS or (part.startswith(".") and part not in (".", ".."))
        for part in parts
    )


def visible_below(folder: Path) -> Iterator[tuple[str, list[str], list[str]]]:
    """Yield `folder` and each folder below it, with the names of the folders and files in it.

    Hidden ones are left out and not entered. Raises UserError for a folder that cannot be read.
    """

    def stop(error: OSError) -> None:
        raise unreadable_error(error.filename or folder, error) from error

    for parent, folders, files in os.walk(folder, onerror=stop):
        folders[:] = [name for name in folders if not is_hidden(name)]
        yield parent, folders, [name for name in files if not is_hidden(name)]


def fail(
    path: Path | str, offset: int, problem: str, expected: str = "", got: str = "", hint: str = ""
) -> NoReturn:
    """Raise UserError about the byte at `offset` of a file."""
    raise UserError(Diagnostic(f"{path}: byte {offset}: {problem}", None, expected, got, hint=hint))


def with_prefix(error: UserError, where: str, place: SourceLocation | None = None) -> UserError:
    """Return the error with `where` before each problem, and `place` where it has no place yet."""
    return UserError(
        replace(found, problem=f"{where}: {found.problem}", place=found.place or place)
        for found in error.diagnostics
    )


def unreadable_error(path: Path | str, error: OSError | ValueError) -> UserError:
    """Return the UserError for a file that cannot be read."""
    reason = getattr(error, "strerror", None) or str(error)
    return UserError(f"{path}: cannot be read: {reason}")


# Hint for records that do not fit into memory.
MORE_MEMORY = (
    "use a data set that is read while training runs: image files (image_folder), packed images "
    "(mxrun pack) or uncompressed arrays with in_memory: false; or allow the process more memory"
)


# What needs no look at the limits, which are in files: half the time of a prediction from one row.
_LITTLE = 1 << 20


def check_memory(where: Path | str, needed: int) -> None:
    """Raise UserError if the `needed` bytes exceed the memory that the process may still allocate.

    where: name of the file whose content needs the memory.
    """
    if needed < _LITTLE:
        return
    remaining = remaining_bytes()
    if needed > remaining:
        problem = f"{where}: its content does not fit into memory"
        raise UserError(
            Diagnostic(
                problem,
                None,
                f"at most {remaining:,} bytes, still available to this process",
                f"{needed:,} bytes",
                hint=MORE_MEMORY,
            )
        )


def read_all_bytes(path: Path) -> bytearray:
    """Read a file; raises UserError if it cannot be read or has more than MAXIMUM_BYTES."""
    content = bytearray()
    try:
        with path.open("rb") as stream:
            # The size is 0 for anything but a regular file. Twice, as the caller briefly holds a
            # second copy.
            check_memory(path, 2 * os.fstat(stream.fileno()).st_size)
            while chunk := stream.read(_CHUNK):
                content += chunk
                if len(content) > MAXIMUM_BYTES:
                    expected = f"at most {MAXIMUM_BYTES} bytes"
                    fail(path, MAXIMUM_BYTES, "the file is too large to hold in memory", expected)
    except (OSError, ValueError) as error:
        raise unreadable_error(path, error) from error
    return content


def find_file(folder: Path, *names: str) -> Path:
    """Return the path of the first of `names` that is a file in `folder`.

    Raises UserError saying what was found instead.
    """
    try:
        for name in names:
            if (folder / name).is_file():
                return folder / name
        if folder.is_dir():
            got = "a folder without it"
        else:
            got = "a file" if folder.exists() else "no such folder"
    except (OSError, ValueError) as error:
        got = str(error)
    problem = f"{folder}: {' or '.join(names)} not found"
    hint = "`path` is the folder that contains the files"
    raise UserError(Diagnostic(problem, None, "a folder with this file", got, hint=hint))
