"""Images that are files of their own, as a lazily read column."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from mxrun.base.errors import Diagnostic, UserError
from mxrun.base.near_names import listed
from mxrun.io.dataset.fields import LazyField
from mxrun.io.dataset.location import RecordLocation
from mxrun.io.formats.byte_file import ByteFile
from mxrun.io.formats.content_digest import content_digest
from mxrun.io.images.decode import has_frames
from mxrun.io.images.encoded import EncodedImage
from mxrun.io.images.kinds import KINDS

# Limit of one image's file. The largest image that is decoded has 192 MiB of pixels.
MAXIMUM_FILE_BYTES = 1 << 28
_MAX_LOOKED_AT = 200


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


def frame_notes(files: Sequence[Path]) -> tuple[str, ...]:
    """Return a note if files hold several pages or frames, of which the first is read.

    The first files whose suffix allows it are looked at; `mxrun datasets check` looks at all.
    """
    suffixes = tuple(end for kind in KINDS if kind.may_have_frames for end in kind.suffixes)
    possible = [file for file in files if file.name.lower().endswith(suffixes)]
    found = []
    for file in possible[:_MAX_LOOKED_AT]:
        # Damaged files are reported when they are read.
        with suppress(UserError):
            if has_frames(_read([(b"", file)], 0)):
                found.append(str(file))
    if not found:
        return ()
    return (f"of several pages or frames the first is read: {listed(found)}",)


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
