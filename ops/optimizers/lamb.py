"""LAMB: Adam with steps scaled to the norm of the weight."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from pydantic import Field

from mxrun.base.dtype import FLOAT32
from mxrun.base.params import Float32, Positive
from mxrun.codegen.arguments import Arguments, Float32s, Float64s, Integer, Real
from mxrun.codegen.jit import native
from mxrun.operator import scalar
from mxrun.operator.kernel import ForwardRequest, Kernel, OpReqType
from mxrun.operator.native_kernel import KernelPart, LoopPart, Place, Scratch, source, target
from mxrun.operator.operator import Operator
from mxrun.operator.optimizer import register_optimizer
from mxrun.operator.optimizer_property import (
    OptimizerProperty,
    Update,
    UpdateImplementation,
    register_update,
)
from mxrun.operator.register import AnyProperty
from mxrun.operator.scalar import sqrt
from mxrun.operator.update_map import clipped
from mxrun.ops.gradient_norm import square_sums, sum_of_squares, sums, sums_bytes
from mxrun.ops.optimizers.adam import Adam, MomentParameters, moments

Array = npt.NDArray[Any]


def lamb_update(
    weight: Any,
    grad: Any,
    mean: Any,
    var: Any,
    first_correction: Any,
    second_correction: Any,
    wd: Any,
    clip_gradient: Any,
    beta1: Any,
    beta2: Any,
    epsilon: Any,
) -> Any:
    """Return the move, which is subtracted from the weight times a factor, and the new moments."""
    mean, var = moments(clipped(grad, clip_gradient), mean, var, beta1, beta2)
    move = mean / first_correction / (sqrt(var / second_correction) + epsilon)
    return move + weight * wd, mean, var


def moved(weight: Any, move: Any, factor: Any) -> Any:
    """Return the new weight."""
    return weight - move * factor


def trust_ratio(weight: float, move: float, lower_bound: float, upper_bound: float) -> float:
    """Return the bounded norm of the weight divided by that of the move; 1 if either is 0."""
    if lower_bound >= 0:
        weight = max(weight, lower_bound)
    if upper_bound >= 0:
        weight = min(weight, upper_bound)
    return 1.0 if weight == 0 or move == 0 else weight / move


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


class LambUpdate(Update):
    """NumPy body: the step's factor needs the norms of the entire weight and move."""

    def updated(self, operands: Mapping[str, Array]) -> Sequence[Array]:
        """output = weight - lr * |weight| / |move| * move."""
        p, weight = self.prop.parameters, operands["weight"]
        move, *states = super().updated(operands)
        norms = math.sqrt(sum_of_squares(weight)), math.sqrt(sum_of_squares(move))
        number = weight.dtype.type
        rate = number(p.lr) * operands["schedule"]
        ratio = trust_ratio(*norms, p.lower_bound, p.upper_bound)
        return [moved(weight, move, rate * number(ratio)), *states]


class StepFactor(Arguments):
    """Arguments of `step_factor_loop`.

    sums: `count` partial sums of the squares of weight, then as many of move. A negative bound of
    the weight's norm is none. factor: one element.
    """

    count: Integer
    sums: Float64s
    lr: Real
    schedule: Float32s
    lower_bound: Real
    upper_bound: Real
    factor: Float32s


@native
def step_factor_loop(call: StepFactor) -> None:
    """factor = lr * schedule[0] * ratio, with the ratio of `trust_ratio`."""
    lower_bound, upper_bound = np.float64(call.lower_bound), np.float64(call.upper_bound)
    norm, move = 0.0, 0.0
    for k in range(call.count):
        norm += call.sums[k]
        move += call.sums[call.count + k]
    norm, move = math.sqrt(norm), math.sqrt(move)
    if lower_bound >= 0:
        norm = max(norm, lower_bound)
    if upper_bound >= 0:
        norm = min(norm, upper_bound)
    ratio = 1.0 if norm == 0 or move == 0 else norm / move
    call.factor[0] = call.lr * call.schedule[0] * np.float32(ratio)


_MOVED = scalar.compile(moved)
_LINE = 64


class CompiledLambUpdate(UpdateImplementation):
    """Moments and move in one loop, both norms, the step's factor, and the step."""

    def prepare_forward(self, prop: AnyProperty, request: ForwardRequest) -> Kernel | None:
        """Prepare the update of float32 tensors."""
        if any(spec.dtype != FLOAT32 for spec in request.inputs):
            return None
        return super().prepare_forward(prop, request)

    def parts(
        self, prop: OptimizerProperty, request: ForwardRequest, places: dict[str, Place]
    ) -> Sequence[KernelPart]:
        """Return the loops; scratch space holds the partial sums, the factor and the move."""
        p, count = prop.parameters, request.inputs[0].elements
        weight, *states = request.requests
        squares, factor = Scratch(sums_bytes(count)), Scratch(2 * sums_bytes(count))
        move = Scratch(factor.offset + _LINE)
        device, scratch_bytes = request.device, move.offset + request.inputs[0].nbytes
        moments_part = prop.update_map.part(
            [move, target(1), target(2)],
            places,
            count,
            p,
            device=device,
            requests=[OpReqType.NULL if weight is OpReqType.NULL else OpReqType.WRITE, *states],
            scratch_bytes=scratch_bytes,
        )
        if weight is OpReqType.NULL:
            return [moments_part]
        step_factor = StepFactor(
            count=sums(count),
            sums=Scratch(),
            lr=float(p.lr),
            schedule=places["schedule"],
            lower_bound=float(p.lower_bound),
            upper_bound=float(p.upper_bound),
            factor=factor,
        )
        tasks = request.device.tasks_for_elements(count)
        return [
            moments_part,
            square_sums(count, source(0), Scratch(), tasks, scratch_bytes),
            square_sums(count, move, squares, tasks, scratch_bytes),
            LoopPart(step_factor_loop, step_factor, 1, scratch_bytes),
            _MOVED.part(
                target(0),
                [source(0), move, factor],
                count,
                device=device,
                request=weight,
                steps=(1, 1, 0),
                scratch_bytes=scratch_bytes,
            ),
        ]


@register_update("lamb_update", CompiledLambUpdate)
class LambUpdateProperty(OptimizerProperty):
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
    states = ("mean", "var")
    update = staticmethod(lamb_update)

    def create_operator(self) -> Operator:
        """Create the NumPy body."""
        return LambUpdate(self)


@register_optimizer("lamb")
class Lamb(Adam):
    """Adam with steps scaled to the norm of the weight (You et al., arXiv 1904.00962)."""

    update = "lamb_update"

    epsilon: Positive = Field(
        1e-6, description="Added to the root of the squared gradient's moving average."
    )
    lower_bound: Positive | None = Field(
        None, description="Lower bound on the norm of a weight; default: none.", examples=[0.001]
    )
    upper_bound: Positive | None = Field(
        None, description="Upper bound on the norm of a weight; default: none.", examples=[10.0]
    )
    bias_correction: bool = Field(
        True, description="Whether the bias of the moving averages' start at 0 is corrected."
    )

    def operator(self) -> tuple[str, Mapping[str, object]]:
        """Return `lamb_update`, whose bias correction is part of the schedule."""
        name, parameters = super().operator()
        return name, {key: value for key, value in parameters.items() if key != "bias_correction"}

    def corrections(self, step: int) -> tuple[float, float]:
        """Return Adam's corrections, or 1 without bias correction."""
        return super().corrections(step) if self.bias_correction else (1.0, 1.0)
