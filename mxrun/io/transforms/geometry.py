"""Geometric transforms of images [channels, height, width]."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, field_validator

from mxrun.base.errors import Diagnostic, UserError
from mxrun.io.transforms.base import (
    Draw,
    Record,
    RecordShape,
    Side,
    Sides,
    Transform,
    register,
    sides,
)

Bounds = tuple[float, float]
Uniform = NDArray[np.float64]

# 224 / 256: the common evaluation of networks trained on random crops of 224.
_EVALUATED_PART = 0.875
_ATTEMPTS = 10


@register("resize")
class Resize(Transform):
    """Resize by bilinear interpolation, which averages where the image shrinks.

    `size: n` makes the shorter side n and keeps the ratio (the longer side is rounded down);
    `size: [height, width]` gives exactly these sides. Bytes stay bytes.
    """

    size: Side | Sides = Field(
        description="The shorter side, or [height, width], in pixels.", examples=[256]
    )

    def output(self, shape: RecordShape) -> RecordShape:
        """Return [channels, *size], with the longer side computed by the ratio if `size` is one
        number.
        """
        channels, height, width = _image(shape)
        if not isinstance(self.size, int):
            return (channels, *self.size)
        if height is None or width is None:
            return (channels, None, None)
        return (channels, *self._sides(height, width))

    def apply(self, record: Record, draw: Draw) -> Record:
        """Return the resized record."""
        height, width = self._sides(*record.shape[1:])
        return resized(record, height, width)

    def _sides(self, height: int, width: int) -> Sides:
        if not isinstance(self.size, int):
            return self.size
        if height <= width:
            return self.size, max(self.size * width // height, self.size)
        return max(self.size * height // width, self.size), self.size


class _Crop(Transform):
    """Crop of fixed size; a single number is the side of a square."""

    size: Side | Sides = Field(
        description="The side of a square, or [height, width], in pixels.", examples=[224]
    )

    def output(self, shape: RecordShape) -> RecordShape:
        """Return [channels, *size]; raises UserError if the image is smaller."""
        channels, *given = _image(shape)
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


@register("center_crop")
class CenterCrop(_Crop):
    """Cut out the centre; the extra pixel of an odd margin is removed at the bottom and right."""

    def apply(self, record: Record, draw: Draw) -> Record:
        """Return record[:, top:top+height, left:left+width]."""
        height, width = sides(self.size)
        top, left = (record.shape[1] - height) // 2, (record.shape[2] - width) // 2
        part: Record = record[:, top : top + height, left : left + width]
        return part


@register("random_crop")
class RandomCrop(_Crop):
    """Cut out a part at a uniformly random position; in evaluation the centre."""

    def evaluation(self) -> tuple[Transform, ...]:
        """Return a centre crop of the same size."""
        return (CenterCrop(size=self.size),)

    def apply(self, record: Record, draw: Draw) -> Record:
        """Return record[:, top:top+height, left:left+width]."""
        return _random_part(record, *sides(self.size), draw((2,)))


@register("random_resized_crop")
class RandomResizedCrop(Transform):
    """Cut out a part of random area, ratio and position, and resize it.

    The area is a fraction of the image's, drawn uniformly from `area`; width / height is drawn from
    `ratio` on a logarithmic scale. After ten draws that do not fit into the image, the largest
    centre crop that `ratio` allows is used. In evaluation, the shorter side is resized to the
    larger of `size` / 0.875, then the centre is cut out.
    """

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
        return (_image(shape)[0], *sides(self.size))

    def apply(self, record: Record, draw: Draw) -> Record:
        """Return the resized crop."""
        uniform = draw((_ATTEMPTS + 1, 2))
        _, height, width = record.shape
        part = self._fitting(height, width, uniform[:-1].tolist())
        if part is None:
            middle = CenterCrop(size=self._largest(height, width)).apply(record, draw)
            return resized(middle, *sides(self.size))
        return resized(_random_part(record, *part, uniform[-1]), *sides(self.size))

    def _fitting(self, height: int, width: int, draws: Sequence[Sequence[float]]) -> Sides | None:
        """Return the first drawn [height, width] that fits into the image; None if none does."""
        low, high = (math.log(bound) for bound in self.ratio)
        for first, second in draws:
            area = height * width * (self.area[0] + first * (self.area[1] - self.area[0]))
            ratio = math.exp(low + second * (high - low))
            part = round(math.sqrt(area / ratio)), round(math.sqrt(area * ratio))
            if 0 < part[0] <= height and 0 < part[1] <= width:
                return part
        return None

    def _largest(self, height: int, width: int) -> Sides:
        minimum, maximum = self.ratio
        if width < minimum * height:
            return max(1, min(height, round(width / minimum))), width
        if width > maximum * height:
            return height, max(1, min(width, round(height * maximum)))
        return height, width


class _Augmentation(Transform):
    """Random change of an image that keeps its shape and is left out in evaluation."""

    def evaluation(self) -> tuple[Transform, ...]:
        """Return no transform."""
        return ()

    def output(self, shape: RecordShape) -> RecordShape:
        """Return `shape`; raises UserError unless it is an image."""
        return _image(shape)


@register("flip")
class Flip(_Augmentation):
    """Mirror left and right with a probability; in evaluation nothing."""

    probability: float = Field(
        default=0.5, ge=0, le=1, description="Probability of mirroring.", examples=[0.3]
    )

    @property
    def required_change(self) -> str:
        """Expected parameter if the probability is 0, else empty."""
        return "" if self.probability else "a probability above 0"

    def apply(self, record: Record, draw: Draw) -> Record:
        """Return record[:, :, ::-1] or the record itself."""
        return record[:, :, ::-1] if draw((1,))[0] < self.probability else record


@register("pad_crop")
class PadCrop(_Augmentation):
    """Pad with zeros, then crop to the original size at random; in evaluation nothing."""

    # Evaluation needs no transform, as the centre crop of the padded image is the image.
    pad: Side = Field(description="Width of the border in pixels.", examples=[4])

    def apply(self, record: Record, draw: Draw) -> Record:
        """Return the crop, computed without making the padded image."""
        _, height, width = record.shape
        down, right = (_draws(2 * self.pad + 1, value) - self.pad for value in draw((2,)))
        result = np.zeros_like(record)
        result[:, _overlap(-down, height), _overlap(-right, width)] = record[
            :, _overlap(down, height), _overlap(right, width)
        ]
        return result


@register("cutout")
class Cutout(_Augmentation):
    """Set a square around a random pixel to zero, clipped at the borders; in evaluation nothing.

    Source: T. DeVries, G. W. Taylor, "Improved Regularization of Convolutional Neural Networks with
    Cutout", 2017.
    """

    size: Side = Field(description="Side of the square in pixels.", examples=[8])

    def apply(self, record: Record, draw: Draw) -> Record:
        """Return a copy of the record with the square set to zero."""
        first, second = draw((2,))
        top = _draws(record.shape[1], first) - self.size // 2
        left = _draws(record.shape[2], second) - self.size // 2
        result: Record = record.copy()
        bottom, right = top + self.size, left + self.size
        result[:, max(top, 0) : max(bottom, 0), max(left, 0) : max(right, 0)] = 0
        return result


def resized(record: Record, height: int, width: int) -> Record:
    """Resize an image of bytes or float32 with Pillow's bilinear filter, one channel at a time."""
    from PIL import Image

    if record.shape[1:] == (height, width):
        return record
    result = np.empty((len(record), height, width), record.dtype)
    for source, target in zip(record, result, strict=True):
        image = Image.fromarray(np.ascontiguousarray(source))
        target[...] = image.resize((width, height), Image.Resampling.BILINEAR)
    return result


def _image(shape: RecordShape) -> tuple[int | None, int | None, int | None]:
    """Return the three dimensions of an image; raises UserError for a record of another rank."""
    if len(shape) != 3:
        raise UserError(
            Diagnostic("not an image", expected="[channels, height, width]", got=f"{[*shape]}")
        )
    return shape[0], shape[1], shape[2]


def _random_part(record: Record, height: int, width: int, uniform: Uniform) -> Record:
    top = _draws(record.shape[1] - height + 1, uniform[0])
    left = _draws(record.shape[2] - width + 1, uniform[1])
    part: Record = record[:, top : top + height, left : left + width]
    return part


def _draws(count: int, uniform: float) -> int:
    """Map a uniform number in [0, 1) to an integer in 0 .. count-1."""
    return int(uniform * count)


def _overlap(shift: int, length: int) -> slice:
    """Return the overlap of an axis of `length` with itself moved by `shift`, as a slice."""
    return slice(min(max(shift, 0), length), max(min(length + shift, length), 0))
