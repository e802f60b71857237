"""Transforms of brightness and colour, on float32 values (bytes scaled to 0..1)."""

from __future__ import annotations

from typing import Annotated, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import ConfigDict, Field

from mxrun.base.errors import Diagnostic, UserError
from mxrun.base.params import Float32, Positive
from mxrun.io.transforms.base import RecordShape, Transform, Uniform, ValueTransform, register

Values = NDArray[np.float32]

# Luma weights of red, green and blue, of ITU-R BT.601.
_LUMA = np.array([0.299, 0.587, 0.114], np.float32).reshape(3, 1, 1)

Strength = Annotated[float, Field(ge=0, le=1)]


@register("normalize")
class Normalize(ValueTransform):
    """Compute (value - mean) / std per channel.

    Channels are the first axis of a record of any rank. Bytes of images are scaled to 0..1 before.
    """

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]}]
        }
    )
    leaves_unit_range: ClassVar[bool] = True

    mean: Float32 | tuple[Float32, ...] = Field(
        default=0.0,
        description="Subtracted from the values: a number for all channels, or a list with one "
        "for each.",
        examples=[[0.485, 0.456, 0.406]],
    )
    std: Positive | tuple[Positive, ...] = Field(
        default=1.0,
        description="Divisor of the differences: a number for all channels, or a list with one "
        "for each.",
        examples=[[0.229, 0.224, 0.225]],
    )

    @property
    def required_change(self) -> str:
        """Expected parameters if all means are 0 and all stds 1, else empty."""
        means, stds = np.unique(self.mean).tolist(), np.unique(self.std).tolist()
        return "a mean other than 0 or a std other than 1" if (means, stds) == ([0], [1]) else ""

    def output(self, shape: RecordShape) -> RecordShape:
        """Return `shape`; raises UserError if its number of channels differs from that of mean or
        std.
        """
        for name, given in (("mean", self.mean), ("std", self.std)):
            if isinstance(given, tuple) and (not shape or shape[0] not in (None, len(given))):
                count = len(given)
                has = f"{shape[0]} (its first axis)" if shape else "none"
                raise UserError(
                    Diagnostic(
                        f"{name} is for {count} channels, but the record has {has}",
                        expected=f"records of {count} channels, or one {name} for all",
                        got=f"a record of shape {[*shape]}",
                    )
                )
        return shape

    def channel_values(self, channels: int) -> tuple[Values, Values]:
        """Return mean and std of each channel, float32 [channels]."""
        mean, std = (
            np.broadcast_to(np.array(given, np.float32), channels).copy()
            for given in (self.mean, self.std)
        )
        return mean, std

    def change(self, values: Values, uniform: Uniform) -> None:
        """Normalise the values."""
        channels = values.shape[1] if values.ndim > 1 else 1
        for given, compute in zip(
            self.channel_values(channels), (np.subtract, np.divide), strict=True
        ):
            compute(values, given.reshape(-1, *[1] * (values.ndim - 2)), out=values)


@register("color_jitter")
class ColorJitter(ValueTransform):
    """Change brightness, contrast and saturation, in this order; in evaluation nothing.

    Each is scaled by a factor drawn uniformly from 1 - strength .. 1 + strength. Brightness scales
    the values, contrast their distance from the image's mean brightness, saturation their distance
    from the brightness of their pixel. Brightness is 0.299 red + 0.587 green + 0.114 blue; results
    are clipped to 0..1.
    """

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"brightness": 0.4, "contrast": 0.4, "saturation": 0.4}]}
    )
    requires_unit_values: ClassVar[bool] = True
    draws: ClassVar[int] = 3

    brightness: Strength = Field(
        default=0.0, description="Greatest relative change of brightness.", examples=[0.4]
    )
    contrast: Strength = Field(
        default=0.0, description="Greatest relative change of contrast.", examples=[0.4]
    )
    saturation: Strength = Field(
        default=0.0, description="Greatest relative change of saturation.", examples=[0.4]
    )

    @property
    def required_change(self) -> str:
        """Expected parameters if all strengths are 0, else empty."""
        idle = not (self.brightness or self.contrast or self.saturation)
        return "brightness, contrast or saturation above 0" if idle else ""

    def evaluation(self) -> tuple[Transform, ...]:
        """Return no transform."""
        return ()

    def output(self, shape: RecordShape) -> RecordShape:
        """Return `shape`; raises UserError unless it is a grey or an RGB image.

        Saturation needs an RGB image.
        """
        grey = len(shape) == 3 and shape[0] in (1, None) and not self.saturation
        if not grey and (len(shape) != 3 or shape[0] not in (3, None)):
            expected = "[3, height, width]" + ("" if self.saturation else " or [1, height, width]")
            problem = "the record is not an image of the required shape"
            raise UserError(Diagnostic(problem, expected=expected, got=f"{[*shape]}"))
        return shape

    def change(self, values: Values, uniform: Uniform) -> None:
        """Change the values."""
        strengths = np.array([self.brightness, self.contrast, self.saturation])
        factors = (1 + strengths * (2 * uniform - 1)).astype(np.float32)
        for record, factor in zip(values, factors, strict=True):
            np.multiply(record, factor[0], out=record)
            np.clip(record, 0, 1, out=record)
            if self.contrast:
                _blend(record, _brightness(record).mean(dtype=np.float32), factor[1])
            if self.saturation:
                _blend(record, _brightness(record), factor[2])


def _brightness(record: Values) -> Values:
    """Return the luma of each pixel, float32 [height, width]."""
    if len(record) == 1:
        return record.reshape(record.shape[1:])
    brightness: Values = (record * _LUMA).sum(axis=0)
    return brightness


def _blend(record: Values, grey: Values | np.float32, factor: np.float32) -> None:
    """Compute grey + (record - grey) factor in place, clipped to 0..1."""
    record -= grey
    record *= factor
    record += grey
    np.clip(record, 0, 1, out=record)
