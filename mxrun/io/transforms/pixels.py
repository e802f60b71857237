"""Transforms of the pixels of images [channels, height, width], on float32 values."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from mxrun.io.transforms.base import Side, Uniform, ValueTransform, register
from mxrun.io.transforms.geometry import Augmentation


@register("cutout")
class Cutout(Augmentation, ValueTransform):
    """Set a square around a random pixel to zero, clipped at the borders; in evaluation nothing.

    Source: T. DeVries, G. W. Taylor, "Improved Regularization of Convolutional Neural Networks with
    Cutout", 2017.
    """

    draws: ClassVar[int] = 2

    size: Side = Field(description="Side of the square in pixels.", examples=[8])

    def change(self, values: NDArray[np.float32], uniform: Uniform) -> None:
        """Set the squares to zero."""
        first = (uniform * values.shape[2:]).astype(np.int64) - self.size // 2
        begin, end = np.maximum(first, 0), np.maximum(first + self.size, 0)
        for record, (top, left), (bottom, right) in zip(
            values, begin.tolist(), end.tolist(), strict=True
        ):
            record[:, top:bottom, left:right] = 0
