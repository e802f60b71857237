"""softmax_cross_entropy: sum of the cross-entropies of all rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from pydantic import Field

from mxrun.base.classification import Classification
from mxrun.base.tensor import PartialShape, Shape
from mxrun.operator.operator import BackwardCall, ForwardCall, Operator
from mxrun.operator.property import (
    PartialInference,
    PartialShapes,
)
from mxrun.operator.register import register
from mxrun.operator.shape import Dimensions, unify
from mxrun.ops.loss import (
    LossParameters,
    LossProperty,
    class_indices,
    probabilities,
)

T = TypeVar("T")
Array = npt.NDArray[Any]

# Lower bound on probabilities before the logarithm (MXNet's).
SMALLEST = 1e-8


class SoftmaxCrossEntropyParameters(LossParameters):
    """Parameters of softmax_cross_entropy: none of MXNet's; use_sample_weight is an addition."""

    use_sample_weight: bool = Field(
        default=False,
        description="Adds the argument sample_weight [N], which weights each row; weight 0 "
        "excludes a row from the sum.",
    )


@register("softmax_cross_entropy")
class SoftmaxCrossEntropyProperty(LossProperty[SoftmaxCrossEntropyParameters]):
    """output = sum over n of weight[n] * -log(max(p[n, label[n]], 1e-8)), p = softmax of data's
    rows.

    data [N, C], label [N], output [1], sample_weight [N] with use_sample_weight, else 1. The
    gradient of data is grad * weight * (p - onehot(label)), without regard to the bound 1e-8. A
    label outside [0, C) has probability 0 and a zero row in onehot. The output is the loss of a
    network that ends with this operator: its gradient is then 1, and inference returns the softmax
    of data instead. Backward reads the output's gradient, data, label and the weights.
    """

    type_string = "softmax_cross_entropy"
    parameter_type = SoftmaxCrossEntropyParameters
    label_type = "int32"
    prediction = "softmax"

    @property
    def loss_output(self) -> int:
        """Index of the only output."""
        return 0

    def label_classes(self, data: Shape, label: Shape) -> Classification:
        """One class index per row; the output itself predicts no class."""
        return Classification(data[0], data[1], 1)

    def infer_shape(self, inputs: PartialShapes, outputs: PartialShapes) -> PartialInference:
        """Unify the rows of all inputs; the output has shape [1]."""
        data = unify("data", inputs[0], (None, None), "rows of classes")
        label = unify("label", inputs[1], data[:1], "data's rows")
        arguments = self.infer_rows(data, [label, *inputs[2:]])
        return PartialInference(arguments, [unify("output", outputs[0], (1,), "one number")], [])

    def infer_label(self, data: Dimensions, label: PartialShape) -> tuple[Dimensions, PartialShape]:
        """Label is one class per row."""
        label = unify("label", label, data[:1], "data's rows")
        return (*label, data[1]), label

    def declare_backward_dependency(
        self, out_grad: Sequence[T], in_data: Sequence[T], out_data: Sequence[T]
    ) -> list[T]:
        """Return out_grad and all inputs."""
        return [out_grad[0], *in_data]

    def flops(self, in_shapes: Sequence[Shape], out_shapes: Sequence[Shape]) -> int:
        """Five per element, as for softmax."""
        return 5 * math.prod(in_shapes[0])

    def create_operator(self) -> Operator:
        """Create the NumPy body."""
        return SoftmaxCrossEntropy()


class SoftmaxCrossEntropy(Operator):
    """NumPy body; backward recomputes the softmax."""

    def forward(self, call: ForwardCall) -> None:
        """output = weighted sum of the rows' cross-entropies."""
        data, label, *weight = call.inputs
        chosen = (probabilities(data) * _onehot(label, data)).sum(axis=1)
        entropy = -np.log(np.maximum(chosen, data.dtype.type(SMALLEST)))
        call.store(output=np.sum(entropy * weight[0] if weight else entropy))

    def backward(self, call: BackwardCall) -> None:
        """Gradient of data: grad * weight * (p - onehot)."""
        data, label, *weight = call.inputs
        slope = probabilities(data) - _onehot(label, data)
        if "output" in call.output_gradients:
            slope = slope * call.output_gradients.output[0]
        if weight:
            slope = slope * weight[0][:, None]
        call.store(data=slope.astype(data.dtype, copy=False))


def _onehot(label: Array, data: Array) -> Array:
    chosen: Array = class_indices(label)[:, None] == np.arange(data.shape[1])
    return chosen.astype(data.dtype)
