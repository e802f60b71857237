"""SoftmaxOutput: softmax with the gradient of the cross-entropy."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from pydantic import Field

from mxrun.base.classification import Classification
from mxrun.base.dataclass import dataclass
from mxrun.base.params import Float32
from mxrun.base.tensor import PartialShape, Shape
from mxrun.operator.operator import BackwardCall, ForwardCall, Operator, OperatorCall
from mxrun.operator.property import (
    PartialShapes,
    PartialType,
)
from mxrun.operator.register import register
from mxrun.operator.shape import Dimensions, ShapeContradiction, product, show, unify
from mxrun.ops.loss import (
    LabelledLossProperty,
    LossParameters,
    Normalization,
    class_indices,
    probabilities,
    row_weights,
    weighted,
)

T = TypeVar("T")
Array = npt.NDArray[Any]


class SoftmaxOutputParameters(LossParameters):
    """Parameters of SoftmaxOutput (MXNet's names and defaults, and use_sample_weight)."""

    grad_scale: Float32 = Field(default=1.0, description="Factor of the gradient.")
    ignore_label: float = Field(
        default=-1.0,
        ge=-(2**31),
        lt=2**31,
        description="Label of the samples to ignore, with use_ignore.",
    )
    multi_output: bool = Field(
        default=False,
        description="Softmax over axis 1 at every position of the other axes, with one label "
        "each. The gradient is divided by the number of positions unless normalization is "
        "valid.",
    )
    use_ignore: bool = Field(
        default=False, description="Samples labelled ignore_label have zero gradient and zero loss."
    )
    preserve_shape: bool = Field(
        default=False, description="Softmax over the last axis instead of over all but the first."
    )
    normalization: Normalization = Field(
        default="null",
        description="Divides the gradient by 1 (null), by the number of samples (batch), or by "
        "the number of samples not labelled ignore_label (valid).",
    )
    out_grad: bool = Field(
        default=False, description="Multiply the gradient by the output's gradient."
    )
    smooth_alpha: float = Field(
        default=0.0,
        ge=0.0,
        le=1.0,
        description="Probability moved from the label to the other classes, in equal shares; no "
        "effect with multi_output, as in MXNet.",
    )
    use_sample_weight: bool = Field(
        default=False,
        description="Adds the argument sample_weight [batch], which weights each row; weight 0 "
        "excludes a row from loss, gradient and normalization.",
    )


@register(
    "SoftmaxOutput",
    "Softmax",
    foreign={
        "SoftmaxOutput: {label: label}, which contains the softmax": "crossentropy "
        "crossentropyloss softmaxloss softmaxcrossentropyloss categoricalcrossentropy "
        "sparsecategoricalcrossentropy nllloss",
    },
)
class SoftmaxOutputProperty(LabelledLossProperty[SoftmaxOutputParameters]):
    """output = exp(data - max) / sum exp(data - max); loss = sum of -log(output[label]).

    data and output [N, ...]. label: data's shape without its last axis, so [N] for data [N, C] (for
    data of higher rank MXNet reads the first N labels: Flatten data first); with multi_output,
    data's shape without axis 1; or data's shape, as float32 probabilities. loss [1], hidden. With
    smooth_alpha a and C classes, loss = sum of -(1 - a) * log(output[label]) and, for each other
    class k, of -a / (C - 1) * log(output[k]).

    The gradient of data is (output - onehot(label)) * grad_scale, not normalised by default. With
    out_grad it is multiplied by the output's gradient, which is otherwise ignored. A label outside
    the classes has a zero row in onehot, as in MXNet. Backward reads label and output, with
    out_grad also the output's gradient, and with use_sample_weight also the weights [N].
    """

    type_string = "SoftmaxOutput"
    parameter_type = SoftmaxOutputParameters
    label_type = "int32"
    minimum_rank = (2, "softmax over rows")
    nonstandard_gradient = (
        "The gradient of loss times grad_scale; with out_grad also times the output's gradient."
    )

    @property
    def mixes_samples(self) -> bool:
        """True unless normalization is null: gradients are divided by a count over the batch."""
        return self.parameters.normalization != "null"

    def averages_gradient(self, in_shapes: Sequence[Shape]) -> bool:
        """True unless normalization is null or labels are probabilities, which it ignores."""
        data, label, *_ = in_shapes
        return self.parameters.normalization != "null" and label != data

    def classification(self, data: Shape, label: Shape) -> Classification:
        """Classes along rows, the last axis (preserve_shape) or axis 1 (multi_output).

        Labels of data's shape are probabilities, and rows of higher rank have more labels than are
        read. In both cases the labels are not one class index per prediction.
        """
        p = self.parameters
        if p.multi_output:
            samples, classes, positions = data[0], data[1], math.prod(data[2:])
        elif p.preserve_shape:
            samples, classes, positions = math.prod(data[:-1]), data[-1], 1
        else:
            samples, classes, positions = data[0], math.prod(data[1:]), 1
        labelled = label != data and math.prod(label) == samples * positions
        ignored = int(p.ignore_label) if p.use_ignore else None
        return Classification(
            samples=samples,
            classes=classes,
            positions=positions,
            labelled=labelled,
            ignored=ignored,
        )

    def loss_metric(self, data: Shape, label: Shape) -> str:
        """cross_entropy for labels that are classes, unless they are smoothed."""
        p = self.parameters
        smoothed = p.smooth_alpha and not p.multi_output
        return "cross_entropy" if self.classification(data, label).labelled and not smoothed else ""

    def infer_label(self, data: Dimensions, label: PartialShape) -> tuple[Dimensions, PartialShape]:
        """Infer label's shape from data's, and the rows of data from label's."""
        rows = label[0] if label else None
        data = unify("data", data, (rows, *(None,) * (len(data) - 1)), "label's rows")
        if not self.parameters.multi_output:
            accepted: list[Dimensions] = [data[:-1]]
        else:
            spatial = data[2:]
            accepted = [(data[0], product(spatial)), (data[0], *spatial), (data[0], 1, *spatial)]
        if label is None:
            return data, accepted[0]
        for shape in (*accepted, data):
            if len(shape) == len(label):
                try:
                    return data, unify("label", label, shape)
                except ShapeContradiction:
                    continue
        shapes = " or ".join(show(shape) for shape in dict.fromkeys((*accepted, data)))
        raise ShapeContradiction("label", show(label), shapes, f"data {show(data)}")

    def types_of_shapes(self, inputs: PartialShapes) -> list[PartialType]:
        """Labels of data's shape are float32 probabilities."""
        types: list[PartialType] = [None] * len(inputs)
        if inputs[1] is not None and None not in inputs[1] and inputs[0] == inputs[1]:
            types[1] = "float32"
        return types

    def declare_backward_dependency(
        self, out_grad: Sequence[T], in_data: Sequence[T], out_data: Sequence[T]
    ) -> list[T]:
        """Return label, output, and as the parameters require out_grad and sample_weight."""
        gradient = [out_grad[0]] if self.parameters.out_grad else []
        return [*gradient, *super().declare_backward_dependency(out_grad, in_data, out_data)]

    def flops(self, in_shapes: Sequence[Shape], out_shapes: Sequence[Shape]) -> int:
        """Five per element: maximum, subtraction, exponential, sum and division."""
        return 5 * (product(in_shapes[0]) or 0)

    def create_operator(self) -> Operator:
        """Create the NumPy body."""
        return SoftmaxOutput(self.parameters)


@dataclass(frozen=True)
class Samples:
    """Labels in the form [samples, classes, positions].

    target: target probabilities; scale [samples, 1, positions]: each sample's weight, 0 if it is
    ignored; missing [samples, positions]: target probability outside the classes; divisor: the
    gradient's normalisation.
    """

    target: Array
    scale: Array
    missing: Array
    divisor: float


class SoftmaxOutput(Operator):
    """NumPy body with data as [samples, classes, positions] and labels as [samples, positions].

    By default samples are rows, with one position. With preserve_shape samples are all axes but the
    last. With multi_output classes are axis 1 and positions the axes after it.
    """

    def __init__(self, parameters: SoftmaxOutputParameters) -> None:
        self.parameters = parameters

    def forward(self, call: ForwardCall) -> None:
        """output = softmax; loss = cross-entropy, summed over the samples that are not ignored."""
        probability = probabilities(self._as_samples(call.inputs.data))
        if call.is_requested("loss"):
            tiny = np.finfo(probability.dtype).tiny
            samples = self._samples(call, probability)
            entropy = -(samples.target * np.log(np.maximum(probability, tiny))).sum(axis=1)
            entropy -= samples.missing * np.log(tiny)
            call.store(loss=np.sum(weighted(entropy, samples.scale[:, 0])))
        call.store(output=probability.reshape(call.inputs.data.shape))

    def backward(self, call: BackwardCall) -> None:
        """Gradient of data: (output - target) * weight * grad_scale / divisor [* out_grad]."""
        output = call.outputs.output
        probability = self._as_samples(output)
        samples = self._samples(call, probability)
        scale = samples.scale * (self.parameters.grad_scale / samples.divisor)
        gradient = weighted(probability - samples.target, scale).reshape(output.shape)
        if self.parameters.out_grad:
            gradient *= call.output_gradients.output
        call.store(data=gradient)

    def _as_samples(self, data: Array) -> Array:
        if self.parameters.multi_output:
            return data.reshape(*data.shape[:2], math.prod(data.shape[2:]))
        if self.parameters.preserve_shape:
            return data.reshape(math.prod(data.shape[:-1]), data.shape[-1], 1)
        return data.reshape(data.shape[0], math.prod(data.shape[1:]), 1)

    def _samples(self, call: OperatorCall, probability: Array) -> Samples:
        label = call.inputs.label
        count, _, positions = probability.shape
        weight = row_weights(call, label.shape[0], probability.dtype)
        scale = np.repeat(weight, count // max(label.shape[0], 1))[:, None, None]
        if label.shape == call.outputs.output.shape:
            target = label.reshape(probability.shape)
            return Samples(target, scale, np.zeros((count, positions)), 1)
        rows = class_indices(label).reshape(label.shape[0], math.prod(label.shape[1:]))
        # As in MXNet, rows of higher rank read the first labels only; the others are just counted.
        read = rows.reshape(-1)[: count * positions].reshape(count, 1, positions)
        ignored = int(self.parameters.ignore_label)
        if self.parameters.use_ignore:
            scale = np.where(read == ignored, scale.dtype.type(0), scale)
        target, missing = self._smoothed(read, probability)
        divisor = self._divisor(rows != ignored, weight != 0, positions)
        return Samples(target, scale, missing, divisor)

    def _smoothed(self, label: Array, probability: Array) -> tuple[Array, Array]:
        """Return the target distribution, and its probability outside the classes."""
        classes = probability.shape[1]
        smooth = 0.0 if self.parameters.multi_output else self.parameters.smooth_alpha
        chosen = label == np.arange(classes)[:, None]
        target = np.where(chosen, 1 - smooth, smooth / max(classes - 1, 1))
        missing = np.where(chosen.any(axis=1), 0, 1 - smooth)
        return target.astype(probability.dtype), missing.astype(probability.dtype)

    def _divisor(self, valid: Array, present: Array, positions: int) -> int:
        if self.parameters.normalization == "batch":
            return max(1, int(np.count_nonzero(present) * valid.shape[1]))
        if self.parameters.normalization == "valid":
            return max(1, int(np.count_nonzero(valid & present[:, None])))
        return max(1, positions)
