"""AdamW: Adam with decoupled weight decay."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field

from mxrun.base.params import Float32
from mxrun.operator.optimizer import register_optimizer
from mxrun.operator.optimizer_property import OptimizerProperty, register_update
from mxrun.operator.scalar import sqrt
from mxrun.operator.update_map import clipped
from mxrun.ops.optimizers.adam import Adam, MomentParameters, moments


def adamw_update(
    weight: Any,
    grad: Any,
    mean: Any,
    var: Any,
    lr: Any,
    schedule: Any,
    first_correction: Any,
    second_correction: Any,
    wd: Any,
    clip_gradient: Any,
    beta1: Any,
    beta2: Any,
    epsilon: Any,
    eta: Any,
) -> Any:
    """Return the new weight and moments; decay acts on the weight, not through the moments."""
    mean, var = moments(clipped(grad, clip_gradient), mean, var, beta1, beta2)
    rate = lr * (sqrt(second_correction) / first_correction)
    step = mean / (sqrt(var) + epsilon) * rate + weight * wd
    return weight - step * (eta * schedule), mean, var


class AdamwUpdateParameters(MomentParameters):
    """Parameters of adamw_update."""

    eta: Float32 = Field(
        description="Factor of the step, including the weight decay.", examples=[1.0]
    )


@register_update("adamw_update")
class AdamwUpdateProperty(OptimizerProperty):
    """output = weight - eta * (lr * mean_output / (sqrt(var_output) + epsilon) + wd * weight),
    mean_output = beta1 * mean + (1 - beta1) * g, var_output = beta2 * var + (1 - beta2) * g^2, g =
    clip(rescale_grad * grad).

    MXNet's contrib.adamw_update. With scheduled, eta is multiplied by schedule[0], so that the
    decay follows the learning rate, and lr by sqrt(schedule[2]) / schedule[1], the bias correction.
    All shapes are equal; output overwrites weight, mean_output mean, and var_output var. No
    gradient.
    """

    type_string = "adamw_update"
    parameter_type = AdamwUpdateParameters
    states = ("mean", "var")
    update = staticmethod(adamw_update)


@register_optimizer("adamw")
class AdamW(Adam):
    """Adam with decoupled weight decay: every step subtracts rate * wd * weight from the weight.

    The decay follows the schedule and the parameter's learning-rate multiplier (Loshchilov and
    Hutter, arXiv 1711.05101, with the rate as the schedule's multiplier; PyTorch's AdamW).
    """

    update = "adamw_update"

    def rates(self, multiplier: float) -> Mapping[str, float]:
        """Return the factors with the multiplier in `eta`, which scales step and decay."""
        return {"lr": 1.0, "eta": multiplier}
