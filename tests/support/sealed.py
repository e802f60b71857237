"""Rewritten manifests with valid digests."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any


def rewrite(checkpoint: Path, **changes: Any) -> None:
    """Change entries of a checkpoint's manifest and update its digest."""
    path = checkpoint / "manifest.json"
    content = {**json.loads(path.read_bytes()), **changes}
    content.pop("sha256")
    own = hashlib.sha256(spelled(content)).hexdigest()
    path.write_bytes(spelled({**content, "sha256": own}))


def replace_file(checkpoint: Path, name: str, content: bytes) -> None:
    """Replace a file of arrays, with its record in the manifest."""
    (checkpoint / name).write_bytes(content)
    files = json.loads((checkpoint / "manifest.json").read_bytes())["files"]
    record = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    rewrite(checkpoint, files={**files, name: record})


def spelled(content: dict[str, Any]) -> bytes:
    return json.dumps(content, sort_keys=True, separators=(",", ":")).encode() + b"\n"
