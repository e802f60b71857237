"""Updates by moving averages of the gradient and its square: Adam, AdamW, LAMB."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar

import numpy as np
import numpy.typing as npt
from pydantic import Field

from mxrun.backend.arguments import Float32s, Float64s, Integer, Real
from mxrun.backend.jit import clipped, native, share
from mxrun.base.params import Float32
from mxrun.operator.native_kernel import KernelPart, LoopPart, Scratch, target
from mxrun.operator.register import AnyProperty, implement, register
from mxrun.ops.gradient_norm import square_sums, sum_of_squares, sums, sums_bytes
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
Decay = Annotated[float, Field(ge=0, lt=1)]


class MomentParameters(UpdateParameters):
    """Common parameters of Adam, AdamW and LAMB."""

    beta1: Decay = Field(default=0.9, description="Decay rate of the first moment.")
    beta2: Decay = Field(default=0.999, description="Decay rate of the second moment.")
    epsilon: Float32 = Field(
        default=1e-8, description="Added to the square root of the second moment."
    )


class AdamUpdateParameters(MomentParameters):
    """Parameters of adam_update."""

    lazy_update: bool = Field(
        default=True, description="Accepted for MXNet's models; gradients here are never sparse."
    )


class AdamwUpdateParameters(MomentParameters):
    """Parameters of adamw_update."""

    eta: Float32 = Field(
        description="Factor of the step, including the weight decay.", examples=[1.0]
    )


class LambUpdateParameters(MomentParameters):
    """Parameters of lamb_update."""

    epsilon: Float32 = Field(
        default=1e-6, description="Added to the square root of the second moment."
    )
    lower_bound: Float32 = Field(
        default=-1.0,
        description="Lower bound on the weight's norm in the ratio; none when negative.",
    )
    upper_bound: Float32 = Field(
        default=-1.0,
        description="Upper bound on the weight's norm in the ratio; none when negative.",
    )


class _MomentUpdate(Update):
    """Update of the first and second moment."""

    def moments(self, step: UpdateStep, gradient: Array) -> tuple[Array, Array]:
        """mean = beta1 * mean + (1 - beta1) * g; var = beta2 * var + (1 - beta2) * g^2."""
        beta1, beta2 = step.number(self.parameters.beta1), step.number(self.parameters.beta2)
        mean, var = step.states
        mean = mean * beta1 + gradient * (1 - beta1)
        return mean, var * beta2 + np.square(gradient) * (1 - beta2)

    def correction(self, step: UpdateStep) -> Any:
        """Return both bias corrections as one factor: sqrt(1 - beta2^t) / (1 - beta1^t)."""
        _, first, second = step.schedule
        return np.sqrt(second) / first


class AdamUpdate(_MomentUpdate):
    """Adam; weight decay is added to the gradient before clipping."""

    def update(self, step: UpdateStep) -> Sequence[Array]:
        """output = weight - lr * mean / (sqrt(var) + epsilon)."""
        p = self.parameters
        gradient = step.clipped(step.gradient + step.weight * step.number(p.wd))
        mean, var = self.moments(step, gradient)
        move = mean / (np.sqrt(var) + step.number(p.epsilon))
        return [step.weight - move * (step.rate * self.correction(step)), mean, var]


class AdamwUpdate(_MomentUpdate):
    """AdamW; weight decay acts directly on the weight, not through the moments."""

    def update(self, step: UpdateStep) -> Sequence[Array]:
        """output = weight - eta * (lr * mean / (sqrt(var) + epsilon) + wd * weight)."""
        p = self.parameters
        mean, var = self.moments(step, step.clipped(step.gradient))
        rate = step.number(p.lr) * self.correction(step)
        move = mean / (np.sqrt(var) + step.number(p.epsilon)) * rate
        move = move + step.weight * step.number(p.wd)
        return [step.weight - move * (step.number(p.eta) * step.schedule[0]), mean, var]


class LambUpdate(_MomentUpdate):
    """LAMB; the step's length is proportional to the weight's norm."""

    def update(self, step: UpdateStep) -> Sequence[Array]:
        """output = weight - lr * |weight| / |move| * move."""
        p = self.parameters
        mean, var = self.moments(step, step.clipped(step.gradient))
        _, first, second = step.schedule
        move = mean / first / (np.sqrt(var / second) + step.number(p.epsilon))
        move = move + step.weight * step.number(p.wd)
        norms = math.sqrt(sum_of_squares(step.weight)), math.sqrt(sum_of_squares(move))
        ratio = step.number(trust_ratio(*norms, p.lower_bound, p.upper_bound))
        return [step.weight - move * (step.rate * ratio), mean, var]


def trust_ratio(weight: float, move: float, lower_bound: float, upper_bound: float) -> float:
    """Return the bounded norm of the weight divided by that of the move; 1 if either is 0."""
    if lower_bound >= 0:
        weight = max(weight, lower_bound)
    if upper_bound >= 0:
        weight = min(weight, upper_bound)
    return 1.0 if weight == 0 or move == 0 else weight / move


class _MomentProperty(UpdateProperty):
    states = ("mean", "var")


@register("adam_update")
class AdamUpdateProperty(_MomentProperty):
    """output = weight - lr * mean_output / (sqrt(var_output) + epsilon), mean_output = beta1 * mean
    + (1 - beta1) * g, var_output = beta2 * var + (1 - beta2) * g^2, g = clip(rescale_grad * grad +
    wd * weight).

    With scheduled, lr is multiplied by schedule[0] * sqrt(schedule[2]) / schedule[1], the bias
    correction of MXNet's Adam (epsilon is not corrected). All shapes are equal; output overwrites
    weight, mean_output mean, and var_output var. No gradient.
    """

    type_string = "adam_update"
    parameter_type = AdamUpdateParameters
    operations = 14
    body = AdamUpdate


@register("adamw_update")
class AdamwUpdateProperty(_MomentProperty):
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
    operations = 14
    body = AdamwUpdate


@register("lamb_update")
class LambUpdateProperty(_MomentProperty):
    """output = weight - lr * ratio * move, move = mean_output / (sqrt(var_output) + epsilon) + wd *
    weight, ratio = |weight| / |move|, mean_output = beta1 * mean + (1 - beta1) * g, var_output =
    beta2 * var + (1 - beta2) * g^2, g = clip(rescale_grad * grad).

    MXNet's lamb_update_phase1 and lamb_update_phase2 combined. |weight| is limited to the bounds;
    ratio is 1 if a norm is 0. With scheduled, lr is multiplied by schedule[0], and the moments in
    move are divided by schedule[1] and schedule[2]. All shapes are equal; output overwrites weight,
    mean_output mean, and var_output var. No gradient.
    """

    type_string = "lamb_update"
    parameter_type = LambUpdateParameters
    operations = 22
    body = LambUpdate


class AdamArguments(UpdateArguments):
    """Arguments of `adam_loop`."""

    mean: Float32s
    var: Float32s
    beta1: Real
    beta2: Real
    epsilon: Real


@native
def adam_loop(call: AdamArguments) -> None:
    """AdamUpdate in float32; overwrites weight, mean and var."""
    schedule, one = call.schedule, np.float32(1)
    rate = call.lr * schedule[0] * (np.sqrt(schedule[2]) / schedule[1])
    wd, rescale, limit = call.wd, call.rescale_grad * call.gradient_scale[0], call.limit
    weight, grad, mean, var = call.weight, call.grad, call.mean, call.var
    beta1, beta2, epsilon = call.beta1, call.beta2, call.epsilon
    begin, end = share(call.count)
    for i in range(begin, end):
        gradient = clipped(grad[i] * rescale + weight[i] * wd, limit)
        mean[i] = mean[i] * beta1 + gradient * (one - beta1)
        var[i] = var[i] * beta2 + gradient * gradient * (one - beta2)
        weight[i] -= mean[i] / (np.sqrt(var[i]) + epsilon) * rate


class AdamwArguments(AdamArguments):
    """Arguments of `adamw_loop`."""

    eta: Real


@native
def adamw_loop(call: AdamwArguments) -> None:
    """AdamwUpdate in float32; overwrites weight, mean and var."""
    schedule, one = call.schedule, np.float32(1)
    rate = call.lr * (np.sqrt(schedule[2]) / schedule[1])
    wd, rescale, limit = call.wd, call.rescale_grad * call.gradient_scale[0], call.limit
    weight, grad, mean, var = call.weight, call.grad, call.mean, call.var
    beta1, beta2, epsilon = call.beta1, call.beta2, call.epsilon
    eta = call.eta * schedule[0]
    begin, end = share(call.count)
    for i in range(begin, end):
        gradient = clipped(grad[i] * rescale, limit)
        mean[i] = mean[i] * beta1 + gradient * (one - beta1)
        var[i] = var[i] * beta2 + gradient * gradient * (one - beta2)
        weight[i] -= (mean[i] / (np.sqrt(var[i]) + epsilon) * rate + weight[i] * wd) * eta


class LambArguments(AdamArguments):
    """Arguments of both loops of LAMB.

    sums: sums_count partial sums of the squares of weight, then as many of move. A negative bound
    of the weight's norm is none.
    """

    lower_bound: Real
    upper_bound: Real
    move: Float32s
    sums: Float64s
    sums_count: Integer


@native
def lamb_move_loop(call: LambArguments) -> None:
    """Moments and move of LambUpdate in float32; overwrites mean and var."""
    schedule, one = call.schedule, np.float32(1)
    first, second = schedule[1], schedule[2]
    wd, rescale, limit = call.wd, call.rescale_grad * call.gradient_scale[0], call.limit
    weight, grad, mean, var = call.weight, call.grad, call.mean, call.var
    beta1, beta2, epsilon = call.beta1, call.beta2, call.epsilon
    begin, end = share(call.count)
    for i in range(begin, end):
        gradient = clipped(grad[i] * rescale, limit)
        mean[i] = mean[i] * beta1 + gradient * (one - beta1)
        var[i] = var[i] * beta2 + gradient * gradient * (one - beta2)
        call.move[i] = mean[i] / first / (np.sqrt(var[i] / second) + epsilon) + weight[i] * wd


@native
def lamb_step_loop(call: LambArguments) -> None:
    """Step of LambUpdate in float32; overwrites weight; the norms are given as partial sums."""
    rate = call.lr * call.schedule[0]
    lower_bound, upper_bound = np.float64(call.lower_bound), np.float64(call.upper_bound)
    # Every thread adds all partial sums: there are few of them.
    norm, move = 0.0, 0.0
    for k in range(call.sums_count):
        norm += call.sums[k]
        move += call.sums[call.sums_count + k]
    norm, move = math.sqrt(norm), math.sqrt(move)
    if lower_bound >= 0:
        norm = max(norm, lower_bound)
    if upper_bound >= 0:
        norm = min(norm, upper_bound)
    ratio = 1.0 if norm == 0 or move == 0 else norm / move
    rate = rate * np.float32(ratio)
    begin, end = share(call.count)
    for i in range(begin, end):
        call.weight[i] -= call.move[i] * rate


@implement("adam_update", "adamw_update", "lamb_update", backend="jit")
class CompiledMomentUpdate(CompiledUpdate):
    """Compiled float32 loops, bit-identical to the NumPy bodies."""

    loops: ClassVar[Mapping[str, UpdateLoop]] = {
        "adam_update": UpdateLoop(adam_loop, AdamArguments),
        "adamw_update": UpdateLoop(adamw_loop, AdamwArguments),
        "lamb_update": UpdateLoop(lamb_move_loop, LambArguments),
    }

    def parts(self, prop: AnyProperty, count: int, threads: int) -> Sequence[KernelPart]:
        """Return one loop; for LAMB the loops for moments and move, two norms, and the step."""
        if prop.type_string != "lamb_update":
            return super().parts(prop, count, threads)
        loop = self.loops["lamb_update"]
        partial, move = Scratch(), Scratch(2 * sums_bytes(count))
        arguments = loop.arguments(prop, count, move=move, sums=partial, sums_count=sums(count))
        scratch_bytes = move.offset + 4 * count
        return [
            LoopPart(lamb_move_loop, arguments, threads, scratch_bytes),
            square_sums(count, target(0), partial, threads, scratch_bytes),
            square_sums(count, move, Scratch(sums_bytes(count)), threads, scratch_bytes),
            LoopPart(lamb_step_loop, arguments, threads, scratch_bytes),
        ]
