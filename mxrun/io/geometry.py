"""Transforms of where things are in an image [channels, height, width]."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, field_validator

from mxrun.base.errors import Diagnostic, UserError
from mxrun.io.record import Draw, Record, RecordShape, Side, Sides, Transform, register, sides

Interval = tuple[float, float]
Uniform = NDArray[np.float64]

# The middle 224 of 256: what networks trained on random crops are commonly evaluated on.
_EVALUATED_PART = 0.875
_ATTEMPTS = 10


@register("resize")
class Resize(Transform):
    """Resize by bilinear interpolation, which averages where the image shrinks.

    `size: n` makes the shorter side n and keeps the ratio (the longer side is rounded down);
    `size: [height, width]` gives exactly these sides. Bytes stay bytes.
    """

    size: Side | Sides = Field(description="the shorter side, or [height, width]")

    def output(self, shape: RecordShape) -> RecordShape:
        """[channels, *size], or the longer side by the ratio."""
        channels, height, width = _image(shape)
        if not isinstance(self.size, int):
            return (channels, *self.size)
        if height is None or width is None:
            return (channels, None, None)
        return (channels, *self._sides(height, width))

    def apply(self, record: Record, draw: Draw) -> Record:
        """Channel after channel, by Pillow."""
        height, width = self._sides(*record.shape[1:])
        return resized(record, height, width)

    def _sides(self, height: int, width: int) -> Sides:
        if not isinstance(self.size, int):
            return self.size
        if height <= width:
            return self.size, max(self.size * width // height, self.size)
        return max(self.size * height // width, self.size), self.size


class _Crop(Transform):
    """A part of fixed size; one number is a square's side."""

    size: Side | Sides = Field(description="the square's side, or [height, width]")

    def output(self, shape: RecordShape) -> RecordShape:
        """[channels, *size]; raises UserError where the image is smaller."""
        channels, *given = _image(shape)
        wanted = sides(self.size)
        if any(have is not None and have < want for have, want in zip(given, wanted, strict=True)):
            raise UserError(
                Diagnostic(
                    "the image is smaller than the part to cut out",
                    expected=f"at least {list(wanted)}",
                    got=str(given),
                    hint="resize it first",
                )
            )
        return (channels, *wanted)


@register("center_crop")
class CenterCrop(_Crop):
    """Cut out the middle; an odd pixel is left out at the bottom and on the right."""

    def apply(self, record: Record, draw: Draw) -> Record:
        """record[:, top:top+height, left:left+width]."""
        height, width = sides(self.size)
        top, left = (record.shape[1] - height) // 2, (record.shape[2] - width) // 2
        part: Record = record[:, top : top + height, left : left + width]
        return part


@register("random_crop")
class RandomCrop(_Crop):
    """Cut out a part at a random position, all equally likely; in evaluation the middle."""

    def evaluation(self) -> tuple[Transform, ...]:
        """The middle of the same size."""
        return (CenterCrop(size=self.size),)

    def apply(self, record: Record, draw: Draw) -> Record:
        """record[:, top:top+height, left:left+width]."""
        return _random_part(record, *sides(self.size), draw((2,)))


@register("random_resized_crop")
class RandomResizedCrop(Transform):
    """Cut out a part of random area, ratio and position, and resize it.

    The area is drawn from `area` times the image's, width / height from `ratio` on a logarithmic
    scale; after ten draws that do not fit into the image the middle, as large as `ratio` allows,
    is taken. In evaluation: the shorter side is resized to the larger of `size` / 0.875, then the
    middle is cut out.
    """

    size: Side | Sides = Field(description="the square's side, or [height, width]")
    area: Interval = Field(default=(0.08, 1.0), description="least and greatest part of the area")
    ratio: Interval = Field(default=(3 / 4, 4 / 3), description="least and greatest width / height")

    @field_validator("area", "ratio")
    @classmethod
    def _ordered(cls, given: Interval) -> Interval:
        if not 0 < given[0] <= given[1] <= 1000:
            raise ValueError("an interval is [least, greatest] with 0 < least <= greatest")
        return given

    @field_validator("area")
    @classmethod
    def _part(cls, given: Interval) -> Interval:
        if given[1] > 1:
            raise ValueError("no part is larger than the image: area is at most 1")
        return given

    def evaluation(self) -> tuple[Transform, ...]:
        """Resize, then the middle."""
        shorter = round(max(sides(self.size)) / _EVALUATED_PART)
        return (Resize(size=shorter), CenterCrop(size=self.size))

    def output(self, shape: RecordShape) -> RecordShape:
        """[channels, *size]."""
        return (_image(shape)[0], *sides(self.size))

    def apply(self, record: Record, draw: Draw) -> Record:
        """The part, resized."""
        uniform = draw((_ATTEMPTS + 1, 2))
        _, height, width = record.shape
        part = self._fitting(height, width, uniform[:-1].tolist())
        if part is None:
            middle = CenterCrop(size=self._largest(height, width)).apply(record, draw)
            return resized(middle, *sides(self.size))
        return resized(_random_part(record, *part, uniform[-1]), *sides(self.size))

    def _fitting(self, height: int, width: int, draws: Sequence[Sequence[float]]) -> Sides | None:
        """The first drawn [height, width] that the image holds."""
        low, high = (math.log(bound) for bound in self.ratio)
        for first, second in draws:
            area = height * width * (self.area[0] + first * (self.area[1] - self.area[0]))
            ratio = math.exp(low + second * (high - low))
            part = round(math.sqrt(area / ratio)), round(math.sqrt(area * ratio))
            if 0 < part[0] <= height and 0 < part[1] <= width:
                return part
        return None

    def _largest(self, height: int, width: int) -> Sides:
        least, greatest = self.ratio
        if width < least * height:
            return max(1, min(height, round(width / least))), width
        if width > greatest * height:
            return height, max(1, min(width, round(height * greatest)))
        return height, width


@register("flip")
class Flip(Transform):
    """Mirror left and right with a probability; in evaluation never."""

    probability: float = Field(default=0.5, ge=0, le=1, description="how often")

    @property
    def missing(self) -> str:
        """A probability, where it is 0."""
        return "" if self.probability else "a probability above 0"

    def evaluation(self) -> tuple[Transform, ...]:
        """Nothing."""
        return ()

    def output(self, shape: RecordShape) -> RecordShape:
        """The same."""
        return _image(shape)

    def apply(self, record: Record, draw: Draw) -> Record:
        """record[:, :, ::-1] or the record."""
        return record[:, :, ::-1] if draw((1,))[0] < self.probability else record


@register("pad_crop")
class PadCrop(Transform):
    """Add a border of zeros, then cut out the former size at random; in evaluation nothing."""

    pad: Side = Field(description="the border's width in pixels")

    def evaluation(self) -> tuple[Transform, ...]:
        """Nothing: the middle is the image."""
        return ()

    def output(self, shape: RecordShape) -> RecordShape:
        """The same."""
        return _image(shape)

    def apply(self, record: Record, draw: Draw) -> Record:
        """A part of the bordered image, without ever making that."""
        _, height, width = record.shape
        down, right = (_draws(2 * self.pad + 1, value) - self.pad for value in draw((2,)))
        result = np.zeros_like(record)
        result[:, _inside(-down, height), _inside(-right, width)] = record[
            :, _inside(down, height), _inside(right, width)
        ]
        return result


@register("cutout")
class Cutout(Transform):
    """Set a square around a random pixel to zero, as far as it is inside; in evaluation nothing.

    Source: T. DeVries, G. W. Taylor, "Improved Regularization of Convolutional Neural Networks
    with Cutout", 2017.
    """

    size: Side = Field(description="the square's side in pixels")

    def evaluation(self) -> tuple[Transform, ...]:
        """Nothing."""
        return ()

    def output(self, shape: RecordShape) -> RecordShape:
        """The same."""
        return _image(shape)

    def apply(self, record: Record, draw: Draw) -> Record:
        """A copy with zeros."""
        first, second = draw((2,))
        top = _draws(record.shape[1], first) - self.size // 2
        left = _draws(record.shape[2], second) - self.size // 2
        result: Record = record.copy()
        bottom, right = top + self.size, left + self.size
        result[:, max(top, 0) : max(bottom, 0), max(left, 0) : max(right, 0)] = 0
        return result


def resized(record: Record, height: int, width: int) -> Record:
    """An image of bytes or float32 resized by Pillow's bilinear filter, one channel at a time."""
    from PIL import Image

    if record.shape[1:] == (height, width):
        return record
    result = np.empty((len(record), height, width), record.dtype)
    for source, target in zip(record, result, strict=True):
        image = Image.fromarray(np.ascontiguousarray(source))
        target[...] = image.resize((width, height), Image.Resampling.BILINEAR)
    return result


def _image(shape: RecordShape) -> tuple[int | None, int | None, int | None]:
    """The three dimensions of an image; raises UserError for any other record."""
    if len(shape) != 3:
        raise UserError(
            Diagnostic("this is no image", expected="[channels, height, width]", got=f"{[*shape]}")
        )
    return shape[0], shape[1], shape[2]


def _random_part(record: Record, height: int, width: int, uniform: Uniform) -> Record:
    top = _draws(record.shape[1] - height + 1, uniform[0])
    left = _draws(record.shape[2] - width + 1, uniform[1])
    part: Record = record[:, top : top + height, left : left + width]
    return part


def _draws(count: int, uniform: float) -> int:
    """One of 0 .. count-1."""
    return int(uniform * count)


def _inside(shift: int, length: int) -> slice:
    """Where an axis of `length` lies inside itself moved by `shift`."""
    return slice(min(max(shift, 0), length), max(min(length + shift, length), 0))
