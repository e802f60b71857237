"""softmax_cross_entropy: sum of the cross-entropies of all rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from pydantic import Field

from mxrun.base.classification import Classification
from mxrun.base.params import Float32
from mxrun.base.tensor import PartialShape, Shape
from mxrun.operator.operator import BackwardCall, ForwardCall, Operator, OperatorCall
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
    row_weights,
    weighted,
)

T = TypeVar("T")
Array = npt.NDArray[Any]

# Lower bound on probabilities before the logarithm (MXNet's).
SMALLEST = 1e-8


class SoftmaxCrossEntropyParameters(LossParameters):
    """Parameters of softmax_cross_entropy, all of them additions to MXNet's, which has none."""

    grad_scale: Float32 = Field(default=1.0, description="Factor of the gradient.")
    use_ignore: bool = Field(
        default=False, description="Labels equal to ignore_label have zero loss and zero gradient."
    )
    ignore_label: float = Field(
        default=-1.0,
        ge=-(2**31),
        lt=2**31,
        description="Label to ignore, such as that of padding, with use_ignore.",
    )
    use_sample_weight: bool = Field(
        default=False,
        description="Adds the argument sample_weight [N], which weights each record; weight 0 "
        "excludes a record from the sum.",
    )


@register("softmax_cross_entropy")
class SoftmaxCrossEntropyProperty(LossProperty[SoftmaxCrossEntropyParameters]):
    """output = sum over rows of weight * -log(max(p[label], 1e-8)), p = softmax of data's rows.

    data [N, ..., C] with a row of C numbers for each label [N, ...], output [1], sample_weight [N]
    with use_sample_weight, else 1; MXNet supports data [N, C] only. The gradient of data is grad *
    grad_scale * weight * (p - onehot(label)), without regard to the bound 1e-8. A label outside
    [0, C) has probability 0 and a zero row in onehot. The output is the loss of a network that ends
    with this operator: its gradient is then 1, the reported loss is the mean over labels, and
    inference returns the softmax of data instead. Backward reads the output's gradient, data, label
    and the weights, and computes the probabilities again: none are stored.
    """

    type_string = "softmax_cross_entropy"
    parameter_type = SoftmaxCrossEntropyParameters
    label_type = "int32"
    prediction = "softmax"
    minimum_rank = (2, "rows of classes")

    @property
    def nonstandard_gradient(self) -> str:
        """Named if grad_scale is not 1."""
        scaled = self.parameters.grad_scale != 1
        return "The gradient of the output times grad_scale." if scaled else ""

    @property
    def loss_output(self) -> int:
        """Index of the only output."""
        return 0

    def label_classes(self, data: Shape, label: Shape) -> Classification:
        """One class index per row; the output itself predicts no class."""
        ignored = int(self.parameters.ignore_label) if self.parameters.use_ignore else None
        return Classification(math.prod(label), data[-1], 1, ignored=ignored)

    def infer_shape(self, inputs: PartialShapes, outputs: PartialShapes) -> PartialInference:
        """Unify the rows of all inputs; the output has shape [1]."""
        arguments = self.infer_rows(inputs[0], inputs[1:])
        return PartialInference(arguments, [unify("output", outputs[0], (1,), "one number")], [])

    def infer_label(self, data: Dimensions, label: PartialShape) -> tuple[Dimensions, PartialShape]:
        """Label is one class per row."""
        rule = "data's rows"
        if label is not None and len(label) >= len(data):
            rule += "; a FullyConnected with flatten: false keeps the axes before the last"
        label = unify("label", label, data[:-1], rule)
        return (*label, data[-1]), label

    def declare_backward_dependency(
        self, out_grad: Sequence[T], in_data: Sequence[T], out_data: Sequence[T]
    ) -> list[T]:
        """Return out_grad and all inputs."""
        return [out_grad[0], *in_data]

    def backward_inplace_option(
        self,
        out_grad: Sequence[T],
        in_data: Sequence[T],
        out_data: Sequence[T],
        in_grad: Sequence[T],
    ) -> list[tuple[T, T]]:
        """Pair data with its gradient."""
        return [(in_data[0], in_grad[0])]

    def loss_metric(self, data: Shape, label: Shape) -> str:
        """The mean of the loss is the cross-entropy."""
        return "cross_entropy"

    def flops(self, in_shapes: Sequence[Shape], out_shapes: Sequence[Shape]) -> int:
        """Five per element, as for softmax."""
        return 5 * math.prod(in_shapes[0])

    def create_operator(self) -> Operator:
        """Create the NumPy body."""
        return SoftmaxCrossEntropy(self.parameters)


class SoftmaxCrossEntropy(Operator):
    """NumPy body on rows [R, C]; backward recomputes the softmax."""

    def __init__(self, parameters: SoftmaxCrossEntropyParameters) -> None:
        self.parameters = parameters

    def forward(self, call: ForwardCall) -> None:
        """output = weighted sum of the rows' cross-entropies."""
        data, label = self._rows(call)
        chosen = (probabilities(data) * _onehot(label, data)).sum(axis=1)
        entropy = -np.log(np.maximum(chosen, data.dtype.type(SMALLEST)))
        call.store(output=np.sum(weighted(entropy, self._weights(call, label))))

    def backward(self, call: BackwardCall) -> None:
        """Gradient of data: grad * grad_scale * weight * (p - onehot)."""
        data, label = self._rows(call)
        slope = probabilities(data) - _onehot(label, data)
        if "output" in call.output_gradients:
            slope = slope * call.output_gradients.output[0]
        slope = weighted(slope, self._weights(call, label)[:, None]) * self.parameters.grad_scale
        call.store(data=slope.astype(data.dtype, copy=False).reshape(call.inputs.data.shape))

    def _rows(self, call: OperatorCall) -> tuple[Array, Array]:
        """Return data [R, C] and label [R]."""
        data, label = call.inputs.data, call.inputs.label
        return data.reshape(label.size, data.shape[-1]), label.reshape(label.size)

    def _weights(self, call: OperatorCall, label: Array) -> Array:
        """Return the weight of each row: its record's, or 0 if its label is ignored."""
        dtype, records = call.inputs.data.dtype, call.inputs.label.shape[0]
        weights = row_weights(call, records, dtype)
        repeated: Array = np.repeat(weights, label.size // max(records, 1))
        if self.parameters.use_ignore:
            ignored = int(self.parameters.ignore_label)
            repeated = np.where(class_indices(label) == ignored, dtype.type(0), repeated)
        return repeated


def _onehot(label: Array, data: Array) -> Array:
    chosen: Array = class_indices(label)[:, None] == np.arange(data.shape[1])
    return chosen.astype(data.dtype)
