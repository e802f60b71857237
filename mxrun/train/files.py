"""Files written so that they are whole or not there, and say why when they cannot be written."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from mxrun.base.errors import Diagnostic, UserError


def canonical_json(value: Mapping[str, Any] | Sequence[Any]) -> str:
    """JSON of one spelling: keys sorted, no spaces, ASCII, one line.

    Numbers that JSON cannot write (a loss that became NaN or infinite) are null.
    """
    return json.dumps(_finite(value), sort_keys=True, separators=(",", ":"), allow_nan=False) + "\n"


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn what the system says against writing `path` into a UserError that names it."""
    try:
        yield
    except OSError as error:
        at = error.filename if isinstance(error.filename, str) else str(path)
        reason = (error.strerror or str(error)).lower()
        raise UserError(
            Diagnostic(
                f"cannot write {at}: {reason}",
                hint="check free space and permissions, or run in another folder",
            )
        ) from error


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove(path: Path) -> None:
    """Remove a file, a link or a folder with all that it holds."""
    # `shutil.rmtree` would tell of errors without saying where.
    if path.is_dir() and not path.is_symlink():
        for entry in sorted(path.iterdir()):
            remove(entry)
        path.rmdir()
    else:
        path.unlink()


def write_durably(path: Path, content: bytes) -> None:
    """Replace `path` by `content`: after a crash it is the old file or the new one, whole."""
    partial = path.with_name(f".{path.name}.partial")
    try:
        with partial.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    finally:
        # Once it has its name it is not there any more.
        with suppress(OSError):
            partial.unlink()
    sync_folder(path.parent)
