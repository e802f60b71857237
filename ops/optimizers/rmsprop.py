"""RMSProp: steps divided by the root of a moving average of squared gradients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field

from mxrun.base.params import Float32, NotNegative, Positive
from mxrun.operator.optimizer import Fraction, Optimizer, register_optimizer
from mxrun.operator.optimizer_property import OptimizerProperty, UpdateParameters, register_update
from mxrun.operator.scalar import maximum, sqrt
from mxrun.operator.update_map import clipped


def rmsprop_update(
    weight: Any,
    grad: Any,
    n: Any,
    rate: Any,
    wd: Any,
    clip_gradient: Any,
    gamma1: Any,
    epsilon: Any,
    clip_weights: Any,
) -> Any:
    """Return the new weight and the average of squared gradients."""
    gradient = clipped(grad + weight * wd, clip_gradient)
    n = gradient * gradient * (1 - gamma1) + n * gamma1
    return clipped(weight - gradient / sqrt(n + epsilon) * rate, clip_weights), n


def rmspropalex_update(
    weight: Any,
    grad: Any,
    n: Any,
    g: Any,
    delta: Any,
    rate: Any,
    wd: Any,
    clip_gradient: Any,
    gamma1: Any,
    gamma2: Any,
    epsilon: Any,
    clip_weights: Any,
) -> Any:
    """Return the new weight, the averages of squared gradients and of gradients, and the step."""
    gradient = clipped(grad + weight * wd, clip_gradient)
    n = gradient * gradient * (1 - gamma1) + n * gamma1
    g = gradient * (1 - gamma1) + g * gamma1
    variance = maximum(n - g * g, 0.0)
    delta = delta * gamma2 - gradient / sqrt(variance + epsilon) * rate
    return clipped(weight + delta, clip_weights), n, g, delta


class RmspropUpdateParameters(UpdateParameters):
    """Parameters of rmsprop_update."""

    gamma1: Float32 = Field(default=0.95, description="Decay rate of the moving averages.")
    epsilon: Float32 = Field(default=1e-8, description="Added under the square root.")
    clip_weights: Float32 = Field(
        default=-1.0, description="Limit of the new weight's absolute value; none when negative."
    )


class RmspropalexUpdateParameters(RmspropUpdateParameters):
    """Parameters of rmspropalex_update."""

    gamma2: Float32 = Field(default=0.9, description="Factor of the previous step (momentum).")


@register_update("rmsprop_update")
class RmspropUpdateProperty(OptimizerProperty):
    """output = clip_weights(weight - lr * g / sqrt(n_output + epsilon)), n_output = gamma1 * n + (1
    - gamma1) * g^2, g = clip(rescale_grad * grad + wd * weight).

    Tieleman's and Hinton's RMSProp. All shapes are equal; output overwrites weight, n_output n. No
    gradient.
    """

    type_string = "rmsprop_update"
    parameter_type = RmspropUpdateParameters
    states = ("n",)
    update = staticmethod(rmsprop_update)


@register_update("rmspropalex_update")
class RmspropalexUpdateProperty(OptimizerProperty):
    """output = clip_weights(weight + delta_output), delta_output = gamma2 * delta - lr * gradient /
    sqrt(max(n_output - g_output^2, 0) + epsilon), n_output = gamma1 * n + (1 - gamma1) *
    gradient^2, g_output = gamma1 * g + (1 - gamma1) * gradient, gradient = clip(rescale_grad * grad
    + wd * weight).

    Graves's RMSProp (arXiv 1308.0850, equations 38 to 45). The difference under the root can be
    negative only because of rounding; MXNet then gives NaN. All shapes are equal; each output
    overwrites the input of its name. No gradient.
    """

    type_string = "rmspropalex_update"
    parameter_type = RmspropalexUpdateParameters
    states = ("n", "g", "delta")
    update = staticmethod(rmspropalex_update)


@register_optimizer("rmsprop", foreign={"rmsprop: {centered: true}": "rmspropalex"})
class RMSProp(Optimizer):
    """Steps divided by the root of the squared gradients' average (Tieleman and Hinton, 2012).

    The centered form subtracts the squared average gradient and has momentum (Graves, arXiv
    1308.0850).
    """

    update = "rmsprop_update"

    lr: NotNegative = Field(0.001, description="The learning rate.")
    gamma1: Fraction = Field(0.9, description="Decay factor of the moving averages.")
    gamma2: Fraction = Field(0.9, description="Momentum: the factor of the last step, if centered.")
    epsilon: Positive = Field(1e-8, description="Added to the average of squares, under the root.")
    centered: bool = Field(False, description="Whether Graves's centered form is used.")
    clip_weights: Positive | None = Field(
        None, description="Weights are clipped to [-x, x]; default: not at all.", examples=[10.0]
    )

    def operator(self) -> tuple[str, Mapping[str, object]]:
        """Return `rmsprop_update`, or `rmspropalex_update` if centered."""
        name, parameters = super().operator()
        unused = {"centered"} if self.centered else {"centered", "gamma2"}
        rest = {key: value for key, value in parameters.items() if key not in unused}
        return ("rmspropalex_update" if self.centered else name), rest
