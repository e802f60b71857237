"""Updates with a rate that depends on the squares of past gradients: AdaGrad, RMSProp, FTRL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from pydantic import Field

from mxrun.backend.arguments import Float32s, Real
from mxrun.backend.jit import clipped, native, share
from mxrun.base.params import Float32
from mxrun.operator.register import implement, register
from mxrun.ops.optimizers.update import (
    CompiledUpdate,
    Update,
    UpdateArguments,
    UpdateLoop,
    UpdateParameters,
    UpdateProperty,
    UpdateStep,
    limit_of,
)
from mxrun.ops.optimizers.update import clipped as clipped_array

Array = npt.NDArray[Any]


class AdagradUpdateParameters(UpdateParameters):
    """Parameters of adagrad_update."""

    epsilon: Float32 = Field(
        default=1e-7, description="Added to the history under the square root."
    )


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


class FtrlUpdateParameters(UpdateParameters):
    """Parameters of ftrl_update."""

    lamda1: Float32 = Field(default=0.01, description="Strength of the L1 regularisation.")
    beta: Float32 = Field(
        default=1.0, description="Added to the square root of the sum of squares."
    )


class AdagradUpdate(Update):
    """AdaGrad: the history is the sum of squared gradients."""

    def update(self, step: UpdateStep) -> Sequence[Array]:
        """output = weight - lr * (g / sqrt(history_output + epsilon) + wd * weight)."""
        p, (history,) = self.parameters, step.states
        gradient = step.clipped(step.gradient)
        history = history + np.square(gradient)
        move = gradient / np.sqrt(history + step.number(p.epsilon))
        return [step.weight - (move + step.weight * step.number(p.wd)) * step.rate, history]


class _RmspropUpdate(Update):
    """Common part of both RMSProp updates: weight decay is added before clipping."""

    def gradient(self, step: UpdateStep) -> Array:
        """Return clip(rescale_grad * grad + wd * weight)."""
        return step.clipped(step.gradient + step.weight * step.number(self.parameters.wd))

    def bounded(self, weight: Array) -> Array:
        """Limit the new weight to clip_weights."""
        return clipped_array(weight, limit_of(self.parameters.clip_weights))


class RmspropUpdate(_RmspropUpdate):
    """RMSProp: n is a moving average of squared gradients."""

    def update(self, step: UpdateStep) -> Sequence[Array]:
        """output = weight - lr * g / sqrt(n_output + epsilon)."""
        p, (n,) = self.parameters, step.states
        gamma1 = step.number(p.gamma1)
        gradient = self.gradient(step)
        n = np.square(gradient) * (1 - gamma1) + n * gamma1
        move = gradient / np.sqrt(n + step.number(p.epsilon))
        return [self.bounded(step.weight - move * step.rate), n]


class RmspropalexUpdate(_RmspropUpdate):
    """Graves's RMSProp: the squared mean gradient is subtracted, and the step has momentum."""

    def update(self, step: UpdateStep) -> Sequence[Array]:
        """output = clip_weights(weight + delta_output), with delta_output as in the property."""
        p, (n, g, delta) = self.parameters, step.states
        gamma1 = step.number(p.gamma1)
        gradient = self.gradient(step)
        n = np.square(gradient) * (1 - gamma1) + n * gamma1
        g = gradient * (1 - gamma1) + g * gamma1
        variance = np.maximum(n - np.square(g), 0)
        move = gradient / np.sqrt(variance + step.number(p.epsilon))
        delta = delta * step.number(p.gamma2) - move * step.rate
        return [self.bounded(step.weight + delta), n, g, delta]


class FtrlUpdate(Update):
    """FTRL: follow the regularised leader."""

    def update(self, step: UpdateStep) -> Sequence[Array]:
        """output = minimiser of the linear model of past gradients with both regularisations."""
        p, (z, n) = self.parameters, step.states
        gradient = step.clipped(step.gradient)
        squares = n + np.square(gradient)
        if step.rate == 0:
            return [step.weight, z + (gradient - gradient), squares]
        z = z + (gradient - (np.sqrt(squares) - np.sqrt(n)) * step.weight / step.rate)
        lamda1 = step.number(p.lamda1)
        divisor = (step.number(p.beta) + np.sqrt(squares)) / step.rate + step.number(p.wd)
        weight = (np.sign(z) * lamda1 - z) / divisor
        # `not <=` instead of `>`, so that a NaN in z is not hidden.
        return [np.where(~(np.abs(z) <= lamda1), weight, 0), z, squares]


@register("adagrad_update")
class AdagradUpdateProperty(UpdateProperty):
    """output = weight - lr * (g / sqrt(history_output + epsilon) + wd * weight), history_output =
    history + g^2, g = clip(rescale_grad * grad).

    MXNet's AdaGrad. All shapes are equal; output overwrites weight, history_output history. No
    gradient.
    """

    type_string = "adagrad_update"
    parameter_type = AdagradUpdateParameters
    states = ("history",)
    operations = 10
    body = AdagradUpdate


@register("rmsprop_update")
class RmspropUpdateProperty(UpdateProperty):
    """output = clip_weights(weight - lr * g / sqrt(n_output + epsilon)), n_output = gamma1 * n + (1
    - gamma1) * g^2, g = clip(rescale_grad * grad + wd * weight).

    Tieleman's and Hinton's RMSProp. All shapes are equal; output overwrites weight, n_output n. No
    gradient.
    """

    type_string = "rmsprop_update"
    parameter_type = RmspropUpdateParameters
    states = ("n",)
    operations = 12
    body = RmspropUpdate


@register("rmspropalex_update")
class RmspropalexUpdateProperty(UpdateProperty):
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
    operations = 19
    body = RmspropalexUpdate


@register("ftrl_update")
class FtrlUpdateProperty(UpdateProperty):
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
    operations = 20
    body = FtrlUpdate


class AdagradArguments(UpdateArguments):
    """Arguments of `adagrad_loop`."""

    history: Float32s
    epsilon: Real


@native
def adagrad_loop(call: AdagradArguments) -> None:
    """AdagradUpdate in float32; overwrites weight and history."""
    rate, wd = call.lr * call.schedule[0], call.wd
    rescale, limit = call.rescale_grad * call.gradient_scale[0], call.limit
    weight, grad, history = call.weight, call.grad, call.history
    begin, end = share(call.count)
    for i in range(begin, end):
        gradient = clipped(grad[i] * rescale, limit)
        history[i] += gradient * gradient
        weight[i] -= (gradient / np.sqrt(history[i] + call.epsilon) + weight[i] * wd) * rate


class RmspropArguments(UpdateArguments):
    """Arguments of `rmsprop_loop`; clip_weights is negative if weights have no limit."""

    n: Float32s
    gamma1: Real
    epsilon: Real
    clip_weights: Real


@native
def rmsprop_loop(call: RmspropArguments) -> None:
    """RmspropUpdate in float32; overwrites weight and n."""
    one = np.float32(1)
    rate, wd = call.lr * call.schedule[0], call.wd
    rescale, limit = call.rescale_grad * call.gradient_scale[0], call.limit
    weight, grad, n = call.weight, call.grad, call.n
    gamma1, epsilon, bound = call.gamma1, call.epsilon, call.clip_weights
    if bound < 0:
        bound = np.float32(np.inf)
    begin, end = share(call.count)
    for i in range(begin, end):
        gradient = clipped(grad[i] * rescale + weight[i] * wd, limit)
        n[i] = gradient * gradient * (one - gamma1) + n[i] * gamma1
        weight[i] = clipped(weight[i] - gradient / np.sqrt(n[i] + epsilon) * rate, bound)


class RmspropalexArguments(RmspropArguments):
    """Arguments of `rmspropalex_loop`."""

    g: Float32s
    delta: Float32s
    gamma2: Real


@native
def rmspropalex_loop(call: RmspropalexArguments) -> None:
    """RmspropalexUpdate in float32; overwrites weight, n, g and delta."""
    one, zero = np.float32(1), np.float32(0)
    rate, wd = call.lr * call.schedule[0], call.wd
    rescale, limit = call.rescale_grad * call.gradient_scale[0], call.limit
    weight, grad = call.weight, call.grad
    n, g, delta = call.n, call.g, call.delta
    gamma1, epsilon, bound = call.gamma1, call.epsilon, call.clip_weights
    if bound < 0:
        bound = np.float32(np.inf)
    begin, end = share(call.count)
    for i in range(begin, end):
        gradient = clipped(grad[i] * rescale + weight[i] * wd, limit)
        n[i] = gradient * gradient * (one - gamma1) + n[i] * gamma1
        g[i] = gradient * (one - gamma1) + g[i] * gamma1
        variance = max(n[i] - g[i] * g[i], zero)
        delta[i] = delta[i] * call.gamma2 - gradient / np.sqrt(variance + epsilon) * rate
        weight[i] = clipped(weight[i] + delta[i], bound)


class FtrlArguments(UpdateArguments):
    """Arguments of `ftrl_loop`."""

    z: Float32s
    n: Float32s
    lamda1: Real
    beta: Real


@native
def ftrl_loop(call: FtrlArguments) -> None:
    """FtrlUpdate in float32; overwrites weight, z and n."""
    zero = np.float32(0)
    rate, wd = call.lr * call.schedule[0], call.wd
    rescale, limit = call.rescale_grad * call.gradient_scale[0], call.limit
    weight, grad, z, n = call.weight, call.grad, call.z, call.n
    lamda1, beta = call.lamda1, call.beta
    begin, end = share(call.count)
    if rate == 0:
        for i in range(begin, end):
            gradient = clipped(grad[i] * rescale, limit)
            z[i] += gradient - gradient
            n[i] += gradient * gradient
        return
    for i in range(begin, end):
        gradient = clipped(grad[i] * rescale, limit)
        before, squares = np.sqrt(n[i]), n[i] + gradient * gradient
        after = np.sqrt(squares)
        moved = z[i] + (gradient - (after - before) * weight[i] / rate)
        target = (-lamda1 if moved < zero else lamda1) - moved
        z[i], n[i] = moved, squares
        updated = target / ((beta + after) / rate + wd)
        weight[i] = zero if abs(moved) <= lamda1 else updated


@implement(
    *("adagrad_update", "rmsprop_update", "rmspropalex_update", "ftrl_update"), backend="jit"
)
class CompiledAdaptiveUpdate(CompiledUpdate):
    """One compiled float32 loop each, bit-identical to the NumPy bodies."""

    loops: ClassVar[Mapping[str, UpdateLoop]] = {
        "adagrad_update": UpdateLoop(adagrad_loop, AdagradArguments),
        "rmsprop_update": UpdateLoop(rmsprop_loop, RmspropArguments),
        "rmspropalex_update": UpdateLoop(rmspropalex_loop, RmspropalexArguments),
        "ftrl_update": UpdateLoop(ftrl_loop, FtrlArguments),
    }
