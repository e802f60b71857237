"""Folding of a batch normalisation with fixed statistics into the preceding product."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from pydantic import Field

from mxrun.base.params import NotNegative, Parameters
from mxrun.operator.family import OperatorFamily
from mxrun.operator.operator import ForwardCall, Operator
from mxrun.operator.property import GradientKind, OperatorProperty, PartialInference, PartialShapes
from mxrun.operator.register import register
from mxrun.operator.shape import Dimensions, unify

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
    gamma / sqrt(var + eps) per channel.

    A product with folded_weight, plus folded_bias, equals the batch normalisation of the product
    with weight, plus bias. The channels are weight's axis 0. All tensors but the weights have the
    shape [C]. No gradient.
    """

    type_string = "_batch_norm_fold"
    family = OperatorFamily.NORMALISATION
    parameter_type = BatchNormFoldParameters
    is_internal = True

    def list_arguments(self) -> tuple[str, ...]:
        """The product's parameters, then the normalisation's."""
        bias = () if self.parameters.no_bias else ("bias",)
        return ("weight", *bias, "gamma", "beta", "mean", "var")

    def list_outputs(self) -> tuple[str, ...]:
        """The product's new parameters."""
        return ("folded_weight", "folded_bias")

    def infer_shape(self, inputs: PartialShapes, outputs: PartialShapes) -> PartialInference:
        """Unify both weights; all other tensors have their first size."""
        weight = unify("weight", inputs[0], outputs[0], "folded_weight")
        size: Dimensions = (None if weight is None else weight[0],)
        for name, shape in zip(self.list_arguments()[1:], inputs[1:], strict=True):
            size = unify(name, shape, size, "weight")
        size = unify("folded_bias", outputs[1], size, "weight")
        if weight is not None:
            weight = (size[0], *weight[1:])
        return PartialInference([weight, *(size for _ in inputs[1:])], [weight, size], [])

    def list_gradients(self) -> tuple[GradientKind, ...]:
        """No input has a gradient."""
        return (GradientKind.NONE,) * len(self.list_arguments())

    def create_operator(self) -> Operator:
        """Create the NumPy body, the only implementation: it runs once."""
        return BatchNormFold(self.parameters)


class BatchNormFold(Operator):
    """NumPy body in float64."""

    def __init__(self, parameters: BatchNormFoldParameters) -> None:
        self.parameters = parameters

    def forward(self, call: ForwardCall) -> None:
        """folded_weight = weight * scale; folded_bias = (bias - mean) * scale + beta."""
        weight, *bias, gamma, beta, mean, var = (
            tensor.astype(np.float64) for tensor in call.inputs
        )
        scale = 1 / np.sqrt(var + self.parameters.eps)
        if not self.parameters.fix_gamma:
            scale = scale * gamma
        shift = (sum(bias) - mean) * scale + beta
        along = scale.reshape(-1, *(1,) * (weight.ndim - 1))
        kind = call.inputs.weight.dtype
        call.store(
            folded_weight=(weight * along).astype(kind),
            folded_bias=shift.astype(kind),
        )
