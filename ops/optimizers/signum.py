"""Steps by the sign of the gradient, or of its moving average."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field, model_validator

from mxrun.base.params import Float32, NotNegative
from mxrun.operator.optimizer import Fraction, Optimizer, register_optimizer
from mxrun.operator.optimizer_property import OptimizerProperty, UpdateParameters, register_update
from mxrun.operator.scalar import sign
from mxrun.operator.update_map import clipped


def signsgd_update(weight: Any, grad: Any, rate: Any, wd: Any, clip_gradient: Any) -> Any:
    """Return the new weight."""
    return weight * (1 - rate * wd) - sign(clipped(grad, clip_gradient)) * rate


def signum_update(
    weight: Any,
    grad: Any,
    mom: Any,
    rate: Any,
    momentum: Any,
    wd: Any,
    wd_lh: Any,
    clip_gradient: Any,
) -> Any:
    """Return the new weight and the negative moving average of the gradient."""
    gradient = clipped(grad, clip_gradient) + weight * wd
    mom = mom * momentum - gradient * (1 - momentum)
    # The sign of infinity is finite, but divergence must be visible in the weight.
    direction = sign(mom) + (mom - mom)
    return weight * (1 - rate * wd_lh) + direction * rate, mom


class SignumUpdateParameters(UpdateParameters):
    """Parameters of signum_update."""

    momentum: Float32 = Field(default=0.0, description="Decay rate of the momentum.")
    wd_lh: Float32 = Field(
        default=0.0, description="Weight decay applied to the weight directly, outside the sign."
    )


@register_update("signsgd_update")
class SignsgdUpdateProperty(OptimizerProperty):
    """output = (1 - lr * wd) * weight - lr * sign(rescale_grad * grad).

    weight, grad and output have one shape; output overwrites weight. No gradient.
    """

    type_string = "signsgd_update"
    update = staticmethod(signsgd_update)


@register_update("signum_update")
class SignumUpdateProperty(OptimizerProperty):
    """mom_output = momentum * mom - (1 - momentum) * gradient, output = (1 - lr * wd_lh) * weight +
    lr * sign(mom_output), gradient = clip(rescale_grad * grad) + wd * weight.

    All shapes are equal; output overwrites weight, mom_output mom. No gradient. MXNet 1.9.1 stores
    the momentum with this sign, contrary to its documentation.
    """

    type_string = "signum_update"
    parameter_type = SignumUpdateParameters
    states = ("mom",)
    update = staticmethod(signum_update)


@register_optimizer("signum", foreign={"signum: {momentum: 0}": "signsgd"})
class Signum(Optimizer):
    """Steps by the sign of the averaged gradient; without momentum, of the gradient itself."""

    update = "signum_update"

    momentum: Fraction = Field(0.9, description="Decay factor of the gradient's moving average.")
    wd_lh: NotNegative = Field(
        0.0, description="Weight decay outside of the sign; requires momentum.", examples=[0.0001]
    )

    @model_validator(mode="after")
    def _decay_needs_momentum(self) -> Signum:
        if self.wd_lh and not self.momentum:
            raise ValueError("wd_lh requires momentum; without momentum, wd has the same effect")
        return self

    def operator(self) -> tuple[str, Mapping[str, object]]:
        """Return `signum_update`, or without momentum the stateless `signsgd_update`."""
        return super().operator() if self.momentum else ("signsgd_update", {})
