"""Updates by the gradient or its sign, with and without momentum."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from pydantic import Field

from mxrun.backend.arguments import Float32s, Real
from mxrun.backend.jit import clipped, native, share
from mxrun.base.params import Float32, Parameters
from mxrun.operator.register import implement, register
from mxrun.ops.optimizers.update import (
    CompiledUpdate,
    Update,
    UpdateArguments,
    UpdateLoop,
    UpdateParameters,
    UpdateProperty,
    UpdateStep,
)

Array = npt.NDArray[Any]


class SgdUpdateParameters(UpdateParameters):
    """Parameters of sgd_update."""

    lazy_update: bool = Field(
        default=True, description="Accepted for MXNet's models; gradients here are never sparse."
    )


class SgdMomUpdateParameters(SgdUpdateParameters):
    """Parameters of sgd_mom_update: those of sgd_update and momentum."""

    momentum: Float32 = Field(default=0.0, description="Decay rate of the momentum.")


class NagMomUpdateParameters(UpdateParameters):
    """Parameters of nag_mom_update."""

    momentum: Float32 = Field(default=0.0, description="Decay rate of the momentum.")


class SignumUpdateParameters(UpdateParameters):
    """Parameters of signum_update."""

    momentum: Float32 = Field(default=0.0, description="Decay rate of the momentum.")
    wd_lh: Float32 = Field(
        default=0.0, description="Weight decay applied to the weight directly, outside the sign."
    )


class SgdUpdate(Update):
    """Gradient descent with weight decay."""

    def gradient(self, step: UpdateStep) -> Array:
        """Return clip(rescale_grad * grad) + wd * weight."""
        decay: Array = step.weight * step.number(self.parameters.wd)
        return step.clipped(step.gradient) + decay

    def update(self, step: UpdateStep) -> Sequence[Array]:
        """output = weight - lr * gradient."""
        return [step.weight - self.gradient(step) * step.rate]


class SgdMomUpdate(SgdUpdate):
    """Gradient descent with momentum."""

    def update(self, step: UpdateStep) -> Sequence[Array]:
        """mom_output = momentum * mom - lr * gradient; output = weight + mom_output."""
        (mom,) = step.states
        moved = mom * step.number(self.parameters.momentum) - self.gradient(step) * step.rate
        return [step.weight + moved, moved]


class NagMomUpdate(SgdUpdate):
    """Nesterov's accelerated gradient."""

    def update(self, step: UpdateStep) -> Sequence[Array]:
        """mom_output as in sgd_mom_update; output = weight + momentum * mom_output - lr * g."""
        (mom,) = step.states
        momentum = step.number(self.parameters.momentum)
        descent = self.gradient(step) * step.rate
        moved = mom * momentum - descent
        return [step.weight + (moved * momentum - descent), moved]


class SignsgdUpdate(Update):
    """Descent by the sign of the gradient."""

    def update(self, step: UpdateStep) -> Sequence[Array]:
        """output = (1 - lr * wd) * weight - lr * sign(grad)."""
        decay_factor = 1 - step.rate * step.number(self.parameters.wd)
        return [step.weight * decay_factor - _sign(step.clipped(step.gradient)) * step.rate]


class SignumUpdate(Update):
    """Descent by the sign of the momentum."""

    def update(self, step: UpdateStep) -> Sequence[Array]:
        """mom_output = momentum * mom - (1 - momentum) * gradient; the weight moves by its sign."""
        p, (mom,) = self.parameters, step.states
        momentum = step.number(p.momentum)
        gradient = step.clipped(step.gradient) + step.weight * step.number(p.wd)
        moved = mom * momentum - gradient * (1 - momentum)
        decay_factor = 1 - step.rate * step.number(p.wd_lh)
        return [step.weight * decay_factor + _sign(moved) * step.rate, moved]


def _sign(values: Array) -> Array:
    """Return -1, 0 or 1; NaN for values that are not finite."""
    with np.errstate(invalid="ignore"):
        result: Array = np.sign(values) + (values - values)
    return result


@register("sgd_update")
class SgdUpdateProperty(UpdateProperty):
    """output = weight - lr * gradient, gradient = clip(rescale_grad * grad) + wd * weight.

    weight, grad and output have one shape; output overwrites weight. No gradient.
    """

    type_string = "sgd_update"
    parameter_type: ClassVar[type[Parameters]] = SgdUpdateParameters
    operations = 5
    body = SgdUpdate


@register("sgd_mom_update")
class SgdMomUpdateProperty(UpdateProperty):
    """mom_output = momentum * mom - lr * gradient, output = weight + mom_output, gradient =
    clip(rescale_grad * grad) + wd * weight.

    All shapes are equal; output overwrites weight, mom_output mom. No gradient.
    """

    type_string = "sgd_mom_update"
    parameter_type = SgdMomUpdateParameters
    states = ("mom",)
    operations = 7
    body = SgdMomUpdate


@register("nag_mom_update")
class NagMomUpdateProperty(UpdateProperty):
    """mom_output = momentum * mom - lr * gradient, output = weight + momentum * mom_output - lr *
    gradient, gradient = clip(rescale_grad * grad) + wd * weight.

    Nesterov's accelerated gradient. In place, MXNet 1.9.1 computes the decay in mom_output from the
    new weight, which contradicts its formula. All shapes are equal; output overwrites weight,
    mom_output mom. No gradient.
    """

    type_string = "nag_mom_update"
    parameter_type = NagMomUpdateParameters
    states = ("mom",)
    operations = 9
    body = NagMomUpdate


@register("signsgd_update")
class SignsgdUpdateProperty(UpdateProperty):
    """output = (1 - lr * wd) * weight - lr * sign(rescale_grad * grad).

    weight, grad and output have one shape; output overwrites weight. No gradient.
    """

    type_string = "signsgd_update"
    operations = 4
    body = SignsgdUpdate


@register("signum_update")
class SignumUpdateProperty(UpdateProperty):
    """mom_output = momentum * mom - (1 - momentum) * gradient, output = (1 - lr * wd_lh) * weight +
    lr * sign(mom_output), gradient = clip(rescale_grad * grad) + wd * weight.

    All shapes are equal; output overwrites weight, mom_output mom. No gradient. MXNet 1.9.1 stores
    the momentum with this sign, contrary to its documentation.
    """

    type_string = "signum_update"
    parameter_type = SignumUpdateParameters
    states = ("mom",)
    operations = 8
    body = SignumUpdate


@native
def sgd_loop(call: UpdateArguments) -> None:
    """SgdUpdate in float32; overwrites weight."""
    rate, wd = call.lr * call.schedule[0], call.wd
    rescale, limit = call.rescale_grad * call.gradient_scale[0], call.limit
    weight, grad = call.weight, call.grad
    begin, end = share(call.count)
    for i in range(begin, end):
        weight[i] -= (clipped(grad[i] * rescale, limit) + weight[i] * wd) * rate


class MomentumArguments(UpdateArguments):
    """Arguments of updates with momentum."""

    mom: Float32s
    momentum: Real


@native
def sgd_mom_loop(call: MomentumArguments) -> None:
    """SgdMomUpdate in float32; overwrites weight and mom."""
    rate, wd = call.lr * call.schedule[0], call.wd
    rescale, limit = call.rescale_grad * call.gradient_scale[0], call.limit
    weight, grad, mom, momentum = call.weight, call.grad, call.mom, call.momentum
    begin, end = share(call.count)
    for i in range(begin, end):
        gradient = clipped(grad[i] * rescale, limit) + weight[i] * wd
        mom[i] = mom[i] * momentum - gradient * rate
        weight[i] += mom[i]


@native
def nag_mom_loop(call: MomentumArguments) -> None:
    """NagMomUpdate in float32; overwrites weight and mom."""
    rate, wd = call.lr * call.schedule[0], call.wd
    rescale, limit = call.rescale_grad * call.gradient_scale[0], call.limit
    weight, grad, mom, momentum = call.weight, call.grad, call.mom, call.momentum
    begin, end = share(call.count)
    for i in range(begin, end):
        descent = (clipped(grad[i] * rescale, limit) + weight[i] * wd) * rate
        mom[i] = mom[i] * momentum - descent
        weight[i] += mom[i] * momentum - descent


@native
def signsgd_loop(call: UpdateArguments) -> None:
    """SignsgdUpdate in float32; overwrites weight."""
    one, zero = np.float32(1), np.float32(0)
    rate, wd = call.lr * call.schedule[0], call.wd
    rescale, limit = call.rescale_grad * call.gradient_scale[0], call.limit
    weight, grad = call.weight, call.grad
    decay_factor = one - rate * wd
    begin, end = share(call.count)
    for i in range(begin, end):
        gradient = clipped(grad[i] * rescale, limit)
        sign = one if gradient > zero else (-one if gradient < zero else gradient)
        weight[i] = weight[i] * decay_factor - sign * rate


class SignumArguments(MomentumArguments):
    """Arguments of `signum_loop`."""

    wd_lh: Real


@native
def signum_loop(call: SignumArguments) -> None:
    """SignumUpdate in float32; overwrites weight and mom."""
    one, zero = np.float32(1), np.float32(0)
    rate, wd = call.lr * call.schedule[0], call.wd
    rescale, limit = call.rescale_grad * call.gradient_scale[0], call.limit
    weight, grad, mom = call.weight, call.grad, call.mom
    momentum, wd_lh = call.momentum, call.wd_lh
    decay_factor = one - rate * wd_lh
    begin, end = share(call.count)
    for i in range(begin, end):
        gradient = clipped(grad[i] * rescale, limit) + weight[i] * wd
        moved = mom[i] * momentum - gradient * (one - momentum)
        sign = one if moved > zero else (-one if moved < zero else moved)
        mom[i] = moved
        weight[i] = weight[i] * decay_factor + (sign + (moved - moved)) * rate


@implement(
    *("sgd_update", "sgd_mom_update", "nag_mom_update", "signsgd_update", "signum_update"),
    backend="jit",
)
class CompiledMomentumUpdate(CompiledUpdate):
    """One compiled float32 loop each, bit-identical to the NumPy bodies."""

    loops: ClassVar[Mapping[str, UpdateLoop]] = {
        "sgd_update": UpdateLoop(sgd_loop, UpdateArguments),
        "sgd_mom_update": UpdateLoop(sgd_mom_loop, MomentumArguments),
        "nag_mom_update": UpdateLoop(nag_mom_loop, MomentumArguments),
        "signsgd_update": UpdateLoop(signsgd_loop, UpdateArguments),
        "signum_update": UpdateLoop(signum_loop, SignumArguments),
    }
