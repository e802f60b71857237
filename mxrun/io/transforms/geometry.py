"""Geometric transforms of images [channels, height, width]."""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, field_validator

from mxrun.base.errors import Diagnostic, UserError
from mxrun.io.transforms.base import (
    RecordShape,
    Side,
    Sides,
    Transform,
    Uniform,
    WindowTransform,
    register,
    sides,
)
from mxrun.io.transforms.windows import ImageWindows, Int64

Bounds = tuple[float, float]

# 224 / 256: the common evaluation of networks trained on random crops of 224.
_EVALUATED_PART = 0.875
_ATTEMPTS = 10


@register(
    "resize",
    foreign={
        "{resize: {size: [32, 32]}}": "resizing scale",
    },
)
class Resize(WindowTransform):
    """Resize by bilinear interpolation, which averages where the image shrinks.

    `size: n` makes the shorter side n and keeps the ratio (the longer side is rounded down);
    `size: [height, width]` gives exactly these sides. Bytes stay bytes. Crops, flips and resizes
    that follow each other are one resampling of the image.
    """

    resamples: ClassVar[bool] = True

    size: Side | Sides = Field(
        description="The shorter side, or [height, width], in pixels.", examples=[256]
    )

    def output(self, shape: RecordShape) -> RecordShape:
        """Return [channels, *size], with the longer side computed by the ratio if `size` is one
        number.
        """
        channels, height, width = image_shape(shape)
        if not isinstance(self.size, int):
            return (channels, *self.size)
        if height is None or width is None:
            return (channels, None, None)
        found = self._sides(np.array([height]), np.array([width]))
        return (channels, int(found[0][0]), int(found[1][0]))

    def move(self, windows: ImageWindows, uniform: Uniform) -> None:
        """Resize the results."""
        windows.resize(*self._sides(windows.y.out, windows.x.out))

    def _sides(self, heights: Int64, widths: Int64) -> tuple[Int64, Int64]:
        shape = heights.shape
        if not isinstance(self.size, int):
            return np.full(shape, self.size[0]), np.full(shape, self.size[1])
        shorter = np.maximum(np.minimum(heights, widths), 1)
        found = (np.maximum(self.size * side // shorter, self.size) for side in (heights, widths))
        return next(found), next(found)


class _Crop(WindowTransform):
    """Crop of fixed size; a single number is the side of a square."""

    size: Side | Sides = Field(
        description="The side of a square, or [height, width], in pixels.", examples=[224]
    )

    def output(self, shape: RecordShape) -> RecordShape:
        """Return [channels, *size]; raises UserError if the image is smaller."""
        channels, *given = image_shape(shape)
        required = sides(self.size)
        if any(
            have is not None and have < want for have, want in zip(given, required, strict=True)
        ):
            raise UserError(
                Diagnostic(
                    "the image is smaller than the crop",
                    expected=f"at least {list(required)}",
                    got=str(given),
                    hint="resize it first",
                )
            )
        return (channels, *required)

    def unfit(self, heights: Int64, widths: Int64) -> NDArray[np.bool_]:
        """Return which images are smaller."""
        height, width = sides(self.size)
        found: NDArray[np.bool_] = (heights < height) | (widths < width)
        return found


@register("center_crop")
class CenterCrop(_Crop):
    """Cut out the centre; the extra pixel of an odd margin is removed at the bottom and right."""

    def move(self, windows: ImageWindows, uniform: Uniform) -> None:
        """Crop the results to their centres."""
        height, width = sides(self.size)
        windows.crop((windows.y.out - height) // 2, (windows.x.out - width) // 2, height, width)


@register(
    "random_crop",
    foreign={
        "random_crop: {size: [24, 24]}": "crop",
    },
)
class RandomCrop(_Crop):
    """Cut out a part at a uniformly random position; in evaluation the centre."""

    draws: ClassVar[int] = 2

    def evaluation(self) -> tuple[Transform, ...]:
        """Return a centre crop of the same size."""
        return (CenterCrop(size=self.size),)

    def move(self, windows: ImageWindows, uniform: Uniform) -> None:
        """Crop the results at random positions."""
        height, width = sides(self.size)
        _crop_at(windows, height, width, uniform)


@register("random_resized_crop")
class RandomResizedCrop(WindowTransform):
    """Cut out a part of random area, ratio and position, and resize it.

    The area is a fraction of the image's, drawn uniformly from `area`; width / height is drawn from
    `ratio` on a logarithmic scale. After ten draws that do not fit into the image, the largest
    centre crop that `ratio` allows is used. In evaluation, the shorter side is resized to the
    larger of `size` / 0.875, then the centre is cut out.
    """

    draws: ClassVar[int] = 2 * (_ATTEMPTS + 1)
    resamples: ClassVar[bool] = True

    size: Side | Sides = Field(
        description="The side of a square, or [height, width], in pixels.", examples=[224]
    )
    area: Bounds = Field(
        default=(0.08, 1.0),
        description="Least and greatest area, as fractions of the image's.",
        examples=[[0.25, 1.0]],
    )
    ratio: Bounds = Field(
        default=(3 / 4, 4 / 3),
        description="Least and greatest width / height.",
        examples=[[0.8, 1.25]],
    )

    @field_validator("area", "ratio")
    @classmethod
    def _ordered(cls, given: Bounds) -> Bounds:
        if not 0 < given[0] <= given[1] <= 1000:
            raise ValueError("an interval is [least, greatest] with 0 < least <= greatest")
        return given

    @field_validator("area")
    @classmethod
    def _part(cls, given: Bounds) -> Bounds:
        if given[1] > 1:
            raise ValueError("area is a fraction of the image's: at most 1")
        return given

    def evaluation(self) -> tuple[Transform, ...]:
        """Return a resize and a centre crop."""
        shorter = round(max(sides(self.size)) / _EVALUATED_PART)
        return (Resize(size=shorter), CenterCrop(size=self.size))

    def output(self, shape: RecordShape) -> RecordShape:
        """Return [channels, *size]."""
        return (image_shape(shape)[0], *sides(self.size))

    def move(self, windows: ImageWindows, uniform: Uniform) -> None:
        """Crop the results at random and resize them."""
        heights, widths, fits = self._drawn(windows.y.out, windows.x.out, uniform[:, :-2])
        all_heights, all_widths = self._largest(windows.y.out, windows.x.out)
        height, width = np.where(fits, heights, all_heights), np.where(fits, widths, all_widths)
        free = np.maximum(windows.y.out - height, 0), np.maximum(windows.x.out - width, 0)
        top, left = (
            np.where(fits, _draws(room + 1, drawn), room // 2)
            for room, drawn in zip(free, uniform[:, -2:].T, strict=True)
        )
        windows.crop(top, left, height, width)
        windows.resize(*sides(self.size))

    def _drawn(
        self, heights: Int64, widths: Int64, uniform: Uniform
    ) -> tuple[Int64, Int64, NDArray[np.bool_]]:
        """Return the first drawn sizes that fit into the images, and which images have one."""
        low, high = (math.log(bound) for bound in self.ratio)
        share = self.area[0] + uniform[:, 0::2] * (self.area[1] - self.area[0])
        area = (heights * widths)[:, np.newaxis] * share
        ratio = np.exp(low + uniform[:, 1::2] * (high - low))
        height = np.rint(np.sqrt(area / ratio)).astype(np.int64)
        width = np.rint(np.sqrt(area * ratio)).astype(np.int64)
        fits = (height > 0) & (height <= heights[:, np.newaxis])
        fits &= (width > 0) & (width <= widths[:, np.newaxis])
        rows, first = np.arange(len(heights)), fits.argmax(axis=1)
        return height[rows, first], width[rows, first], np.asarray(fits.any(axis=1))

    def _largest(self, heights: Int64, widths: Int64) -> tuple[Int64, Int64]:
        """Return the sizes of the largest parts of images that `ratio` allows."""
        minimum, maximum = self.ratio
        high, wide = widths < minimum * heights, widths > maximum * heights
        lower = np.clip(np.rint(widths / minimum).astype(np.int64), 1, np.maximum(heights, 1))
        narrower = np.clip(np.rint(heights * maximum).astype(np.int64), 1, np.maximum(widths, 1))
        return np.where(high, lower, heights), np.where(wide, narrower, widths)


class Augmentation(Transform):
    """Random change of an image that keeps its shape and is left out in evaluation."""

    def evaluation(self) -> tuple[Transform, ...]:
        """Return no transform."""
        return ()

    def output(self, shape: RecordShape) -> RecordShape:
        """Return `shape`; raises UserError unless it is an image."""
        return image_shape(shape)


@register(
    "flip",
    foreign={
        "flip": "randomhorizontalflip randomflip horizontalflip randomleftright",
    },
)
class Flip(Augmentation, WindowTransform):
    """Mirror left and right with a probability; in evaluation nothing."""

    draws: ClassVar[int] = 1

    probability: float = Field(
        default=0.5, ge=0, le=1, description="Probability of mirroring.", examples=[0.3]
    )

    @property
    def required_change(self) -> str:
        """Expected parameter if the probability is 0, else empty."""
        return "" if self.probability else "a probability above 0"

    def move(self, windows: ImageWindows, uniform: Uniform) -> None:
        """Mirror some of the results."""
        windows.flip(uniform[:, 0] < self.probability)


@register(
    "pad_crop",
    foreign={
        "{pad_crop: {pad: 4}}, which pads and then crops at random": "pad zeropadding2d",
    },
)
class PadCrop(Augmentation, WindowTransform):
    """Pad with zeros, then crop to the original size at random; in evaluation nothing."""

    # Evaluation needs no transform, as the centre crop of the padded image is the image.
    draws: ClassVar[int] = 2
    pads: ClassVar[bool] = True

    pad: Side = Field(description="Width of the border in pixels.", examples=[4])

    def move(self, windows: ImageWindows, uniform: Uniform) -> None:
        """Move the results over their borders."""
        top, left = (_draws(2 * self.pad + 1, drawn) - self.pad for drawn in uniform.T)
        windows.crop(top, left, windows.y.out, windows.x.out)


def image_shape(shape: RecordShape) -> tuple[int | None, int | None, int | None]:
    """Return the three dimensions of an image; raises UserError for a record of another rank."""
    if len(shape) != 3:
        raise UserError(
            Diagnostic("not an image", expected="[channels, height, width]", got=f"{[*shape]}")
        )
    return shape[0], shape[1], shape[2]


def _crop_at(windows: ImageWindows, height: int, width: int, uniform: Uniform) -> None:
    top = _draws(np.maximum(windows.y.out - height, 0) + 1, uniform[:, 0])
    left = _draws(np.maximum(windows.x.out - width, 0) + 1, uniform[:, 1])
    windows.crop(top, left, height, width)


def _draws(count: Int64 | int, uniform: Uniform) -> Int64:
    """Map uniform numbers in [0, 1) to integers in 0 .. count-1."""
    return (uniform * count).astype(np.int64)
