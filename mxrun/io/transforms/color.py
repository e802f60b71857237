"""Transforms of brightness and colour, on float32 values (bytes scaled to 0..1)."""

from __future__ import annotations

import math
from typing import Annotated, ClassVar

import numpy as np
from pydantic import ConfigDict, Field

from mxrun.base.errors import Diagnostic, UserError
from mxrun.base.params import Float32, Positive
from mxrun.codegen.host_loop import HostLoop
from mxrun.io.transforms import pixel_loops as loops
from mxrun.io.transforms.base import (
    RecordShape,
    Transform,
    Uniform,
    Values,
    ValueTransform,
    loop_shape,
    register,
)

# Brightness of red, green and blue; and the way to luma, in-phase and quadrature and back.
_LUMA = np.array([loops.RED, loops.GREEN, loops.BLUE], np.float32).reshape(3, 1, 1)
_TO_YIQ = np.array([[0.299, 0.587, 0.114], [0.596, -0.274, -0.321], [0.211, -0.523, 0.311]])
_FROM_YIQ = np.array([[1.0, 0.956, 0.621], [1.0, -0.272, -0.647], [1.0, -1.107, 1.705]])
# Principal components of the colours of ImageNet, for values in 0..1.
_COMPONENTS = np.array(
    [[-0.5675, 0.7192, 0.4009], [-0.5808, -0.0045, -0.8140], [-0.5836, -0.6948, 0.4203]]
)
_EIGENVALUES = np.array([55.46, 4.794, 1.148]) / 255

Strength = Annotated[float, Field(ge=0, le=1)]


@register(
    "normalize",
    foreign={
        "{normalize: {mean: 0.5, std: 0.25}}": "standardize normalization",
    },
)
class Normalize(ValueTransform):
    """Compute (value - mean) / std per channel.

    Channels are the first axis of a record of any rank. Pixels of images are scaled to 0..1 before.
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
        known = loop_shape(values)
        means, deviations = self.channel_values(known["channels"])
        given = loops.Normalizing(**known, means=means, deviations=deviations)
        HostLoop(loops.normalize_loop, given, unlocked=True)()


class _ColorChange(ValueTransform):
    """Random change of the colours of red, green and blue in 0..1; in evaluation nothing."""

    requires_unit_values: ClassVar[bool] = True

    def evaluation(self) -> tuple[Transform, ...]:
        """Return no transform."""
        return ()

    def output(self, shape: RecordShape) -> RecordShape:
        """Return `shape`; raises UserError unless it is an RGB image, or a grey one if allowed."""
        grey = len(shape) == 3 and shape[0] in (1, None) and not self._needs_color
        if not grey and (len(shape) != 3 or shape[0] not in (3, None)):
            allowed = "" if self._needs_color else " or [1, height, width]"
            problem = "the record is not an image of the required shape"
            expected = f"[3, height, width]{allowed}"
            raise UserError(Diagnostic(problem, expected=expected, got=f"{[*shape]}"))
        return shape

    @property
    def _needs_color(self) -> bool:
        return True


@register(
    "color_jitter",
    foreign={
        "color_jitter": "randombrightness randomcontrast randomsaturation",
    },
)
class ColorJitter(_ColorChange):
    """Change brightness, contrast, saturation and hue, in this order; in evaluation nothing.

    Each but the hue is scaled by a factor drawn uniformly from 1 - strength .. 1 + strength.
    Brightness scales the values, contrast their distance from the image's mean brightness,
    saturation their distance from the brightness of their pixel. Brightness is 0.299 red + 0.587
    green + 0.114 blue. The hue is rotated in the plane of in-phase and quadrature by an angle drawn
    uniformly from -hue .. hue half turns. Results are clipped to 0..1 after each.
    """

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"brightness": 0.4, "contrast": 0.4, "saturation": 0.4}]}
    )
    draws: ClassVar[int] = 4

    brightness: Strength = Field(
        default=0.0, description="Greatest relative change of brightness.", examples=[0.4]
    )
    contrast: Strength = Field(
        default=0.0, description="Greatest relative change of contrast.", examples=[0.4]
    )
    saturation: Strength = Field(
        default=0.0, description="Greatest relative change of saturation.", examples=[0.4]
    )
    hue: Strength = Field(
        default=0.0, description="Greatest rotation of the hue, in half turns.", examples=[0.1]
    )

    @property
    def required_change(self) -> str:
        """Expected parameters if all strengths are 0, else empty."""
        idle = not (self.brightness or self.contrast or self.saturation or self.hue)
        return "brightness, contrast, saturation or hue above 0" if idle else ""

    @property
    def _needs_color(self) -> bool:
        return bool(self.saturation or self.hue)

    def change(self, values: Values, uniform: Uniform) -> None:
        """Change the values."""
        given = loops.Coloring(
            **loop_shape(values),
            factors=self._factors(uniform),
            sums=np.empty(values.shape[3]),
            has_contrast=int(self.contrast > 0),
            has_saturation=int(self.saturation > 0),
            has_matrix=int(self.hue > 0),
        )
        HostLoop(loops.color_loop, given, unlocked=True)()

    def _factors(self, uniform: Uniform) -> Values:
        """Return the factors of each record, float32 [n, FACTORS]."""
        strengths = np.array([self.brightness, self.contrast, self.saturation])
        found = np.empty((len(uniform), loops.FACTORS), np.float32)
        found[:, : loops.MATRIX] = 1 + strengths * (2 * uniform[:, :3] - 1)
        angle = math.pi * self.hue * (2 * uniform[:, 3] - 1)
        rotation = np.zeros((len(uniform), 3, 3))
        rotation[:, 0, 0] = 1
        rotation[:, 1, 1] = rotation[:, 2, 2] = np.cos(angle)
        rotation[:, 2, 1] = np.sin(angle)
        rotation[:, 1, 2] = -rotation[:, 2, 1]
        found[:, loops.MATRIX :] = (_FROM_YIQ @ rotation @ _TO_YIQ).reshape(-1, 9)
        return found


@register("grayscale")
class Grayscale(_ColorChange):
    """Set red, green and blue to the pixel's brightness, with a probability.

    In evaluation nothing, unless the probability is 1. Brightness is that of `color_jitter`.
    """

    draws: ClassVar[int] = 1
    requires_unit_values: ClassVar[bool] = False

    probability: float = Field(
        default=0.1, ge=0, le=1, description="Probability of a change.", examples=[0.2]
    )

    @property
    def required_change(self) -> str:
        """Expected parameter if the probability is 0, else empty."""
        return "" if self.probability else "a probability above 0"

    def evaluation(self) -> tuple[Transform, ...]:
        """Return itself if it changes every image, else no transform."""
        return (self,) if self.probability == 1 else ()

    def change(self, values: Values, uniform: Uniform) -> None:
        """Change some of the images."""
        for row in np.flatnonzero(uniform[:, 0] < self.probability):
            values[row] = (values[row] * _LUMA).sum(axis=0)


@register("lighting")
class Lighting(_ColorChange):
    """Add noise along the principal components of the colours of ImageNet; in evaluation nothing.

    A colour is added to each image: the sum of three components, each times its eigenvalue and a
    normal number. Values may leave 0..1. Source: A. Krizhevsky et al., "ImageNet Classification
    with Deep Convolutional Neural Networks", 2012.
    """

    draws: ClassVar[int] = 4
    requires_unit_values: ClassVar[bool] = False
    leaves_unit_range: ClassVar[bool] = True

    std: Positive = Field(
        default=0.1, description="Standard deviation of the normal numbers.", examples=[0.1]
    )

    def change(self, values: Values, uniform: Uniform) -> None:
        """Add the noise."""
        given = loops.Shifting(**loop_shape(values), shifts=self._shifts(uniform))
        HostLoop(loops.shift_loop, given, unlocked=True)()

    def _shifts(self, uniform: Uniform) -> Values:
        # The method of Box and Muller; 1 - u is above 0.
        radius = np.sqrt(-2.0 * np.log1p(-uniform[:, 0::2]))
        angle = 2.0 * math.pi * uniform[:, 1::2]
        normal = np.concatenate([radius * np.cos(angle), radius * np.sin(angle)], axis=1)[:, :3]
        shifts = (normal * self.std * _EIGENVALUES) @ _COMPONENTS.T
        return np.ascontiguousarray(shifts, np.float32)
