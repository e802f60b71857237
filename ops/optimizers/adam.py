"""Adam: steps by moving averages of the gradient and of its square."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from mxrun.base.params import Float32, NotNegative, Positive
from mxrun.operator.optimizer import Fraction, Optimizer, register_optimizer
from mxrun.operator.optimizer_property import OptimizerProperty, UpdateParameters, register_update
from mxrun.operator.scalar import sqrt
from mxrun.operator.update_map import clipped


def moments(gradient: Any, mean: Any, var: Any, beta1: Any, beta2: Any) -> tuple[Any, Any]:
    """Return the new moving averages of the gradient and of its square."""
    mean = mean * beta1 + gradient * (1 - beta1)
    return mean, var * beta2 + gradient * gradient * (1 - beta2)


def adam_update(
    weight: Any,
    grad: Any,
    mean: Any,
    var: Any,
    rate: Any,
    first_correction: Any,
    second_correction: Any,
    wd: Any,
    clip_gradient: Any,
    beta1: Any,
    beta2: Any,
    epsilon: Any,
) -> Any:
    """Return the new weight and moments; decay is added to the gradient before clipping."""
    gradient = clipped(grad + weight * wd, clip_gradient)
    mean, var = moments(gradient, mean, var, beta1, beta2)
    rate = rate * (sqrt(second_correction) / first_correction)
    return weight - mean / (sqrt(var) + epsilon) * rate, mean, var


class MomentParameters(UpdateParameters):
    """Common parameters of Adam, AdamW and LAMB."""

    beta1: Fraction = Field(default=0.9, description="Decay rate of the first moment.")
    beta2: Fraction = Field(default=0.999, description="Decay rate of the second moment.")
    epsilon: Float32 = Field(
        default=1e-8, description="Added to the square root of the second moment."
    )


class AdamUpdateParameters(MomentParameters):
    """Parameters of adam_update."""

    lazy_update: bool = Field(
        default=True, description="Accepted for MXNet's models; gradients here are never sparse."
    )


@register_update("adam_update")
class AdamUpdateProperty(OptimizerProperty):
    """output = weight - lr * mean_output / (sqrt(var_output) + epsilon), mean_output = beta1 * mean
    + (1 - beta1) * g, var_output = beta2 * var + (1 - beta2) * g^2, g = clip(rescale_grad * grad +
    wd * weight).

    With scheduled, lr is multiplied by schedule[0] * sqrt(schedule[2]) / schedule[1], the bias
    correction of MXNet's Adam (epsilon is not corrected). All shapes are equal; output overwrites
    weight, mean_output mean, and var_output var. No gradient.
    """

    type_string = "adam_update"
    parameter_type = AdamUpdateParameters
    states = ("mean", "var")
    update = staticmethod(adam_update)


@register_optimizer("adam")
class Adam(Optimizer):
    """Steps by moving averages of the gradient and of its square (Kingma and Ba, arXiv 1412.6980).

    As in MXNet, decay is added to the gradient, and epsilon is added before the bias correction.
    """

    update = "adam_update"

    lr: NotNegative = Field(0.001, description="The learning rate.")
    beta1: Fraction = Field(0.9, description="Decay factor of the gradient's moving average.")
    beta2: Fraction = Field(
        0.999, description="Decay factor of the squared gradient's moving average."
    )
    epsilon: Positive = Field(
        1e-8, description="Added to the root of the squared gradient's moving average."
    )

    def corrections(self, step: int) -> tuple[float, float]:
        """Return 1 - beta1^step and 1 - beta2^step."""
        return 1 - self.beta1**step, 1 - self.beta2**step
