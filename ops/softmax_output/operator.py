"""SoftmaxOutput: softmax with the cross-entropy's gradient built in."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import numpy as np
import numpy.typing as npt
from pydantic import Field

from mxrun.base.classification import Classification
from mxrun.base.params import Float32, Parameters
from mxrun.base.tensor import PartialShape, Shape
from mxrun.operator.kernel import OpReqType
from mxrun.operator.operator import OpContext, Operator, assign, require_array
from mxrun.operator.property import (
    OperatorProperty,
    PartialInference,
    PartialShapes,
    PartialType,
)
from mxrun.operator.register import register
from mxrun.operator.shape import Dimensions, ShapeContradiction, product, show, unify
from mxrun.operator.tensor import Tensor

T = TypeVar("T")
Array = npt.NDArray[Any]


class SoftmaxOutputParameters(Parameters):
    """Parameters of SoftmaxOutput (MXNet's names and defaults; use_sample_weight is ours)."""

    grad_scale: Float32 = Field(default=1.0, description="Factor of the gradient.")
    ignore_label: float = Field(
        default=-1.0,
        ge=-(2**31),
        lt=2**31,
        description="The label of samples that do not count, with use_ignore.",
    )
    multi_output: bool = Field(
        default=False,
        description="Softmax over axis 1 at every position of the others, each with a label. "
        "The gradient is divided by the number of positions unless normalization is valid.",
    )
    use_ignore: bool = Field(
        default=False, description="Samples labelled ignore_label get no gradient and no loss."
    )
    preserve_shape: bool = Field(
        default=False, description="Softmax over the last axis instead of over all but the first."
    )
    normalization: Literal["null", "batch", "valid"] = Field(
        default="null",
        description="Divide the gradient by nothing, by the number of samples, or by the number "
        "of samples not labelled ignore_label.",
    )
    out_grad: bool = Field(
        default=False, description="Multiply the gradient by the output's gradient."
    )
    smooth_alpha: float = Field(
        default=0.0,
        ge=0.0,
        le=1.0,
        description="Probability moved from the label to the other classes, evenly; as in MXNet "
        "without effect under multi_output.",
    )
    use_sample_weight: bool = Field(
        default=False,
        description="A third argument weighs each row of the batch; weight 0 takes it out of "
        "loss, gradient and normalization.",
    )


@register("SoftmaxOutput", "Softmax")
class SoftmaxOutputProperty(OperatorProperty[SoftmaxOutputParameters]):
    """output = exp(data - max) / sum exp(data - max); loss = sum of -log(output[label]).

    data and output [N, ...]. label: data's shape without its last axis, so [N] for rows alone (of
    more axes MXNet reads the first N labels: Flatten data first); with multi_output without axis 1;
    or data's shape, as probabilities in float32. loss [1], hidden; of C classes with smooth_alpha
    a: the sum of -(1 - a) * log(output[label]) and, for each other k, of -a / (C - 1) *
    log(output[k]).
    Backward: data's gradient is (output - onehot(label)) * grad_scale, unnormalised unless asked;
    a label outside the classes is no class at all, as in MXNet. It reads label and output, with
    out_grad also the output's gradient, with use_sample_weight also the weights [N].
    """

    type_string = "SoftmaxOutput"
    is_floating = True
    parameter_type = SoftmaxOutputParameters
    label_arguments = ("label", "sample_weight")
    nonstandard_gradient = (
        "That of loss, times grad_scale; with out_grad each element is multiplied by the output's."
    )

    def list_arguments(self) -> tuple[str, ...]:
        """data, label and, with use_sample_weight, sample_weight."""
        weight = ("sample_weight",) if self.parameters.use_sample_weight else ()
        return ("data", "label", *weight)

    def list_outputs(self) -> tuple[str, ...]:
        """output, and the hidden loss."""
        return ("output", "loss")

    @property
    def num_visible_outputs(self) -> int:
        """The output alone."""
        return 1

    @property
    def mixes_samples(self) -> bool:
        """Gradients are divided by what the whole batch counts, unless normalization is null."""
        return self.parameters.normalization != "null"

    @property
    def loss_output(self) -> int:
        """The second output."""
        return 1

    def classification(self, data: Shape, label: Shape) -> Classification:
        """Rows, positions of the last axis (preserve_shape) or of axis 1 (multi_output).

        Labels of data's shape are probabilities; rows of higher rank have more labels than are
        read. Neither names one class for each prediction.
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
        return Classification(samples, classes, positions, labelled, ignored)

    def infer_shape(self, inputs: PartialShapes, outputs: PartialShapes) -> PartialInference:
        """output is data's shape; the label's follows from data's."""
        data = unify("data", inputs[0], outputs[0], "output")
        loss = unify("loss", outputs[1], (1,), "one number")
        label = inputs[1]
        batch = label[0] if label else None
        weights = [unify("sample_weight", shape, (batch,), "label's rows") for shape in inputs[2:]]
        if weights:
            batch = weights[0][0]
        if data is not None:
            if len(data) < 2:
                raise ShapeContradiction("data", show(data), "rank 2 or more", "softmax over rows")
            data = unify("data", data, (batch, *(None,) * (len(data) - 1)), "label's rows")
            label = self._label(data, label)
            weights = [
                unify("sample_weight", shape, (data[0],), "data's rows") for shape in weights
            ]
        return PartialInference([data, label, *weights], [data, loss], [])

    def _label(self, data: Dimensions, label: PartialShape) -> PartialShape:
        if not self.parameters.multi_output:
            accepted: list[Dimensions] = [data[:-1]]
        else:
            spatial = data[2:]
            accepted = [(data[0], product(spatial)), (data[0], *spatial), (data[0], 1, *spatial)]
        if label is None:
            return accepted[0]
        for shape in (*accepted, data):
            if len(shape) == len(label):
                try:
                    return unify("label", label, shape)
                except ShapeContradiction:
                    continue
        shapes = " or ".join(show(shape) for shape in dict.fromkeys((*accepted, data)))
        raise ShapeContradiction("label", show(label), shapes, f"data {show(data)}")

    def types_of_shapes(self, inputs: PartialShapes) -> list[PartialType]:
        """A label of data's shape holds probabilities."""
        types: list[PartialType] = [None] * len(inputs)
        if inputs[1] is not None and None not in inputs[1] and inputs[0] == inputs[1]:
            types[1] = "float32"
        return types

    def infer_type(
        self, inputs: list[PartialType], outputs: list[PartialType]
    ) -> tuple[list[PartialType], list[PartialType]]:
        """Labels are int32 unless given, or probabilities; weights are float32."""
        completed, types = super().infer_type(inputs, outputs)
        for index, default in enumerate(("int32", "float32"), start=1):
            if index < len(completed):
                completed[index] = completed[index] or default
        return completed, types

    def declare_backward_dependency(
        self, out_grad: Sequence[T], in_data: Sequence[T], out_data: Sequence[T]
    ) -> list[T]:
        """label, output; out_grad and sample_weight where the parameters bring them in."""
        gradient = [out_grad[0]] if self.parameters.out_grad else []
        return [*gradient, *in_data[1:], out_data[0]]

    def forward_inplace_option(
        self, in_data: Sequence[T], out_data: Sequence[T]
    ) -> list[tuple[T, T]]:
        """The output over data."""
        return [(in_data[0], out_data[0])]

    def backward_inplace_option(
        self,
        out_grad: Sequence[T],
        in_data: Sequence[T],
        out_data: Sequence[T],
        in_grad: Sequence[T],
    ) -> list[tuple[T, T]]:
        """data's gradient over the output."""
        return [(out_data[0], in_grad[0])]

    def flops(self, in_shapes: Sequence[Shape], out_shapes: Sequence[Shape]) -> int:
        """Maximum, subtraction, exponential, sum and division of every element."""
        return 5 * (product(in_shapes[0]) or 0)

    def create_operator(self) -> Operator:
        """NumPy on samples x classes x positions."""
        return SoftmaxOutput(self.parameters)


@dataclass(frozen=True)
class Samples:
    """What the labels say, in the form [samples, classes, positions].

    target: the probabilities to reach; scale [samples, 1, positions]: each one's weight, zero
    where it is ignored; missing [samples, positions]: the target outside the classes; divisor: the
    gradient's normalization.
    """

    target: Array
    scale: Array
    missing: Array
    divisor: float


class SoftmaxOutput(Operator):
    """Sees every form of data as [samples, classes, positions], of labels as [samples, positions].

    All rows: positions 1; preserve_shape: samples are all but the last axis; multi_output:
    classes are axis 1, positions the axes after it.
    """

    def __init__(self, parameters: SoftmaxOutputParameters) -> None:
        self.parameters = parameters

    def forward(
        self,
        context: OpContext,
        in_data: Sequence[Tensor],
        req: Sequence[OpReqType],
        out_data: Sequence[Tensor],
        aux_states: Sequence[Tensor],
    ) -> None:
        """The stable softmax, and the cross-entropy summed over the samples that count."""
        data = self._as_samples(in_data[0].array)
        # A difference of -inf rightly gives probability 0, one of two infinities NaN.
        with np.errstate(over="ignore", invalid="ignore"):
            exponential = np.exp(data - data.max(axis=1, keepdims=True))
        probability = exponential / exponential.sum(axis=1, keepdims=True)
        if req[1] is not OpReqType.NULL:
            tiny = np.finfo(probability.dtype).tiny
            labels = [tensor.array for tensor in in_data[1:]]
            samples = self._samples(probability, in_data[0].shape, labels)
            entropy = -(samples.target * np.log(np.maximum(probability, tiny))).sum(axis=1)
            entropy -= samples.missing * np.log(tiny)
            assign(out_data[1], req[1], np.sum(entropy * samples.scale[:, 0]))
        assign(out_data[0], req[0], probability.reshape(in_data[0].shape))

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
        """(output - target) * weight * grad_scale / divisor [* out_grad]."""
        output = require_array(out_data[0])
        probability = self._as_samples(output)
        labels = [require_array(tensor) for tensor in in_data[1:]]
        samples = self._samples(probability, output.shape, labels)
        scale = samples.scale * (self.parameters.grad_scale / samples.divisor)
        gradient = ((probability - samples.target) * scale).reshape(output.shape)
        if self.parameters.out_grad:
            gradient *= require_array(out_grad[0])
        assign(in_grad[0], req[0], gradient)

    def _as_samples(self, data: Array) -> Array:
        if self.parameters.multi_output:
            return data.reshape(*data.shape[:2], -1)
        if self.parameters.preserve_shape:
            return data.reshape(-1, data.shape[-1], 1)
        return data.reshape(data.shape[0], -1, 1)

    def _samples(self, probability: Array, data: Shape, labels: Sequence[Array]) -> Samples:
        label = labels[0]
        count, _, positions = probability.shape
        weight = np.ones(label.shape[0], probability.dtype) if len(labels) == 1 else labels[1]
        scale = np.repeat(weight, count // label.shape[0])[:, None, None]
        if label.shape == data:
            target = label.reshape(probability.shape)
            return Samples(target, scale, np.zeros((count, positions)), 1)
        with np.errstate(invalid="ignore"):  # a label beyond int32 becomes one outside the classes
            rows = label.astype(np.int32).reshape(label.shape[0], -1)
        # As in MXNet, rows of higher rank read the first label of each; the others only count.
        read = rows.reshape(-1)[: count * positions].reshape(count, 1, positions)
        ignored = int(self.parameters.ignore_label)
        if self.parameters.use_ignore:
            scale = scale * (read != ignored)
        target, missing = self._smoothed(read, probability)
        divisor = self._divisor(rows != ignored, weight != 0, positions)
        return Samples(target, scale, missing, divisor)

    def _smoothed(self, label: Array, probability: Array) -> tuple[Array, Array]:
        """The target distribution, and what of it lies outside the classes."""
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
        return positions
