"""softmax_cross_entropy: sum of the cross-entropies of all rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from pydantic import Field

from mxrun.backend.arguments import Arguments, Float32s, Int32s, Integer
from mxrun.backend.jit import native, share
from mxrun.backend.onednn import operations
from mxrun.backend.onednn.primitive import Argument
from mxrun.backend.team import team_for_elements
from mxrun.base.classification import Classification
from mxrun.base.tensor import PLAIN, PartialShape, Shape
from mxrun.operator.kernel import BackwardRequest, ForwardRequest, Kernel, OpReqType
from mxrun.operator.native_kernel import (
    LoopPart,
    PrimitivePart,
    extra,
    native_kernel,
    onednn_serves,
    source,
    target,
)
from mxrun.operator.operator import BackwardCall, ForwardCall, Operator
from mxrun.operator.property import (
    PartialInference,
    PartialShapes,
)
from mxrun.operator.register import AnyProperty, Implementation, implement, register
from mxrun.operator.shape import Dimensions, unify
from mxrun.ops.loss import (
    LossParameters,
    LossProperty,
    class_indices,
    gradient_kernel,
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


class LabelledRows(Arguments):
    """Probabilities [samples, classes] with one label per row; an absent weight counts as 1."""

    samples: Integer
    classes: Integer
    probability: Float32s
    label: Int32s
    weight: Float32s


class SoftmaxCrossEntropyLoss(LabelledRows):
    """Arguments of `loss_loop`."""

    loss: Float32s


@native
def loss_loop(call: SoftmaxCrossEntropyLoss) -> None:
    """loss[0] = sum of weight[n] * -log(max(p[n, label[n]], smallest)), in sample order."""
    classes, label = call.classes, call.label
    total = 0.0
    for n in range(call.samples):
        chosen = 0.0
        if 0 <= label[n] < classes:
            chosen = call.probability[n * classes + label[n]]
        if chosen == 0:
            # For data that are not finite, oneDNN gives NaN for those classes and 0 for the others.
            for k in range(n * classes, (n + 1) * classes):
                if math.isnan(call.probability[k]):
                    chosen = math.nan
        # max() would hide a NaN probability.
        if chosen < 1e-8:
            chosen = 1e-8
        entropy = -math.log(chosen)
        if call.weight is not None:
            entropy *= call.weight[n]
        total += entropy
    call.loss[0] = total


class SoftmaxCrossEntropyGradient(LabelledRows):
    """Arguments of `gradient_loop`; an absent head, the gradient of the loss, counts as 1."""

    head: Float32s
    gradient: Float32s


@native
def gradient_loop(call: SoftmaxCrossEntropyGradient) -> None:
    """gradient[n, c] = (p[n, c] - (1 where c = label[n])) * head[0] * weight[n]."""
    classes, label, probability = call.classes, call.label, call.probability
    begin, end = share(call.samples)
    for n in range(begin, end):
        row, factor = n * classes, np.float32(1)
        if call.head is not None:
            factor *= call.head[0]
        if call.weight is not None:
            factor *= call.weight[n]
        for k in range(row, row + classes):
            call.gradient[k] = probability[k] * factor
        if 0 <= label[n] < classes:
            place = row + label[n]
            call.gradient[place] = (probability[place] - np.float32(1)) * factor


@implement("softmax_cross_entropy", backend="onednn")
class OnednnSoftmaxCrossEntropy(Implementation):
    """oneDNN's softmax, stored for backward, and two loops; float32 data, int32 labels."""

    def prepare_forward(self, prop: AnyProperty, request: ForwardRequest) -> Kernel | None:
        """Prepare the softmax on the team, then the sum on one thread, in sample order."""
        data, label = (spec.with_layout(PLAIN) for spec in request.inputs[:2])
        served = onednn_serves(data) and label.dtype == "int32"
        if not served or OpReqType.NULL in request.requests:
            return None
        team = team_for_elements(data.elements, request.threads)
        softmax = operations.softmax_forward(data, 1, team)
        samples, classes = data.shape
        loss = SoftmaxCrossEntropyLoss(
            samples=samples,
            classes=classes,
            probability=extra(0),
            label=source(1),
            weight=source(2) if len(request.inputs) == 3 else None,
            loss=target(0),
        )
        return native_kernel(
            f"onednn:{softmax.implementation}",
            [
                PrimitivePart(softmax, {Argument.SOURCE: source(0), Argument.OUTPUT: extra(0)}),
                LoopPart(loss_loop, loss, 1),
            ],
            (data, label, *request.inputs[2:]),
            request.outputs,
            request.requests,
            request.threads,
            extra_outputs=(data,),
            flops=5 * data.elements,
        )

    def prepare_backward(self, prop: AnyProperty, request: BackwardRequest) -> Kernel | None:
        """Prepare the gradient in one pass over forward's stored softmax."""
        (gradient,) = request.out_grad
        (probability,) = request.forward.extra_outputs
        arguments = len(request.in_data)
        samples, classes = probability.shape
        loss_gradient = SoftmaxCrossEntropyGradient(
            samples=samples,
            classes=classes,
            probability=source(2 + arguments),
            label=source(2),
            weight=source(3) if arguments == 3 else None,
            head=None if gradient is None else source(0),
            gradient=target(0),
        )
        team = team_for_elements(probability.elements, request.threads)
        part = LoopPart(gradient_loop, loss_gradient, team)
        # Backward by loops reads forward's softmax in place of data.
        request = replace(request, in_data=(None, *request.in_data[1:]))
        return gradient_kernel(part, request, 2 * probability.elements)
