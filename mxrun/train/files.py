"""Canonical JSON, and removal of files and folders."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


def canonical_json(value: Mapping[str, Any] | Sequence[Any]) -> str:
    """Return JSON in canonical form: keys sorted, no spaces, ASCII, one line.

    NaN and infinite numbers, which JSON cannot represent, become null.
    """
    return json.dumps(_finite(value), sort_keys=True, separators=(",", ":"), allow_nan=False) + "\n"


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
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
