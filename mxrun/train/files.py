"""Canonical JSON, and removal of files and folders."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mxrun.base.utf8 import valid_text


def canonical_json(value: Mapping[str, Any] | Sequence[Any]) -> str:
    """Return JSON in canonical form: keys sorted, no spaces, ASCII, one line.

    NaN and infinite numbers, which JSON cannot represent, become null, and bytes of names that are
    not UTF-8 are spelled out.
    """
    return json.dumps(_plain(value), sort_keys=True, separators=(",", ":"), allow_nan=False) + "\n"


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {_plain(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, str):
        return valid_text(value)
    return None if isinstance(value, float) and not math.isfinite(value) else value


def remove(path: Path) -> None:
    """Remove a file, a link, or a folder with its content."""
    # `shutil.rmtree` does not report the path of an error.
    if path.is_dir() and not path.is_symlink():
        for entry in sorted(path.iterdir()):
            remove(entry)
        path.rmdir()
    else:
        path.unlink()
