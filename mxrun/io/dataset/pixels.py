"""Pixels and numbers: the role of a column's values, which decides whether they are scaled.

The records of an input are images if they come from image files, or if the config declares their
arrays as images by the pixel value of white. Their pixels are divided by it, so that a batch holds
0..1. All other records are numbers and keep their values. The dtype of an array decides nothing.
The role that an input has in training is part of the saved run, and every other source of records
is read alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mxrun.base.errors import Diagnostic, UserError

# Pixel value of white in image files.
WHITE = 255.0
# Largest value of fractions that exceed the white 1, and cannot be pixels up to 255.
_MAX_EXCESS = 2
# Pixel values of white by the name of an input; inputs that are not named hold numbers.
Whites = Mapping[str, float]
# White of data sets whose records are image files, or hold pixels as these do.
IMAGES: Whites = {"data": WHITE}


def unit_values(pixels: NDArray[Any], white: float) -> NDArray[np.float32]:
    """Return float32(pixel) * float32(1 / white)."""
    found: NDArray[np.float32] = pixels.astype(np.float32, copy=False)
    return found if white == 1 else found * np.float32(1 / white)


def are_unit_values(pixels: NDArray[Any], white: float) -> bool:
    """Return whether pixels are images whose white is 1, where `white` is expected to be white.

    These are numbers from 0 to 1, as many programs make them. With a larger white they would all be
    black. Bytes are excepted: a file's pixels are, and its image may be black.
    """
    if not pixels.size or pixels.dtype == np.uint8 or white <= 1:
        return False
    return 0 < float(pixels.max()) <= 1 and float(pixels.min()) >= 0


def implied_white(scale: float | None, white: float | None) -> float | None:
    """Return the white of a column; what is scaled are images, whose white is 1 / scale."""
    return round(1 / scale, 6) if white is None and scale not in (None, 1) else white


def checked_pixels(pixels: NDArray[Any], white: float, where: str) -> NDArray[Any]:
    """Return the pixels; raises UserError if they cannot be images in which white is `white`.

    They must be from 0 to `white`, and not be images whose white is 1. where: name of the array for
    messages.
    """
    check_white(pixels, white, where)
    return pixels_in_range(pixels, white, where)


def pixels_in_range(pixels: NDArray[Any], white: float, where: str) -> NDArray[Any]:
    """Return the pixels; raises UserError unless they are numbers from 0 to `white`."""
    if not pixels.size or (pixels.dtype == np.uint8 and white >= WHITE):
        return pixels
    least, greatest = float(pixels.min()), float(pixels.max())
    if least < 0 or greatest > white:
        problem = f"{where}: not the pixels of images"
        expected = f"numbers from 0, which is black, to {white:g}, which is white"
        hint = (
            "`images: {INPUT: WHITE}` in the data section declares white; arrays for a trained "
            "network have the white of its training data"
        )
        got = f"numbers from {least:g} to {greatest:g}"
        raise UserError(Diagnostic(problem, None, expected, got, hint=hint))
    return pixels


def check_white(pixels: NDArray[Any], white: float, where: str) -> None:
    """Raise UserError for pixels of which 1 must be white, and not `white`.

    These are numbers from 0 to 1, and fractions that are a little larger, as filters make them.
    """
    if are_unit_values(pixels, white):
        hint = "write `images: {INPUT: 1}` in the data section"
    elif _exceed_unit_values(pixels, white):
        hint = "if 1 is white: numpy.clip(pixels, 0, 1)"
    else:
        return
    greatest = float(pixels.max())
    problem = f"{where}: the pixels of images are fractions up to {greatest:g}"
    got = f"numbers from {float(pixels.min()):g} to {greatest:g}"
    expected = f"numbers from 0 to {white:g}, which is white"
    raise UserError(Diagnostic(problem, None, expected, got, hint=hint))


def _exceed_unit_values(pixels: NDArray[Any], white: float) -> bool:
    """Return whether pixels are fractions of which some are above 1, but almost black."""
    if not pixels.size or pixels.dtype.kind != "f" or white < WHITE:
        return False
    is_dark = float(pixels.max()) <= _MAX_EXCESS and float(pixels.min()) >= 0
    return is_dark and bool((pixels != np.floor(pixels)).any())


def unlike_training(where: str) -> Diagnostic:
    """Return the diagnostic for arrays that are declared as images, unlike those of training."""
    problem = f"{where}: declared as images, but training reads numbers there"
    return Diagnostic(problem, None, "arrays without `images`, or with it in data.train too")


def values_text(whites: Whites, names: Iterable[str]) -> str:
    """Return how the values of inputs are read, on one line; empty without inputs."""
    groups: dict[str, list[str]] = {}
    for name in names:
        white = whites.get(name)
        text = "numbers as they are" if white is None else f"images, 0..{white:g} becomes 0..1"
        groups.setdefault(text, []).append(name)
    return "; ".join(f"{', '.join(group)}: {text}" for text, group in groups.items())
