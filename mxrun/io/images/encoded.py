"""Images as files hold them, decoded only when their batch is made."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from mxrun.io.files import unreadable_error


@dataclass(frozen=True, slots=True)
class EncodedImage:
    """Bytes of one image file, and their source for error messages."""

    content: bytes | memoryview
    source: str


def read_encoded(path: Path) -> EncodedImage:
    """Return the bytes of an image file; raises UserError if it cannot be read."""
    try:
        return EncodedImage(path.read_bytes(), str(path))
    except (OSError, ValueError) as error:
        raise unreadable_error(path, error) from error
