"""Optimizer updates as operators: planned, profiled and overlapped like any other."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar, TypeVar

import numpy as np
import numpy.typing as npt
from pydantic import Field

from mxrun.backend.jit import Block, float32s, integer, native, real, share
from mxrun.backend.team import team_for_elements
from mxrun.base.params import Float32, Parameters
from mxrun.base.tensor import PLAIN, Shape
from mxrun.operator.kernel import BackwardRequest, ForwardRequest, Kernel, OpReqType
from mxrun.operator.native_kernel import LoopPart, Slot, native_kernel, source, target
from mxrun.operator.operator import OpContext, Operator, assign
from mxrun.operator.property import (
    GradientKind,
    Inferred,
    OperatorProperty,
    PartialShapes,
    PartialType,
    same_shape,
)
from mxrun.operator.register import AnyProperty, Implementation, implement, register
from mxrun.operator.shape import unify
from mxrun.operator.tensor import Tensor

T = TypeVar("T")
Array = npt.NDArray[Any]


class SgdUpdateParameters(Parameters):
    """Parameters of sgd_update (MXNet's names and defaults; scheduled is ours)."""

    lr: Float32 = Field(description="Learning rate.")
    wd: Float32 = Field(default=0.0, description="Weight decay: adds wd * weight to the gradient.")
    rescale_grad: Float32 = Field(default=1.0, description="Factor of the gradient.")
    clip_gradient: Float32 = Field(
        default=-1.0,
        description="Limit of the rescaled gradient's absolute value; none when negative.",
    )
    lazy_update: bool = Field(
        default=True, description="Accepted for MXNet's models; gradients here are never sparse."
    )
    scheduled: bool = Field(
        default=False,
        description="A last argument `schedule` of shape [1] multiplies lr at every step.",
    )


class SgdMomUpdateParameters(SgdUpdateParameters):
    """Parameters of sgd_mom_update: those of sgd_update and momentum."""

    momentum: Float32 = Field(default=0.0, description="Factor of the momentum at every step.")


@register("sgd_update")
class SgdUpdateProperty(OperatorProperty[SgdUpdateParameters]):
    """output = weight - lr * gradient, gradient = clip(rescale_grad * grad) + wd * weight.

    weight, grad and output have one shape; output takes weight's place. No gradient.
    """

    type_string = "sgd_update"
    parameter_type: ClassVar[type[Parameters]] = SgdUpdateParameters
    states: ClassVar[tuple[str, ...]] = ()

    def list_arguments(self) -> tuple[str, ...]:
        """weight, grad, the optimizer's states and, when scheduled, schedule."""
        schedule = ("schedule",) if self.parameters.scheduled else ()
        return ("weight", "grad", *self.states, *schedule)

    def list_outputs(self) -> tuple[str, ...]:
        """The new weight and, hidden, the new states."""
        return ("output", *(f"{state}_output" for state in self.states))

    @property
    def num_visible_outputs(self) -> int:
        """The new weight alone."""
        return 1

    def list_mutated_inputs(self) -> dict[int, int]:
        """The weight and the states are overwritten."""
        return {0: 0, **{2 + index: 1 + index for index in range(len(self.states))}}

    def list_gradients(self) -> tuple[GradientKind, ...]:
        """None."""
        return (GradientKind.NONE,) * len(self.list_arguments())

    def infer_shape(self, inputs: PartialShapes, outputs: PartialShapes) -> Inferred:
        """All of one shape, but schedule."""
        alike = 2 + len(self.states)
        names = (*self.list_arguments()[:alike], *self.list_outputs())
        shapes = same_shape(names, [*inputs[:alike], *outputs], "elementwise update")
        schedule = [unify("schedule", shape, (1,), "one number") for shape in inputs[alike:]]
        return Inferred([*shapes[:alike], *schedule], shapes[alike:], [])

    def infer_type(
        self, inputs: list[PartialType], outputs: list[PartialType]
    ) -> tuple[list[PartialType], list[PartialType]]:
        """All of one type, but schedule, which is float32."""
        alike = 2 + len(self.states)
        common = next((dtype for dtype in [*inputs[:alike], *outputs] if dtype), None)
        completed = [dtype or common for dtype in inputs[:alike]]
        schedule = [dtype or "float32" for dtype in inputs[alike:]]
        return [*completed, *schedule], [dtype or common for dtype in outputs]

    def forward_inplace_option(
        self, in_data: Sequence[T], out_data: Sequence[T]
    ) -> list[tuple[T, T]]:
        """Every output over what it replaces."""
        return [
            (in_data[source], out_data[target])
            for source, target in self.list_mutated_inputs().items()
        ]

    def flops(self, in_shapes: Sequence[Shape], out_shapes: Sequence[Shape]) -> int:
        """Rescaling, decay (two), rate and subtraction; two more for each state."""
        return (5 + 2 * len(self.states)) * math.prod(in_shapes[0])

    def create_operator(self) -> Operator:
        """NumPy expressions."""
        return SgdUpdate(self.parameters)


@register("sgd_mom_update")
class SgdMomUpdateProperty(SgdUpdateProperty):
    """mom_output = momentum * mom - lr * gradient, output = weight + mom_output, gradient =
    clip(rescale_grad * grad) + wd * weight.

    All of one shape; output takes weight's place, mom_output mom's. No gradient.
    """

    type_string = "sgd_mom_update"
    parameter_type = SgdMomUpdateParameters
    states = ("mom",)
    parameters: SgdMomUpdateParameters

    def create_operator(self) -> Operator:
        """NumPy expressions."""
        return SgdMomUpdate(self.parameters)


class SgdUpdate(Operator):
    """MXNet's order of operations, in the weight's element type."""

    def __init__(self, parameters: SgdUpdateParameters) -> None:
        self.parameters = parameters

    def forward(
        self,
        context: OpContext,
        in_data: Sequence[Tensor],
        req: Sequence[OpReqType],
        out_data: Sequence[Tensor],
        aux_states: Sequence[Tensor],
    ) -> None:
        """output = weight - lr * gradient."""
        weight, step = self._step(in_data)
        assign(out_data[0], req[0], weight - step)

    def _step(self, in_data: Sequence[Tensor]) -> tuple[Array, Array]:
        """The weight, and the learning rate times the decayed gradient."""
        p = self.parameters
        weight = in_data[0].array
        gradient = in_data[1].array * p.rescale_grad
        if p.clip_gradient >= 0:
            gradient = np.clip(gradient, -p.clip_gradient, p.clip_gradient)
        gradient = gradient + weight * p.wd
        rate = np.full(1, p.lr, weight.dtype)
        if p.scheduled:
            rate *= in_data[-1].array
        return weight, gradient * rate


class SgdMomUpdate(SgdUpdate):
    """The same with momentum."""

    parameters: SgdMomUpdateParameters

    def forward(
        self,
        context: OpContext,
        in_data: Sequence[Tensor],
        req: Sequence[OpReqType],
        out_data: Sequence[Tensor],
        aux_states: Sequence[Tensor],
    ) -> None:
        """mom_output = momentum * mom - lr * gradient; output = weight + mom_output."""
        weight, step = self._step(in_data)
        momentum = in_data[2].array * self.parameters.momentum - step
        # Both sums are complete before either is stored: the outputs may lie over the inputs.
        updated = weight + momentum
        assign(out_data[0], req[0], updated)
        assign(out_data[1], req[1], momentum)


@native
def sgd_loop(block: Block) -> None:
    """SgdUpdate on float32; the output usually lies over the weight."""
    lr, wd, rescale, clip = real(block, 1), real(block, 2), real(block, 3), real(block, 4)
    weight, grad, output = float32s(block, 5), float32s(block, 6), float32s(block, 7)
    if integer(block, 8) != 0:
        lr = lr * float32s(block, 8)[0]
    begin, end = share(block, integer(block, 0))
    # Working on the output alone keeps the loop free of aliases, so that it becomes vector code.
    if integer(block, 5) != integer(block, 7):
        for i in range(begin, end):
            output[i] = weight[i]
    if clip >= 0:
        for i in range(begin, end):
            gradient = min(max(grad[i] * rescale, -clip), clip)
            output[i] -= (gradient + output[i] * wd) * lr
    else:
        for i in range(begin, end):
            output[i] -= (grad[i] * rescale + output[i] * wd) * lr


@native
def sgd_mom_loop(block: Block) -> None:
    """SgdMomUpdate on float32; the outputs usually lie over weight and mom."""
    lr, wd, rescale, clip = real(block, 1), real(block, 2), real(block, 3), real(block, 4)
    weight, grad, output = float32s(block, 5), float32s(block, 6), float32s(block, 7)
    if integer(block, 8) != 0:
        lr = lr * float32s(block, 8)[0]
    momentum, mom, moments = real(block, 9), float32s(block, 10), float32s(block, 11)
    begin, end = share(block, integer(block, 0))
    if integer(block, 5) != integer(block, 7):
        for i in range(begin, end):
            output[i] = weight[i]
    if integer(block, 10) != integer(block, 11):
        for i in range(begin, end):
            moments[i] = mom[i]
    if clip >= 0:
        for i in range(begin, end):
            gradient = min(max(grad[i] * rescale, -clip), clip)
            moments[i] = moments[i] * momentum - (gradient + output[i] * wd) * lr
            output[i] += moments[i]
    else:
        for i in range(begin, end):
            gradient = grad[i] * rescale
            moments[i] = moments[i] * momentum - (gradient + output[i] * wd) * lr
            output[i] += moments[i]


@implement("sgd_update", "sgd_mom_update", backend="jit")
class CompiledSgd(Implementation):
    """One loop in float32, the bits of the NumPy body."""

    def prepare_forward(self, prop: AnyProperty, request: ForwardRequest) -> Kernel | None:
        """Plain layouts; every output asked for."""
        p = prop.parameters
        types = {spec.dtype for spec in request.inputs}
        if types != {"float32"} or OpReqType.NULL in request.requests:
            return None
        count = request.inputs[0].elements
        schedule = source(len(request.inputs) - 1) if p.scheduled else 0
        arguments: tuple[Slot | int | float, ...] = (
            *(count, float(p.lr), float(p.wd), float(p.rescale_grad), float(p.clip_gradient)),
            *(source(0), source(1), target(0), schedule),
        )
        loop = sgd_loop
        if prop.list_outputs()[1:]:
            loop = sgd_mom_loop
            arguments = (*arguments, float(p.momentum), source(2), target(1))
        return native_kernel(
            self.name,
            [LoopPart(loop, arguments, team_for_elements(count, request.threads))],
            tuple(spec.laid_out(PLAIN) for spec in request.inputs),
            tuple(spec.laid_out(PLAIN) for spec in request.outputs),
            request.requests,
            request.threads,
            flops=prop.flops([spec.shape for spec in request.inputs], []),
        )

    def prepare_backward(self, prop: AnyProperty, request: BackwardRequest) -> Kernel | None:
        """An update has no gradient."""
        return None
