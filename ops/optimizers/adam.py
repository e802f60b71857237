"""Updates by moving averages of the gradient and its square: Adam, AdamW, LAMB."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar

import numpy as np
import numpy.typing as npt
from pydantic import Field

from mxrun.backend.jit import Block, clipped, float32s, float64s, integer, native, real, share
from mxrun.base.params import Float32
from mxrun.operator.native_kernel import KernelPart, target
from mxrun.operator.register import AnyProperty, implement, register
from mxrun.ops.gradient_norm import (
    Scratch,
    ScratchLoopPart,
    square_sums,
    sum_of_squares,
    sums,
    sums_bytes,
)
from mxrun.ops.optimizers.update import (
    CompiledUpdate,
    Update,
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


@native
def adam_loop(block: Block) -> None:
    """AdamUpdate in float32; overwrites weight, mean and var."""
    schedule, one = float32s(block, 5), np.float32(1)
    rate = real(block, 1) * schedule[0] * (np.sqrt(schedule[2]) / schedule[1])
    wd, rescale, limit = real(block, 2), real(block, 3) * float32s(block, 6)[0], real(block, 4)
    weight, grad = float32s(block, 7), float32s(block, 8)
    mean, var = float32s(block, 9), float32s(block, 10)
    beta1, beta2, epsilon = real(block, 11), real(block, 12), real(block, 13)
    begin, end = share(block, integer(block, 0))
    for i in range(begin, end):
        gradient = clipped(grad[i] * rescale + weight[i] * wd, limit)
        mean[i] = mean[i] * beta1 + gradient * (one - beta1)
        var[i] = var[i] * beta2 + gradient * gradient * (one - beta2)
        weight[i] -= mean[i] / (np.sqrt(var[i]) + epsilon) * rate


@native
def adamw_loop(block: Block) -> None:
    """AdamwUpdate in float32; overwrites weight, mean and var."""
    schedule, one = float32s(block, 5), np.float32(1)
    rate = real(block, 1) * (np.sqrt(schedule[2]) / schedule[1])
    wd, rescale, limit = real(block, 2), real(block, 3) * float32s(block, 6)[0], real(block, 4)
    weight, grad = float32s(block, 7), float32s(block, 8)
    mean, var = float32s(block, 9), float32s(block, 10)
    beta1, beta2, epsilon = real(block, 11), real(block, 12), real(block, 13)
    eta = real(block, 14) * schedule[0]
    begin, end = share(block, integer(block, 0))
    for i in range(begin, end):
        gradient = clipped(grad[i] * rescale, limit)
        mean[i] = mean[i] * beta1 + gradient * (one - beta1)
        var[i] = var[i] * beta2 + gradient * gradient * (one - beta2)
        weight[i] -= (mean[i] / (np.sqrt(var[i]) + epsilon) * rate + weight[i] * wd) * eta


@native
def lamb_move_loop(block: Block) -> None:
    """Moments and move of LambUpdate in float32; overwrites mean and var."""
    schedule, one = float32s(block, 5), np.float32(1)
    first, second = schedule[1], schedule[2]
    wd, rescale, limit = real(block, 2), real(block, 3) * float32s(block, 6)[0], real(block, 4)
    weight, grad = float32s(block, 7), float32s(block, 8)
    mean, var = float32s(block, 9), float32s(block, 10)
    beta1, beta2, epsilon = real(block, 11), real(block, 12), real(block, 13)
    move = float32s(block, 16)
    begin, end = share(block, integer(block, 0))
    for i in range(begin, end):
        gradient = clipped(grad[i] * rescale, limit)
        mean[i] = mean[i] * beta1 + gradient * (one - beta1)
        var[i] = var[i] * beta2 + gradient * gradient * (one - beta2)
        move[i] = mean[i] / first / (np.sqrt(var[i] / second) + epsilon) + weight[i] * wd


@native
def lamb_step_loop(block: Block) -> None:
    """Step of LambUpdate in float32; overwrites weight; the norms are given as partial sums."""
    rate, weight, move = real(block, 1) * float32s(block, 5)[0], float32s(block, 7), 0.0
    lower_bound, upper_bound = np.float64(real(block, 14)), np.float64(real(block, 15))
    moves, partial = float32s(block, 16), float64s(block, 17)
    # Every thread adds all partial sums: there are few of them.
    norm, count = 0.0, integer(block, 18)
    for k in range(count):
        norm += partial[k]
        move += partial[count + k]
    norm, move = math.sqrt(norm), math.sqrt(move)
    if lower_bound >= 0:
        norm = max(norm, lower_bound)
    if upper_bound >= 0:
        norm = min(norm, upper_bound)
    ratio = 1.0 if norm == 0 or move == 0 else norm / move
    rate = rate * np.float32(ratio)
    begin, end = share(block, integer(block, 0))
    for i in range(begin, end):
        weight[i] -= moves[i] * rate


@implement("adam_update", "adamw_update", "lamb_update", backend="jit")
class CompiledMomentUpdate(CompiledUpdate):
    """Compiled float32 loops, bit-identical to the NumPy bodies."""

    loops: ClassVar[Mapping[str, UpdateLoop]] = {
        "adam_update": UpdateLoop(adam_loop, ("beta1", "beta2", "epsilon")),
        "adamw_update": UpdateLoop(adamw_loop, ("beta1", "beta2", "epsilon", "eta")),
        "lamb_update": UpdateLoop(
            lamb_move_loop, ("beta1", "beta2", "epsilon", "lower_bound", "upper_bound")
        ),
    }

    def parts(self, prop: AnyProperty, count: int, threads: int) -> Sequence[KernelPart]:
        """Return one loop; for LAMB the loops for moments and move, two norms, and the step."""
        if prop.type_string != "lamb_update":
            return super().parts(prop, count, threads)
        loop = self.loops["lamb_update"]
        partial, moves = Scratch(0), Scratch(2 * sums_bytes(count))
        arguments = (*loop.arguments(prop, count), moves, partial, sums(count))
        scratch_bytes = moves.offset + 4 * count
        return [
            ScratchLoopPart(lamb_move_loop, arguments, threads, scratch_bytes),
            square_sums(count, target(0), partial, threads, scratch_bytes),
            square_sums(count, moves, Scratch(sums_bytes(count)), threads, scratch_bytes),
            ScratchLoopPart(lamb_step_loop, arguments, threads, scratch_bytes),
        ]
