"""Images as files hold them, decoded only when their batch is made."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class EncodedImage:
    """Bytes of one image file, and their source for error messages."""

    content: bytes | memoryview
    source: str
