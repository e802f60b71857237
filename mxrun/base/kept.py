"""What was measured or found on this machine and is kept for later processes, as plain JSON.

Each finding lies in the user's cache folder, in a file named by all that it depends on. A folder
that cannot be written costs only that it is found again, a file that is damaged likewise.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

from mxrun.base import flags


def find(kind: str, key: str) -> Any:
    """What is kept of a kind under a key; None where there is nothing, or nothing readable."""
    path = _file(kind, key)
    if path is None:
        return None
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(content, dict) or content.get("of") != key.splitlines():
        return None
    return content.get("figures")


def keep(kind: str, key: str, figures: Any, most: int | None = None) -> None:
    """Keep what was found; `figures` is plain JSON.

    most: how many findings of this kind are kept, of which the oldest go.
    """
    path = _file(kind, key)
    if path is None:
        return
    text = json.dumps({"of": key.splitlines(), "figures": figures}, indent=1)
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor, name = tempfile.mkstemp(dir=path.parent)
    except OSError:
        return
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
        Path(name).replace(path)
    except OSError:
        with suppress(OSError):
            Path(name).unlink()
    if most is not None:
        _drop_oldest(path.parent, most)


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


def _file(kind: str, key: str) -> Path | None:
    folder = flags.cache_folder()
    name = hashlib.sha256(key.encode()).hexdigest()[:16]
    return None if folder is None else folder / kind / f"{name}.json"
