"""Stochastic gradient descent, with and without momentum."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ConfigDict, Field

from mxrun.base.params import Float32
from mxrun.operator.optimizer import Fraction, Optimizer, register_optimizer
from mxrun.operator.optimizer_property import OptimizerProperty, UpdateParameters, register_update
from mxrun.operator.update_map import clipped


def sgd_update(weight: Any, grad: Any, rate: Any, wd: Any, clip_gradient: Any) -> Any:
    """Return the new weight."""
    return weight - (clipped(grad, clip_gradient) + weight * wd) * rate


def sgd_mom_update(
    weight: Any, grad: Any, mom: Any, rate: Any, momentum: Any, wd: Any, clip_gradient: Any
) -> Any:
    """Return the new weight and the last step."""
    mom = mom * momentum - (clipped(grad, clip_gradient) + weight * wd) * rate
    return weight + mom, mom


class SgdUpdateParameters(UpdateParameters):
    """Parameters of sgd_update."""

    lazy_update: bool = Field(
        default=True, description="Accepted for MXNet's models; gradients here are never sparse."
    )


class SgdMomUpdateParameters(SgdUpdateParameters):
    """Parameters of sgd_mom_update: those of sgd_update and momentum."""

    momentum: Float32 = Field(default=0.0, description="Decay rate of the momentum.")


@register_update("sgd_update")
class SgdUpdateProperty(OptimizerProperty):
    """output = weight - lr * gradient, gradient = clip(rescale_grad * grad) + wd * weight.

    weight, grad and output have one shape; output overwrites weight. No gradient.
    """

    type_string = "sgd_update"
    parameter_type = SgdUpdateParameters
    update = staticmethod(sgd_update)


@register_update("sgd_mom_update")
class SgdMomUpdateProperty(OptimizerProperty):
    """mom_output = momentum * mom - lr * gradient, output = weight + mom_output, gradient =
    clip(rescale_grad * grad) + wd * weight.

    All shapes are equal; output overwrites weight, mom_output mom. No gradient.
    """

    type_string = "sgd_mom_update"
    parameter_type = SgdMomUpdateParameters
    states = ("mom",)
    update = staticmethod(sgd_mom_update)


@register_optimizer("sgd", foreign={"sgd: {momentum: 0.9}": "momentum sgdmomentum momentumsgd"})
class Sgd(Optimizer):
    """Stochastic gradient descent; with momentum, the last step is stored in a state `mom`."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"lr": 0.1, "momentum": 0.9}]})
    update = "sgd_mom_update"

    momentum: Fraction = Field(
        0.0, description="Momentum: the factor of the last step.", examples=[0.9]
    )

    def operator(self) -> tuple[str, Mapping[str, object]]:
        """Return `sgd_mom_update`, or without momentum the stateless `sgd_update`."""
        return super().operator() if self.momentum else ("sgd_update", {})
