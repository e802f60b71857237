"""Batch normalization with what follows it in residual networks: a sum and a rectifier.

Three operators take eight passes over memory forward and ten backward; as one, four or five and
seven.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from pydantic import Field

from mxrun.base.tensor import Shape
from mxrun.operator.fusion import fusion
from mxrun.operator.kernel import OpReqType
from mxrun.operator.operator import OpContext, Operator, assign, need
from mxrun.operator.property import GradientKind, Inferred, PartialShapes
from mxrun.operator.register import AnyProperty, create, register
from mxrun.operator.shape import unify
from mxrun.operator.tensor import Tensor
from mxrun.ops.batch_norm import (
    BETA,
    DATA,
    OUTPUT,
    BatchNorm,
    BatchNormParameters,
    BatchNormProperty,
)

T = TypeVar("T")
Array = npt.NDArray[Any]

RESIDUAL = BETA + 1


class RectifiedParameters(BatchNormParameters):
    """Those of BatchNorm, and whether something is added."""

    residual: bool = Field(
        default=False, description="Add the argument residual before negative numbers become 0."
    )


@register("_batch_norm_rectified")
class BatchNormRectifiedProperty(BatchNormProperty):
    """output = max(BatchNorm(data) + residual, 0), with or without residual, which has data's
    shape.

    Everything else is BatchNorm's. Backward, besides, reads the output: the output's gradient
    passes where the output is above 0, to residual as it is.
    """

    type_string = "_batch_norm_rectified"
    parameter_type = RectifiedParameters
    parameters: RectifiedParameters
    is_internal = True

    def list_arguments(self) -> tuple[str, ...]:
        """BatchNorm's, and residual."""
        return (*super().list_arguments(), *(("residual",) if self.parameters.residual else ()))

    def infer_shape(self, inputs: PartialShapes, outputs: PartialShapes) -> Inferred:
        """BatchNorm's; data, residual and output have one shape."""
        if not self.parameters.residual:
            return super().infer_shape(inputs, outputs)
        data = unify("residual", inputs[RESIDUAL], inputs[DATA], "data")
        found = super().infer_shape([data, *inputs[DATA + 1 : RESIDUAL]], outputs)
        return Inferred([*found.inputs, found.inputs[DATA]], found.outputs, found.auxiliary)

    def list_gradients(self) -> tuple[GradientKind, ...]:
        """BatchNorm's; residual's is computed."""
        further = (GradientKind.COMPUTES,) if self.parameters.residual else ()
        return (*super().list_gradients(), *further)

    def declare_backward_dependency(
        self, out_grad: Sequence[T], in_data: Sequence[T], out_data: Sequence[T]
    ) -> list[T]:
        """BatchNorm's, and the output."""
        declared = super().declare_backward_dependency(out_grad, in_data, out_data)
        return [*declared, out_data[OUTPUT]]

    def forward_inplace_option(
        self, in_data: Sequence[T], out_data: Sequence[T]
    ) -> list[tuple[T, T]]:
        """The output over data or residual."""
        pairs = super().forward_inplace_option(in_data, out_data)
        return [*pairs, *((tensor, out_data[OUTPUT]) for tensor in in_data[RESIDUAL:])]

    def backward_inplace_option(
        self,
        out_grad: Sequence[T],
        in_data: Sequence[T],
        out_data: Sequence[T],
        in_grad: Sequence[T],
    ) -> list[tuple[T, T]]:
        """residual's gradient over the output's; without residual, data's."""
        return [(out_grad[OUTPUT], in_grad[RESIDUAL if self.parameters.residual else DATA])]

    def flops(self, in_shapes: Sequence[Shape], out_shapes: Sequence[Shape]) -> int:
        """BatchNorm's, and one or two more for each element."""
        further = 2 if self.parameters.residual else 1
        return super().flops(in_shapes, out_shapes) + further * math.prod(in_shapes[DATA])

    def create_operator(self) -> Operator:
        """BatchNorm's expressions and two more."""
        return BatchNormRectified(self.parameters)


class BatchNormRectified(Operator):
    """BatchNorm's expressions, then the sum and the limit."""

    def __init__(self, parameters: RectifiedParameters) -> None:
        self.inner = BatchNorm(parameters)

    def forward(
        self,
        context: OpContext,
        in_data: Sequence[Tensor],
        req: Sequence[OpReqType],
        out_data: Sequence[Tensor],
        aux_states: Sequence[Tensor],
    ) -> None:
        """The normalized data, the sum, what is above 0."""
        output, mean, var = self.inner.outputs(context, in_data, aux_states)
        for residual in in_data[RESIDUAL:]:
            output = output + residual.array
        # Not max: NaN stays NaN.
        rectified = np.where(output <= 0, output.dtype.type(0), output)
        for place, request, value in zip(out_data, req, (rectified, mean, var), strict=True):
            assign(place, request, value)

    def backward(
        self,
        context: OpContext,
        out_grad: Sequence[Tensor | None],
        in_data: Sequence[Tensor | None],
        out_data: Sequence[Tensor | None],
        req: Sequence[OpReqType],
        in_grad: Sequence[Tensor | None],
        aux_states: Sequence[Tensor],
    ) -> None:
        """What passes the rectifier, through BatchNorm and to residual."""
        gradient = need(out_grad[OUTPUT])
        passed = np.where(need(out_data[OUTPUT]) <= 0, gradient.dtype.type(0), gradient)
        found = self.inner.gradients(passed, in_data, out_data)
        for place, request, value in zip(in_grad, req, (*found, passed), strict=False):
            assign(place, request, value)


def _property(
    batch_norm: AnyProperty, activation: AnyProperty, residual: bool
) -> AnyProperty | None:
    given = batch_norm.parameters
    if activation.parameters.act_type != "relu" or given.output_mean_var:
        return None
    return create("_batch_norm_rectified", {**given.model_dump(), "residual": residual})


@fusion("batch norm and rectifier", "BatchNorm", "Activation")
def rectified(batch_norm: AnyProperty, activation: AnyProperty) -> AnyProperty | None:
    """max(BatchNorm, 0)."""
    return _property(batch_norm, activation, residual=False)


@fusion("batch norm, sum and rectifier", "BatchNorm", "elemwise_add", "Activation")
def rectified_sum(
    batch_norm: AnyProperty, addition: AnyProperty, activation: AnyProperty
) -> AnyProperty | None:
    """max(BatchNorm + residual, 0)."""
    return _property(batch_norm, activation, residual=True)
