"""clip: limits numbers to an interval."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from mxrun.base.params import Float32, Parameters
from mxrun.operator.scalar import logical_or, where
from mxrun.operator.simple import reads_inputs, simple_operator
from mxrun.ops.binary import saturated

# Scalar functions run on numbers, arrays and symbolic values.
Scalar = Any


class ClipParameters(Parameters):
    """Parameters of clip: the bounds."""

    a_min: Float32 = Field(description="Smallest output.", examples=[-1.0])
    a_max: Float32 = Field(description="Largest output.", examples=[1.0])


def clip_gradient(g: Scalar, x: Scalar, a_min: Scalar, a_max: Scalar) -> Scalar:
    """Return g where x is within the bounds or NaN, else 0."""
    return where(logical_or(x > a_max, x < a_min), 0.0, g)


@simple_operator(
    "clip",
    gradient=reads_inputs(clip_gradient),
    parameters=ClipParameters,
    foreign={
        "clip: {a_min: 0, a_max: 6}": "relu6",
        "clip: {a_min: -1, a_max: 1}": "hardtanh",
        "clip: {a_min: 0, a_max: 1}": "clamp",
    },
)
def clip(x: Scalar, a_min: Scalar, a_max: Scalar) -> Scalar:
    """output = a_max where data > a_max, a_min where data < a_min, else data.

    The gradient of data is the output's gradient where a_min <= data <= a_max, else 0. Backward
    reads the output's gradient and data. For integer data the bounds are truncated, and a bound
    outside the dtype's range is replaced by the nearest value in it.
    """
    low, high = saturated(a_min, x), saturated(a_max, x)
    return where(x > high, high, where(x < low, low, x))
