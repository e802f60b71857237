"""Transforms of the pixels of images [channels, height, width], on float32 values."""

from __future__ import annotations

import math
from typing import Annotated, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import ConfigDict, Field, field_validator

from mxrun.codegen.host_loop import HostLoop
from mxrun.io.transforms import pixel_loops as loops
from mxrun.io.transforms.base import (
    Side,
    Uniform,
    Values,
    ValueTransform,
    loop_shape,
    register,
)
from mxrun.io.transforms.geometry import Augmentation

Angle = Annotated[float, Field(ge=0, le=180)]
Share = Annotated[float, Field(ge=0, le=1)]


@register(
    "cutout",
    foreign={
        "{cutout: {size: 8}}": "randomerasing randomcutout",
    },
)
class Cutout(Augmentation, ValueTransform):
    """Set a square around a random pixel to zero, clipped at the borders; in evaluation nothing.

    Source: T. DeVries, G. W. Taylor, "Improved Regularization of Convolutional Neural Networks with
    Cutout", 2017.
    """

    draws: ClassVar[int] = 2

    size: Side = Field(description="Side of the square in pixels.", examples=[8])

    def change(self, values: Values, uniform: Uniform) -> None:
        """Set the squares to zero."""
        squares = self._squares(values, uniform)
        given = loops.Erasing(**loop_shape(values), rectangles=squares)
        HostLoop(loops.erase_loop, given, unlocked=True)()

    def _squares(self, values: Values, uniform: Uniform) -> NDArray[np.int64]:
        """Return top, left, bottom and right of each square, within the image."""
        sides = values.shape[2:]
        first = (uniform * sides).astype(np.int64) - self.size // 2
        corners = np.concatenate([first, first + self.size], axis=1)
        clipped: NDArray[np.int64] = np.clip(corners, 0, [*sides, *sides])
        return clipped


class _Warp(Augmentation, ValueTransform):
    """Random linear map of an image around its centre, by bilinear interpolation.

    Pixels from outside of the image are zero. In evaluation nothing.
    """

    takes_boxes: ClassVar[bool] = False

    def change(self, values: Values, uniform: Uniform) -> None:
        """Map the images."""
        given = loops.Warping(
            **loop_shape(values),
            matrices=self._matrices(values, uniform),
            source=np.empty(values[0].size, np.float32),
        )
        HostLoop(loops.warp_loop, given, unlocked=True)()

    def _matrices(self, values: Values, uniform: Uniform) -> NDArray[np.float64]:
        """Return the maps from results to sources, [n, 6]: see `Warping`."""
        raise NotImplementedError


@register(
    "rotation",
    foreign={
        "{rotation: {degrees: 15}}": "randomrotation rotate",
    },
)
class Rotation(_Warp):
    """Rotate around the centre by an angle drawn uniformly from -degrees .. degrees.

    The image keeps its size. Pixels are interpolated bilinearly; those from outside of the image
    are zero. In evaluation nothing.
    """

    draws: ClassVar[int] = 1

    degrees: Angle = Field(gt=0, description="Greatest angle in degrees.", examples=[15])

    def _matrices(self, values: Values, uniform: Uniform) -> NDArray[np.float64]:
        angle = math.radians(self.degrees) * (2 * uniform[:, 0] - 1)
        zero = np.zeros(len(angle))
        cos, sin = np.cos(angle), np.sin(angle)
        return np.stack([cos, sin, zero, -sin, cos, zero], axis=1)


@register(
    "affine",
    foreign={
        "{affine: {degrees: 10, translate: 0.1}}": "randomaffine",
    },
)
class Affine(_Warp):
    """Rotate, shear, scale and translate, in one random affine map around the centre.

    All are drawn uniformly: the angles from -degrees .. degrees and -shear .. shear, the shift from
    -translate .. translate times the image's sides, the scale from its bounds. The image keeps its
    size. Pixels are interpolated bilinearly; those from outside of the image are zero. In
    evaluation nothing.
    """

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"degrees": 10, "translate": 0.1, "scale": [0.9, 1.1]}]}
    )
    draws: ClassVar[int] = 5

    degrees: Angle = Field(default=0.0, description="Greatest rotation in degrees.", examples=[10])
    translate: Share = Field(
        default=0.0, description="Greatest shift, as a part of the image's side.", examples=[0.1]
    )
    scale: tuple[float, float] = Field(
        default=(1.0, 1.0), description="Least and greatest scale.", examples=[[0.9, 1.1]]
    )
    shear: Annotated[float, Field(ge=0, le=60)] = Field(
        default=0.0, description="Greatest shear to the side, in degrees.", examples=[10]
    )

    @field_validator("scale")
    @classmethod
    def _ordered(cls, given: tuple[float, float]) -> tuple[float, float]:
        if not 0.01 <= given[0] <= given[1] <= 100:
            raise ValueError("an interval is [least, greatest] with 0.01 <= least <= greatest")
        return given

    @property
    def required_change(self) -> str:
        """Expected parameters if nothing is changed, else empty."""
        idle = not (self.degrees or self.translate or self.shear) and self.scale == (1, 1)
        return "degrees, translate or shear above 0, or a scale other than 1" if idle else ""

    def _matrices(self, values: Values, uniform: Uniform) -> NDArray[np.float64]:
        centred = 2 * uniform - 1
        angle = math.radians(self.degrees) * centred[:, 0]
        shear = np.tan(math.radians(self.shear) * centred[:, 1])
        scale = self.scale[0] + uniform[:, 2] * (self.scale[1] - self.scale[0])
        height, width = values.shape[2:]
        right, down = (
            self.translate * width * centred[:, 3],
            self.translate * height * centred[:, 4],
        )
        cos, sin = np.cos(angle) / scale, np.sin(angle) / scale
        # A result at p comes from S R (p - t) / scale, with the inverse rotation R and shear S.
        a, b, d, e = cos - shear * -sin, sin - shear * cos, -sin, cos
        return np.stack([a, b, -a * right - b * down, d, e, -d * right - e * down], axis=1)
