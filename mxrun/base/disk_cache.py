"""Disk cache of measurements and search results for later processes, as plain JSON.

Each entry is one file in the user's cache folder. The hash of the entry's key, a text of everything
the entry depends on, is the file's name. If the folder cannot be written or a file is damaged, the
value is computed again.
"""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from pathlib import Path
from typing import Any

from mxrun.base import cache_files


def get(kind: str, key: str) -> Any:
    """Return the cached value of a kind under a key; None if there is no readable one."""
    text = cache_files.read(kind, _name(key))
    if text is None:
        return None
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(content, dict) or content.get("of") != key.splitlines():
        return None
    return content.get("figures")


def put(kind: str, key: str, figures: Any, most: int | None = None) -> None:
    """Store a value, which must be plain JSON.

    most: maximum number of entries of this kind; the oldest are removed.
    """
    text = json.dumps({"of": key.splitlines(), "figures": figures}, indent=1)
    folder = cache_files.write(kind, _name(key), text.encode())
    if folder is not None and most is not None:
        _drop_oldest(folder, most)


def _drop_oldest(folder: Path, most: int) -> None:
    """Remove all but the newest `most` files; other processes may remove files at the same time."""
    ages = []
    with suppress(OSError):
        for path in folder.iterdir():
            with suppress(OSError):
                ages.append((path.stat().st_mtime_ns, path))
    for _, path in sorted(ages)[: max(0, len(ages) - most)]:
        with suppress(OSError):
            path.unlink()


def _name(key: str) -> str:
    return f"{hashlib.sha256(key.encode()).hexdigest()[:16]}.json"
