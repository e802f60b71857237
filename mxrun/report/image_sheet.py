"""Sheet of images with captions, as a PNG file."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mxrun.report.printable import printable

# Sides of a tile in pixels: small images are enlarged by a whole number, large ones reduced.
_MIN_SIDE, _MAX_SIDE = 96, 256
_GAP, _LINE = 8, 14
_PAPER, _INK, _FRAME = (255, 255, 255), (32, 32, 32), (208, 208, 208)
# Colours of boxes by class (Okabe and Ito's, which colour-blind people can tell apart).
_COLORS = ("#e69f00", "#56b4e9", "#009e73", "#f0e442", "#0072b2", "#d55e00", "#cc79a7")
# Width of a character of the default font, about.
_CHARACTER = 6


def image_sheet(
    pictures: Sequence[NDArray[np.uint8]],
    captions: Sequence[Sequence[str]],
    boxes: Sequence[NDArray[np.float32]] = (),
) -> bytes:
    """Return a PNG with the pictures in rows, from left to right, each above its captions.

    pictures: [height, width] or [height, width, 3]. captions: lines of each picture; a line that is
    too long is cut. boxes: of each picture, to be drawn on it, in a colour for each class: [boxes,
    5 or more], class, left, top, right, bottom in 0..1. The same pictures, captions and boxes give
    the same pixels.
    """
    from PIL import Image, ImageDraw, ImageFont

    tiles = [_tile(picture) for picture in pictures]
    for tile, found in zip(tiles, boxes, strict=False):
        _draw_boxes(tile, found)
    width = max(tile.width for tile in tiles)
    height = max(tile.height for tile in tiles)
    lines = max(map(len, captions), default=0)
    columns = math.ceil(math.sqrt(len(tiles)))
    rows = math.ceil(len(tiles) / columns)
    step = (width + _GAP, height + _GAP + lines * _LINE)
    sheet = Image.new("RGB", (_GAP + columns * step[0], _GAP + rows * step[1]), _PAPER)
    draw, font = ImageDraw.Draw(sheet), ImageFont.load_default()
    for number, (tile, texts) in enumerate(zip(tiles, captions, strict=True)):
        row, column = divmod(number, columns)
        left, top = _GAP + column * step[0], _GAP + row * step[1]
        sheet.paste(tile, (left, top))
        box = (left - 1, top - 1, left + tile.width, top + tile.height)
        draw.rectangle(box, outline=_FRAME)
        for line, text in enumerate(texts):
            at = (left, top + height + 2 + line * _LINE)
            draw.text(at, _fitted(text, width), _INK, font)
    stream = io.BytesIO()
    sheet.save(stream, "PNG")
    return stream.getvalue()


def _tile(picture: NDArray[np.uint8]) -> Any:
    """Return a picture as an image whose longer side is between the limits."""
    from PIL import Image

    image = Image.fromarray(picture).convert("RGB")
    longer = max(image.size)
    if longer > _MAX_SIDE:
        ratio = _MAX_SIDE / longer
        width, height = (max(1, round(side * ratio)) for side in image.size)
        return image.resize((width, height), Image.Resampling.BOX)
    factor = max(1, _MIN_SIDE // longer)
    size = (image.width * factor, image.height * factor)
    return image.resize(size, Image.Resampling.NEAREST)


def _draw_boxes(tile: Any, boxes: NDArray[np.float32]) -> None:
    """Draw boxes on a tile."""
    from PIL import ImageDraw

    draw = ImageDraw.Draw(tile)
    sides = (tile.width, tile.height) * 2
    for number, *corners in boxes[:, :5].tolist():
        ends = [round(at * side) for at, side in zip(corners, sides, strict=True)]
        # A box that a transform has turned inside out must not end the command.
        left, right = sorted(ends[::2])
        top, bottom = sorted(ends[1::2])
        color = _COLORS[int(number) % len(_COLORS)]
        draw.rectangle((left, top, right, bottom), outline=color, width=2)


def _fitted(text: str, width: int) -> str:
    """Return a text in the characters of the font, cut to a width in pixels."""
    most = max(4, width // _CHARACTER)
    plain = printable(text).encode("latin-1", "replace").decode("latin-1")
    return plain if len(plain) <= most else f"{plain[: most - 2]}.."
