"""Images that are files of their own, as a lazily read column."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from mxrun.base.errors import Diagnostic, UserError
from mxrun.io.dataset.fields import LazyField
from mxrun.io.dataset.location import RecordLocation
from mxrun.io.formats.byte_file import ByteFile
from mxrun.io.formats.content_digest import content_digest
from mxrun.io.images.encoded import EncodedImage

# Limit of one image's file. The largest image that is decoded has 192 MiB of pixels.
MAXIMUM_FILE_BYTES = 1 << 28


def image_column(files: Sequence[tuple[bytes, Path]], channels: int) -> LazyField:
    """Return images as a column, uint8 [channels, any, any] that is scaled to 0..1.

    files: the images and their names for the digest of the content, such as a path below a folder.
    """
    return LazyField.images(
        partial(_read, files),
        len(files),
        (channels, None, None),
        content=partial(content_digest, files),
        locate=partial(locate_image, files),
    )


def locate_image(files: Sequence[tuple[bytes, Path]], index: int) -> RecordLocation:
    """Return the place of an image."""
    return RecordLocation(str(files[index][1]))


def _read(files: Sequence[tuple[bytes, Path]], index: int) -> EncodedImage:
    path = files[index][1]
    file = ByteFile(path)
    if file.size > MAXIMUM_FILE_BYTES:
        problem = f"{path}: the file is too large for an image"
        expected = f"at most {MAXIMUM_FILE_BYTES:,} bytes"
        raise UserError(Diagnostic(problem, None, expected, f"{file.size:,} bytes"))
    return EncodedImage(file.read(0, file.size), str(path))
