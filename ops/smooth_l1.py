"""smooth_l1: absolute value, smoothed around 0."""

from __future__ import annotations

from typing import Any

from mxrun.operator.scalar import where
from mxrun.operator.simple import reads_inputs, simple_operator

# Scalar functions run on numbers, arrays and symbolic values.
Scalar = Any


def smooth_l1_gradient(g: Scalar, x: Scalar, scalar: Scalar) -> Scalar:
    """Return g * scalar^2 * x where |x| <= 1 / scalar^2, else g * sign(x)."""
    square = scalar * scalar
    return g * where(x > 1 / square, 1.0, where(x < -1 / square, -1.0, square * x))


@simple_operator(
    "smooth_l1",
    gradient=reads_inputs(smooth_l1_gradient),
    scalar=1.0,
    foreign={
        "smooth_l1: {scalar: 1} of the difference, then MakeLoss": "smoothl1loss huberloss huber",
    },
)
def smooth_l1(x: Scalar, scalar: Scalar) -> Scalar:
    """output = (scalar data)^2 / 2 where |data| <= 1 / scalar^2, else |data| - 1 / (2 scalar^2).

    Value and slope are continuous. The gradient of data is out_grad * scalar^2 * data where |data|
    <= 1 / scalar^2, else out_grad * sign(data). Backward reads data and the output's gradient.
    """
    square = scalar * scalar
    outside = 1 / square
    tail = abs(x) - 0.5 * outside
    return where(abs(x) > outside, tail, 0.5 * x * x * square)
