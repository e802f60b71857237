"""Images as files hold them, decoded only when their batch is made."""

from __future__ import annotations

from mxrun.base.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class EncodedImage:
    """Bytes of one image file, and their source for error messages.

    as_stored: whether its pixels stay as they are stored, whatever orientation EXIF data name.
    """

    content: bytes | memoryview
    source: str
    as_stored: bool = False
