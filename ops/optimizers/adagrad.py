"""AdaGrad: steps divided by the root of the sum of squared gradients."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from mxrun.base.params import Float32, Positive
from mxrun.operator.optimizer import Optimizer, register_optimizer
from mxrun.operator.optimizer_property import OptimizerProperty, UpdateParameters, register_update
from mxrun.operator.scalar import sqrt
from mxrun.operator.update_map import clipped


def adagrad_update(
    weight: Any, grad: Any, history: Any, rate: Any, wd: Any, clip_gradient: Any, epsilon: Any
) -> Any:
    """Return the new weight and the sum of squared gradients."""
    gradient = clipped(grad, clip_gradient)
    history = history + gradient * gradient
    return weight - (gradient / sqrt(history + epsilon) + weight * wd) * rate, history


class AdagradUpdateParameters(UpdateParameters):
    """Parameters of adagrad_update."""

    epsilon: Float32 = Field(
        default=1e-7, description="Added to the history under the square root."
    )


@register_update("adagrad_update")
class AdagradUpdateProperty(OptimizerProperty):
    """output = weight - lr * (g / sqrt(history_output + epsilon) + wd * weight), history_output =
    history + g^2, g = clip(rescale_grad * grad).

    MXNet's AdaGrad. All shapes are equal; output overwrites weight, history_output history. No
    gradient.
    """

    type_string = "adagrad_update"
    parameter_type = AdagradUpdateParameters
    states = ("history",)
    update = staticmethod(adagrad_update)


@register_optimizer("adagrad")
class AdaGrad(Optimizer):
    """Steps divided by the root of the sum of squared gradients (Duchi, Hazan, Singer, 2011)."""

    update = "adagrad_update"

    epsilon: Positive = Field(1e-7, description="Added to the sum of squares, under the root.")
