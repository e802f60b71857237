"""What was measured or found on this machine and is kept for later processes, as plain JSON.

Each finding lies in the user's cache folder, in a file named by all that it depends on. A folder
that cannot be written costs only that it is found again, a file that is damaged likewise.
"""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from pathlib import Path
from typing import Any

from mxrun.base import cache_files


def get(kind: str, key: str) -> Any:
    """What is kept of a kind under a key; None where there is nothing, or nothing readable."""
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
    """Keep what was found; `figures` is plain JSON.

    most: how many findings of this kind are kept, of which the oldest go.
    """
    text = json.dumps({"of": key.splitlines(), "figures": figures}, indent=1)
    folder = cache_files.write(kind, _name(key), text.encode())
    if folder is not None and most is not None:
        _drop_oldest(folder, most)


def _drop_oldest(folder: Path, most: int) -> None:
    """Leave the newest files; others may remove the same ones meanwhile."""
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
