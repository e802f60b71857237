"""Nesterov's accelerated gradient."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from mxrun.base.params import Float32
from mxrun.operator.optimizer import register_optimizer
from mxrun.operator.optimizer_property import OptimizerProperty, UpdateParameters, register_update
from mxrun.operator.update_map import clipped
from mxrun.ops.optimizers.sgd import Sgd


def nag_mom_update(
    weight: Any, grad: Any, mom: Any, rate: Any, momentum: Any, wd: Any, clip_gradient: Any
) -> Any:
    """Return the new weight and momentum."""
    descent = (clipped(grad, clip_gradient) + weight * wd) * rate
    mom = mom * momentum - descent
    return weight + (mom * momentum - descent), mom


class NagMomUpdateParameters(UpdateParameters):
    """Parameters of nag_mom_update."""

    momentum: Float32 = Field(default=0.0, description="Decay rate of the momentum.")


@register_update("nag_mom_update")
class NagMomUpdateProperty(OptimizerProperty):
    """mom_output = momentum * mom - lr * gradient, output = weight + momentum * mom_output - lr *
    gradient, gradient = clip(rescale_grad * grad) + wd * weight.

    Nesterov's accelerated gradient. In place, MXNet 1.9.1 computes the decay in mom_output from the
    new weight, which contradicts its formula. All shapes are equal; output overwrites weight,
    mom_output mom. No gradient.
    """

    type_string = "nag_mom_update"
    parameter_type = NagMomUpdateParameters
    states = ("mom",)
    update = staticmethod(nag_mom_update)


@register_optimizer("nag", foreign={"nag: {momentum: 0.9}": "nesterov nesterovmomentum"})
class Nag(Sgd):
    """Nesterov's accelerated gradient; without momentum it is stochastic gradient descent."""

    update = "nag_mom_update"
