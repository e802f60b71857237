"""Files of records: where they are, how much of them is read, how what is wrong is told."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

from mxrun.base.errors import Diagnostic, SourceLocation, UserError
from mxrun.runtime.storage import remaining_bytes

# What a data set that is read at once may take in memory.
MAXIMUM_BYTES = 4 << 30
_CHUNK = 1 << 20


def user_path(text: str) -> Path:
    """A path as the user writes it: `~` is the home folder."""
    return Path(os.path.expanduser(text))


def fail(
    path: Path | str, offset: int, problem: str, expected: str = "", got: str = "", hint: str = ""
) -> NoReturn:
    """Raise UserError about the byte `offset` of a file."""
    raise UserError(Diagnostic(f"{path}: byte {offset}: {problem}", None, expected, got, hint))


def prefixed(error: UserError, where: str, place: SourceLocation | None = None) -> UserError:
    """The same error saying `where`, and `place` unless it knows its own."""
    return UserError(
        replace(found, problem=f"{where}: {found.problem}", place=found.place or place)
        for found in error.diagnostics
    )


def unreadable(path: Path | str, error: OSError | ValueError) -> UserError:
    """What to raise for a file that the system does not let us read."""
    reason = getattr(error, "strerror", None) or str(error)
    return UserError(f"{path}: cannot be read: {reason}")


def check_memory(where: Path | str, needed: int) -> None:
    """Raise UserError where so many bytes, for what is in a file, are more than there are."""
    remaining = remaining_bytes()
    if needed > remaining:
        problem = f"{where}: what it holds does not fit into memory"
        raise UserError(
            Diagnostic(
                problem,
                None,
                f"at most {remaining:,} bytes, which this process may still take",
                f"{needed:,} bytes",
                "give fewer records at a time, or allow the process more memory",
            )
        )


def read_whole(path: Path) -> bytearray:
    """A file's bytes; raises UserError where it cannot be read or has more than MAXIMUM_BYTES."""
    content = bytearray()
    try:
        with path.open("rb") as stream:
            # Zero for what is no file on a disk; the caller holds it a second time for a while.
            check_memory(path, 2 * os.fstat(stream.fileno()).st_size)
            while piece := stream.read(_CHUNK):
                content += piece
                if len(content) > MAXIMUM_BYTES:
                    most = f"at most {MAXIMUM_BYTES} bytes"
                    fail(path, MAXIMUM_BYTES, "the file is too large to hold in memory", most)
    except (OSError, ValueError) as error:
        raise unreadable(path, error) from error
    return content


def find_file(folder: Path, *names: str) -> Path:
    """The first of `names` in `folder`; raises UserError saying what is there instead."""
    try:
        for name in names:
            if (folder / name).is_file():
                return folder / name
        if folder.is_dir():
            there = "a folder without it"
        else:
            there = "a file" if folder.exists() else "nothing there"
    except (OSError, ValueError) as error:
        there = str(error)
    problem = f"{folder}: {' or '.join(names)} is not there"
    hint = "`path` names the folder that holds the files"
    raise UserError(Diagnostic(problem, None, "a folder with this file", there, hint))
