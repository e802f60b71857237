"""clip: numbers brought between two others."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from mxrun.base.params import Float32, Parameters
from mxrun.operator.scalar import logical_or, where
from mxrun.operator.simple import reads_inputs, simple_operator
from mxrun.ops.binary import saturated

# Scalar functions run on numbers, arrays and values that stand for compiled ones.
Scalar = Any


class ClipParameters(Parameters):
    """The bounds of clip."""

    a_min: Float32 = Field(description="The smallest output.", examples=[-1.0])
    a_max: Float32 = Field(description="The largest output.", examples=[1.0])


def clip_gradient(g: Scalar, x: Scalar, a_min: Scalar, a_max: Scalar) -> Scalar:
    """The gradient within the bounds; of NaN too."""
    return where(logical_or(x > a_max, x < a_min), 0.0, g)


@simple_operator("clip", gradient=reads_inputs(clip_gradient), parameters=ClipParameters)
def clip(x: Scalar, a_min: Scalar, a_max: Scalar) -> Scalar:
    """output = a_max where data > a_max, else a_min where data < a_min, else data.

    The gradient passes where data lies within the bounds, both included. Backward reads the
    output's gradient and data. Integers are compared with the bounds without their fractions, and
    a bound beyond the type is the nearest that it has.
    """
    low, high = saturated(a_min, x), saturated(a_max, x)
    return where(x > high, high, where(x < low, low, x))
