"""Fusion of batch normalisation with a following rectifier, sum and rectifier, or clip.

With a sum, the three separate operators make eight passes over memory forward and ten backward; the
fused operator makes four and seven, without the sum three and five.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeVar

import numpy.typing as npt
from pydantic import Field, model_validator

from mxrun.base.params import Float32
from mxrun.base.tensor import Shape
from mxrun.operator.fusion import fusion
from mxrun.operator.operator import BackwardCall, ForwardCall, Operator
from mxrun.operator.property import GradientKind, PartialInference, PartialShapes
from mxrun.operator.register import AnyProperty, create, register
from mxrun.operator.shape import unify
from mxrun.ops.activation import relu, relu_gradient
from mxrun.ops.batch_norm.operator import (
    BETA,
    DATA,
    OUTPUT,
    BatchNorm,
    BatchNormParameters,
    BatchNormProperty,
)
from mxrun.ops.clip import clip, clip_gradient

T = TypeVar("T")
Array = npt.NDArray[Any]

RESIDUAL = BETA + 1


class LimitedParameters(BatchNormParameters):
    """Parameters of BatchNorm, the optional residual and the limits."""

    residual: bool = Field(default=False, description="Add the argument residual before relu.")
    limits: tuple[Float32, Float32] | None = Field(
        default=None,
        description="Smallest and largest output of clip; without them relu is applied.",
    )

    @model_validator(mode="after")
    def _limits_exclude_residual(self) -> LimitedParameters:
        """Reject limits with a residual: backward recomputes clip's input from data only."""
        if self.residual and self.limits is not None:
            raise ValueError("a residual is added before relu alone: leave out limits")
        return self


@register("_batch_norm_limited")
class BatchNormLimitedProperty(BatchNormProperty):
    """output = relu(BatchNorm(data) + residual); residual is optional and has data's shape. With
    limits: output = clip(BatchNorm(data), *limits).

    Everything else is as in BatchNorm. Backward also reads the tensor that decides where the
    output's gradient passes: the output for relu, beta for clip, whose input is recomputed from
    data. The gradient that passes relu is residual's gradient.

    The results equal those of the separate operators bit for bit. bfloat16 tensors are rounded at
    the same points: BatchNorm's output before the next operation, and the final output.
    """

    type_string = "_batch_norm_limited"
    parameter_type = LimitedParameters
    parameters: LimitedParameters
    is_internal = True

    def list_arguments(self) -> tuple[str, ...]:
        """BatchNorm's arguments and residual."""
        return (*super().list_arguments(), *(("residual",) if self.parameters.residual else ()))

    def infer_shape(self, inputs: PartialShapes, outputs: PartialShapes) -> PartialInference:
        """Infer as BatchNorm; data, residual and output have one shape."""
        if not self.parameters.residual:
            return super().infer_shape(inputs, outputs)
        data = unify("residual", inputs[RESIDUAL], inputs[DATA], "data")
        found = super().infer_shape([data, *inputs[DATA + 1 : RESIDUAL]], outputs)
        return PartialInference([*found.inputs, found.inputs[DATA]], found.outputs, found.auxiliary)

    def list_gradients(self) -> tuple[GradientKind, ...]:
        """BatchNorm's gradients; residual's is computed."""
        further = (GradientKind.COMPUTES,) if self.parameters.residual else ()
        return (*super().list_gradients(), *further)

    def declare_backward_dependency(
        self, out_grad: Sequence[T], in_data: Sequence[T], out_data: Sequence[T]
    ) -> list[T]:
        """Return BatchNorm's dependencies, and relu's output or clip's beta."""
        declared = super().declare_backward_dependency(out_grad, in_data, out_data)
        return [*declared, out_data[OUTPUT] if self.parameters.limits is None else in_data[BETA]]

    def forward_inplace_option(
        self, in_data: Sequence[T], out_data: Sequence[T]
    ) -> list[tuple[T, T]]:
        """Pair data or residual with the output."""
        pairs = super().forward_inplace_option(in_data, out_data)
        return [*pairs, *((tensor, out_data[OUTPUT]) for tensor in in_data[RESIDUAL:])]

    def backward_inplace_option(
        self,
        out_grad: Sequence[T],
        in_data: Sequence[T],
        out_data: Sequence[T],
        in_grad: Sequence[T],
    ) -> list[tuple[T, T]]:
        """Pair out_grad with residual's gradient and data with its own, or out_grad with data's."""
        if not self.parameters.residual:
            return [(out_grad[OUTPUT], in_grad[DATA])]
        return [(out_grad[OUTPUT], in_grad[RESIDUAL]), (in_data[DATA], in_grad[DATA])]

    def flops(self, in_shapes: Sequence[Shape], out_shapes: Sequence[Shape]) -> int:
        """Add one or two operations per element to BatchNorm's."""
        further = 2 if self.parameters.residual else 1
        return super().flops(in_shapes, out_shapes) + further * math.prod(in_shapes[DATA])

    def create_operator(self) -> Operator:
        """Create the NumPy body."""
        return BatchNormLimited(self.parameters)


class BatchNormLimited(Operator):
    """NumPy body: BatchNorm's, then the sum and the limits."""

    def __init__(self, parameters: LimitedParameters) -> None:
        self.inner, self.limits = BatchNorm(parameters), parameters.limits

    def forward(self, call: ForwardCall) -> None:
        """output = relu(BatchNorm(data) + residual) or clip(BatchNorm(data), *limits)."""
        output, mean, var = self.inner.results(call)
        if "residual" in call.inputs:
            output = output + call.inputs.residual
        limited = relu(output) if self.limits is None else clip(output, *self.limits)
        call.store(output=limited, mean=mean, var=var)

    def backward(self, call: BackwardCall) -> None:
        """Gradients of BatchNorm and residual from the gradient that passes the limits."""
        gradient = call.output_gradients.output
        if self.limits is None:
            passed = relu_gradient(gradient, call.outputs.output)
        else:
            before = self.inner.normalized(call, call.outputs.mean, call.outputs.var)
            passed = clip_gradient(gradient, before, *self.limits)
        self.inner.store_gradients(call, passed)
        if "residual" in call.requests:
            call.store(residual=passed)


def _property(batch_norm: AnyProperty, **further: object) -> AnyProperty | None:
    given = batch_norm.parameters
    if given.output_mean_var:
        return None
    return create("_batch_norm_limited", {**given.model_dump(), **further})


@fusion("batch norm and rectifier", "BatchNorm", "Activation")
def rectified(batch_norm: AnyProperty, activation: AnyProperty) -> AnyProperty | None:
    """Return relu(BatchNorm)."""
    return _property(batch_norm) if activation.parameters.act_type == "relu" else None


@fusion("batch norm, sum and rectifier", "BatchNorm", "elemwise_add", "Activation")
def rectified_sum(
    batch_norm: AnyProperty, addition: AnyProperty, activation: AnyProperty
) -> AnyProperty | None:
    """Return relu(BatchNorm + residual)."""
    if activation.parameters.act_type != "relu":
        return None
    return _property(batch_norm, residual=True)


@fusion("batch norm and clip", "BatchNorm", "clip")
def clipped(batch_norm: AnyProperty, following: AnyProperty) -> AnyProperty | None:
    """Return clip(BatchNorm).

    Not available after a sum: the output does not tell whether a gradient passes at the limits.
    """
    return _property(batch_norm, limits=(following.parameters.a_min, following.parameters.a_max))
