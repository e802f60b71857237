"""Kinds of image files: the one list for training, inference, lists of images and packs."""

from __future__ import annotations

import re

from mxrun.base.dataclass import dataclass


@dataclass(frozen=True)
class ImageKind:
    """Kind of image file.

    format: Pillow's name of the format. suffixes: endings of names; packs use the first. start:
    matches the first bytes of the content. may_have_frames: whether a file may hold several pages
    or frames, of which the first is read.
    """

    format: str
    suffixes: tuple[str, ...]
    start: re.Pattern[bytes]
    may_have_frames: bool = False


def _netpbm(suffix: str, digits: bytes) -> ImageKind:
    """Return a kind of Netpbm's images: after the digit, blanks or comments, and the width."""
    start = rb"P[%b](?:\s|#[^\r\n]*[\r\n])+[0-9]" % digits
    return ImageKind("PPM", (suffix,), re.compile(start))


# Two letters do not make an image: a table may begin with the columns P5 or BMI. The number in a
# BMP file is the length of its second header.
KINDS = (
    ImageKind("PNG", (".png",), re.compile(rb"\x89PNG")),
    ImageKind("JPEG", (".jpg", ".jpeg", ".jfif", ".jpe"), re.compile(rb"\xff\xd8\xff")),
    ImageKind("BMP", (".bmp",), re.compile(rb"BM.{12}[\x0c\x28\x34\x38\x40\x6c\x7c]\0{3}", re.S)),
    _netpbm(".ppm", b"36"),
    _netpbm(".pgm", b"25"),
    _netpbm(".pbm", b"14"),
    ImageKind("WEBP", (".webp",), re.compile(rb"RIFF.{4}WEBP", re.S), True),
    ImageKind("GIF", (".gif",), re.compile(rb"GIF8[79]a"), True),
    ImageKind("TIFF", (".tif", ".tiff"), re.compile(rb"II\*\0|MM\0\*"), True),
)
SUFFIXES = tuple(suffix for kind in KINDS for suffix in kind.suffixes)


def image_kind(content: bytes | memoryview) -> ImageKind | None:
    """Return the kind of an image by its first bytes; None for what is no image."""
    return next((kind for kind in KINDS if kind.start.match(content)), None)
