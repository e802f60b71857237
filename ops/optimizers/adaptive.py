"""Updates whose rate follows the squares of past gradients: AdaGrad, RMSProp, FTRL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from pydantic import Field

from mxrun.backend.jit import Block, clipped, float32s, integer, native, real, share
from mxrun.base.params import Float32
from mxrun.operator.register import implement, register
from mxrun.ops.optimizers.update import (
    CompiledUpdate,
    Update,
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

    epsilon: Float32 = Field(default=1e-7, description="Added to the history under the root.")


class RmspropUpdateParameters(UpdateParameters):
    """Parameters of rmsprop_update."""

    gamma1: Float32 = Field(default=0.95, description="How much of the averages is kept.")
    epsilon: Float32 = Field(default=1e-8, description="Added under the root.")
    clip_weights: Float32 = Field(
        default=-1.0, description="Limit of the new weight's absolute value; none when negative."
    )


class RmspropalexUpdateParameters(RmspropUpdateParameters):
    """Parameters of rmspropalex_update."""

    gamma2: Float32 = Field(default=0.9, description="How much of the last step is kept.")


class FtrlUpdateParameters(UpdateParameters):
    """Parameters of ftrl_update."""

    lamda1: Float32 = Field(default=0.01, description="Strength of the L1 regularisation.")
    beta: Float32 = Field(default=1.0, description="Added to the root of the squares' sum.")


class AdagradUpdate(Update):
    """The history is a sum."""

    def update(self, step: UpdateStep) -> Sequence[Array]:
        """output = weight - lr * (g / sqrt(history_output + epsilon) + wd * weight)."""
        p, (history,) = self.parameters, step.states
        gradient = step.clipped(step.gradient)
        history = history + np.square(gradient)
        move = gradient / np.sqrt(history + step.number(p.epsilon))
        return [step.weight - (move + step.weight * step.number(p.wd)) * step.rate, history]


class _RmspropUpdate(Update):
    """Decay joins the gradient before it is clipped."""

    def gradient(self, step: UpdateStep) -> Array:
        """clip(rescale_grad * grad + wd * weight)."""
        return step.clipped(step.gradient + step.weight * step.number(self.parameters.wd))

    def bounded(self, weight: Array) -> Array:
        """The new weight within clip_weights."""
        return clipped_array(weight, limit_of(self.parameters.clip_weights))


class RmspropUpdate(_RmspropUpdate):
    """The history is an average."""

    def update(self, step: UpdateStep) -> Sequence[Array]:
        """output = weight - lr * g / sqrt(n_output + epsilon)."""
        p, (n,) = self.parameters, step.states
        gamma1 = step.number(p.gamma1)
        gradient = self.gradient(step)
        n = np.square(gradient) * (1 - gamma1) + n * gamma1
        move = gradient / np.sqrt(n + step.number(p.epsilon))
        return [self.bounded(step.weight - move * step.rate), n]


class RmspropalexUpdate(_RmspropUpdate):
    """The average's square is taken off, and there is momentum."""

    def update(self, step: UpdateStep) -> Sequence[Array]:
        """delta_output = gamma2 * delta - lr * gradient / sqrt(n_output - g_output^2 + epsilon)."""
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
    """Follows the regularised leader."""

    def update(self, step: UpdateStep) -> Sequence[Array]:
        """The weight that minimises the past's linear model with both regularisations."""
        p, (z, n) = self.parameters, step.states
        gradient = step.clipped(step.gradient)
        squares = n + np.square(gradient)
        if step.rate == 0:
            return [step.weight, z + (gradient - gradient), squares]
        z = z + (gradient - (np.sqrt(squares) - np.sqrt(n)) * step.weight / step.rate)
        lamda1 = step.number(p.lamda1)
        divisor = (step.number(p.beta) + np.sqrt(squares)) / step.rate + step.number(p.wd)
        weight = (np.sign(z) * lamda1 - z) / divisor
        # `not <=`, so that a z that is not a number is not hidden.
        return [np.where(~(np.abs(z) <= lamda1), weight, 0), z, squares]


@register("adagrad_update")
class AdagradUpdateProperty(UpdateProperty):
    """output = weight - lr * (g / sqrt(history_output + epsilon) + wd * weight), history_output =
    history + g^2, g = clip(rescale_grad * grad).

    MXNet's AdaGrad. All of one shape; output takes weight's place, history_output history's. No
    gradient.
    """

    type_string = "adagrad_update"
    parameter_type = AdagradUpdateParameters
    states = ("history",)
    operations = 10
    body = AdagradUpdate


@register("rmsprop_update")
class RmspropUpdateProperty(UpdateProperty):
    """output = clip_weights(weight - lr * g / sqrt(n_output + epsilon)), n_output = gamma1 * n +
    (1 - gamma1) * g^2, g = clip(rescale_grad * grad + wd * weight).

    Tieleman's and Hinton's RMSProp. All of one shape; output takes weight's place, n_output n's.
    No gradient.
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

    Graves's RMSProp (arXiv 1308.0850, equations 38 to 45). The difference under the root is not
    negative but for rounding, which MXNet lets become a NaN. All of one shape; each output takes
    the place of what it replaces. No gradient.
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

    McMahan's "Ad Click Prediction: a View from the Trenches". A rate of 0 leaves weight and z alone
    (MXNet divides by it). All of one shape; output takes weight's place, z_output z's, n_output
    n's. No gradient.
    """

    type_string = "ftrl_update"
    parameter_type = FtrlUpdateParameters
    states = ("z", "n")
    operations = 20
    body = FtrlUpdate


@native
def adagrad_loop(block: Block) -> None:
    """AdagradUpdate on float32, over weight and history."""
    rate, wd = real(block, 1) * float32s(block, 5)[0], real(block, 2)
    rescale, limit = real(block, 3) * float32s(block, 6)[0], real(block, 4)
    weight, grad, history = float32s(block, 7), float32s(block, 8), float32s(block, 9)
    epsilon = real(block, 10)
    begin, end = share(block, integer(block, 0))
    for i in range(begin, end):
        gradient = clipped(grad[i] * rescale, limit)
        history[i] += gradient * gradient
        weight[i] -= (gradient / np.sqrt(history[i] + epsilon) + weight[i] * wd) * rate


@native
def rmsprop_loop(block: Block) -> None:
    """RmspropUpdate on float32, over weight and n."""
    one = np.float32(1)
    rate, wd = real(block, 1) * float32s(block, 5)[0], real(block, 2)
    rescale, limit = real(block, 3) * float32s(block, 6)[0], real(block, 4)
    weight, grad, n = float32s(block, 7), float32s(block, 8), float32s(block, 9)
    gamma1, epsilon, bound = real(block, 10), real(block, 11), real(block, 12)
    if bound < 0:
        bound = np.float32(np.inf)
    begin, end = share(block, integer(block, 0))
    for i in range(begin, end):
        gradient = clipped(grad[i] * rescale + weight[i] * wd, limit)
        n[i] = gradient * gradient * (one - gamma1) + n[i] * gamma1
        weight[i] = clipped(weight[i] - gradient / np.sqrt(n[i] + epsilon) * rate, bound)


@native
def rmspropalex_loop(block: Block) -> None:
    """RmspropalexUpdate on float32, over weight, n, g and delta."""
    one, zero = np.float32(1), np.float32(0)
    rate, wd = real(block, 1) * float32s(block, 5)[0], real(block, 2)
    rescale, limit = real(block, 3) * float32s(block, 6)[0], real(block, 4)
    weight, grad = float32s(block, 7), float32s(block, 8)
    n, g, delta = float32s(block, 9), float32s(block, 10), float32s(block, 11)
    gamma1, epsilon, bound = real(block, 12), real(block, 13), real(block, 14)
    gamma2 = real(block, 15)
    if bound < 0:
        bound = np.float32(np.inf)
    begin, end = share(block, integer(block, 0))
    for i in range(begin, end):
        gradient = clipped(grad[i] * rescale + weight[i] * wd, limit)
        n[i] = gradient * gradient * (one - gamma1) + n[i] * gamma1
        g[i] = gradient * (one - gamma1) + g[i] * gamma1
        variance = max(n[i] - g[i] * g[i], zero)
        delta[i] = delta[i] * gamma2 - gradient / np.sqrt(variance + epsilon) * rate
        weight[i] = clipped(weight[i] + delta[i], bound)


@native
def ftrl_loop(block: Block) -> None:
    """FtrlUpdate on float32, over weight, z and n."""
    zero = np.float32(0)
    rate, wd = real(block, 1) * float32s(block, 5)[0], real(block, 2)
    rescale, limit = real(block, 3) * float32s(block, 6)[0], real(block, 4)
    weight, grad = float32s(block, 7), float32s(block, 8)
    z, n = float32s(block, 9), float32s(block, 10)
    lamda1, beta = real(block, 11), real(block, 12)
    begin, end = share(block, integer(block, 0))
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
    """One loop in float32, the bits of the NumPy body."""

    loops: ClassVar[Mapping[str, UpdateLoop]] = {
        "adagrad_update": UpdateLoop(adagrad_loop, ("epsilon",)),
        "rmsprop_update": UpdateLoop(rmsprop_loop, ("gamma1", "epsilon", "clip_weights")),
        "rmspropalex_update": UpdateLoop(
            rmspropalex_loop, ("gamma1", "epsilon", "clip_weights", "gamma2")
        ),
        "ftrl_update": UpdateLoop(ftrl_loop, ("lamda1", "beta")),
    }
