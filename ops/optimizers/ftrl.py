"""FTRL: follow the regularised leader, which yields sparse weights."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from mxrun.base.params import Float32, NotNegative
from mxrun.operator.optimizer import Optimizer, register_optimizer
from mxrun.operator.optimizer_property import OptimizerProperty, UpdateParameters, register_update
from mxrun.operator.scalar import abs, sqrt, where
from mxrun.operator.update_map import clipped


def ftrl_update(
    weight: Any,
    grad: Any,
    z: Any,
    n: Any,
    rate: Any,
    wd: Any,
    clip_gradient: Any,
    lamda1: Any,
    beta: Any,
) -> Any:
    """Return the new weight, the linear model of past gradients and the sum of their squares."""
    gradient = clipped(grad, clip_gradient)
    before, squares = sqrt(n), n + gradient * gradient
    after = sqrt(squares)
    moved = z + (gradient - (after - before) * weight / rate)
    shrunk = where(moved < 0, -lamda1, lamda1) - moved
    updated = where(abs(moved) <= lamda1, 0.0, shrunk / ((beta + after) / rate + wd))
    still = rate == 0
    return where(still, weight, updated), where(still, z + (gradient - gradient), moved), squares


class FtrlUpdateParameters(UpdateParameters):
    """Parameters of ftrl_update."""

    lamda1: Float32 = Field(default=0.01, description="Strength of the L1 regularisation.")
    beta: Float32 = Field(
        default=1.0, description="Added to the square root of the sum of squares."
    )


@register_update("ftrl_update")
class FtrlUpdateProperty(OptimizerProperty):
    """output = (sign(z_output) * lamda1 - z_output) / ((beta + sqrt(n_output)) / lr + wd) where
    |z_output| > lamda1, else 0; z_output = z + g - (sqrt(n_output) - sqrt(n)) * weight / lr,
    n_output = n + g^2, g = clip(rescale_grad * grad).

    McMahan's "Ad Click Prediction: a View from the Trenches". A rate of 0 does not change weight
    and z (MXNet divides by it). All shapes are equal; output overwrites weight, z_output z, and
    n_output n. No gradient.
    """

    type_string = "ftrl_update"
    parameter_type = FtrlUpdateParameters
    states = ("z", "n")
    update = staticmethod(ftrl_update)


@register_optimizer("ftrl")
class Ftrl(Optimizer):
    """Follow the regularised leader; yields sparse weights (McMahan et al., KDD 2013)."""

    update = "ftrl_update"

    lr: NotNegative = Field(0.1, description="The learning rate.")
    lamda1: NotNegative = Field(0.01, description="Strength of the L1 regularisation.")
    beta: NotNegative = Field(1.0, description="Added to the root of the sum of squares.")
