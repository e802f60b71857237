"""Images and arrays as contents of files."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image


def pixels(number: int) -> NDArray[np.uint8]:
    """Return an image, uint8 [6, 8, 3]."""
    return (np.arange(6 * 8 * 3).reshape(6, 8, 3) * 3 + 40 * number).astype(np.uint8)


def png(number: int) -> bytes:
    """Return the image `pixels(number)` as a PNG file, uncompressed within."""
    stream = io.BytesIO()
    Image.fromarray(pixels(number)).save(stream, "png")
    return stream.getvalue()


def npy(array: NDArray[Any]) -> bytes:
    """Return an array as an NPY file."""
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()
