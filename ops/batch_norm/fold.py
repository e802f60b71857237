"""A batch normalization by known statistics, folded into the product before it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from pydantic import Field

from mxrun.base.params import NotNegative, Parameters
from mxrun.operator.kernel import OpReqType
from mxrun.operator.operator import OpContext, Operator, assign
from mxrun.operator.property import GradientKind, OperatorProperty, PartialInference, PartialShapes
from mxrun.operator.register import register
from mxrun.operator.shape import Dimensions, unify
from mxrun.operator.tensor import Tensor

T = TypeVar("T")
Array = npt.NDArray[Any]


class BatchNormFoldParameters(Parameters):
    """Parameters of _batch_norm_fold."""

    eps: NotNegative = Field(default=1e-3, description="Added to the variance.")
    fix_gamma: bool = Field(default=True, description="Read gamma as 1.")
    no_bias: bool = Field(default=False, description="The product has no bias.")


@register("_batch_norm_fold")
class BatchNormFoldProperty(OperatorProperty[BatchNormFoldParameters]):
    """folded_weight = weight * scale, folded_bias = (bias - mean) * scale + beta, with scale =
    gamma / sqrt(var + eps), channel by channel.

    A product of folded_weight plus folded_bias is the batch normalization of the product of weight
    plus bias. weight has the channels along axis 0; everything but the weights is [C]. No gradient.
    """

    type_string = "_batch_norm_fold"
    parameter_type = BatchNormFoldParameters
    is_internal = True

    def list_arguments(self) -> tuple[str, ...]:
        """The product's parameters, then the normalization's."""
        bias = () if self.parameters.no_bias else ("bias",)
        return ("weight", *bias, "gamma", "beta", "mean", "var")

    def list_outputs(self) -> tuple[str, ...]:
        """What the product gets instead."""
        return ("folded_weight", "folded_bias")

    def infer_shape(self, inputs: PartialShapes, outputs: PartialShapes) -> PartialInference:
        """The weights have one shape; the rest has its first size."""
        weight = unify("weight", inputs[0], outputs[0], "folded_weight")
        size: Dimensions = (None if weight is None else weight[0],)
        for name, shape in zip(self.list_arguments()[1:], inputs[1:], strict=True):
            size = unify(name, shape, size, "weight")
        size = unify("folded_bias", outputs[1], size, "weight")
        if weight is not None:
            weight = (size[0], *weight[1:])
        return PartialInference([weight, *(size for _ in inputs[1:])], [weight, size], [])

    def list_gradients(self) -> tuple[GradientKind, ...]:
        """None."""
        return (GradientKind.NONE,) * len(self.list_arguments())

    def create_operator(self) -> Operator:
        """The formula in float64: it runs once."""
        return BatchNormFold(self.parameters)


class BatchNormFold(Operator):
    """The formulas of the property."""

    def __init__(self, parameters: BatchNormFoldParameters) -> None:
        self.parameters = parameters

    def forward(
        self,
        context: OpContext,
        in_data: Sequence[Tensor],
        req: Sequence[OpReqType],
        out_data: Sequence[Tensor],
        aux_states: Sequence[Tensor],
    ) -> None:
        """Both products."""
        weight, *bias, gamma, beta, mean, var = (
            tensor.array.astype(np.float64) for tensor in in_data
        )
        scale = 1 / np.sqrt(var + self.parameters.eps)
        if not self.parameters.fix_gamma:
            scale = scale * gamma
        shift = (sum(bias) - mean) * scale + beta
        along = scale.reshape(-1, *(1,) * (weight.ndim - 1))
        kind = in_data[0].array.dtype
        for place, request, value in zip(out_data, req, (weight * along, shift), strict=True):
            assign(place, request, value.astype(kind))
