"""Regression losses: LinearRegressionOutput, LogisticRegressionOutput, MAERegressionOutput."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, TypeVar

import numpy as np
import numpy.typing as npt
from pydantic import Field

from mxrun.base.dataclass import dataclass
from mxrun.base.device import DeviceDescription
from mxrun.base.params import Float32
from mxrun.base.regression import Regression
from mxrun.base.tensor import PLAIN, PartialShape, Shape, TensorSpec
from mxrun.operator import scalar
from mxrun.operator.kernel import BackwardRequest, ForwardRequest, Kernel, OpReqType
from mxrun.operator.native_kernel import KernelPart, Slot, native_kernel, source, target
from mxrun.operator.operator import BackwardCall, ForwardCall, Operator
from mxrun.operator.register import AnyProperty, Implementation, implement, register
from mxrun.operator.scalar import evaluate
from mxrun.operator.shape import Dimensions, ShapeContradiction, product, show, unify
from mxrun.ops.chain import ChainPart, between
from mxrun.ops.copy_part import copy_part
from mxrun.ops.loss import LabelledLossProperty, LossParameters, gradient_kernel, row_weights
from mxrun.ops.reduce.loops import ReductionKind, reduce_part
from mxrun.ops.strided_map import served, strided_part

T = TypeVar("T")
Array = npt.NDArray[Any]

# Scalar functions run on numbers, arrays and symbolic values.
Scalar = Any


@dataclass(frozen=True)
class RegressionFunctions:
    """Scalar functions that define one of the regression outputs.

    output: function of data; None for the identity. loss: function of (data, label). slope: data's
    gradient, a function of (output, label).
    """

    output: Callable[[Scalar], Scalar] | None
    loss: Callable[[Scalar, Scalar], Scalar]
    slope: Callable[[Scalar, Scalar], Scalar]


class RegressionOutputParameters(LossParameters):
    """Parameters of the regression outputs (MXNet's, and use_sample_weight)."""

    grad_scale: Float32 = Field(
        default=1.0,
        description="Factor of the gradient, which is also divided by the number of elements of "
        "a sample.",
    )
    use_sample_weight: bool = Field(
        default=False,
        description="Adds the argument sample_weight [batch], which weights each row; weight 0 "
        "excludes a row from loss and gradient.",
    )


class RegressionOutputProperty(LabelledLossProperty[RegressionOutputParameters]):
    """Loss summed over samples, averaged over the elements of a sample.

    data and output [N, ...]; label of data's shape, with or without trailing axes of size 1; loss
    [1], hidden: the sum over samples of the mean over a sample's elements. The gradient of data is
    the loss's derivative times grad_scale, whatever the output's gradient is. Backward reads label
    and output, and with use_sample_weight also the weights [N].
    """

    parameter_type = RegressionOutputParameters
    rule: ClassVar[RegressionFunctions]
    nonstandard_gradient = (
        "The gradient of loss times grad_scale, whatever the output's gradient is."
    )

    def regression(self, data: Shape, label: Shape) -> Regression:
        """A sample is a row of the batch; the logistic operator outputs probabilities."""
        # Two axes or more behind that of the channels are those of a picture.
        positions = math.prod(data[2:]) if len(data) > 3 else 1
        elements = math.prod(data[1:])
        return Regression(data[0], elements, self.rule.output is not None, positions)

    def infer_label(self, data: Dimensions, label: PartialShape) -> tuple[Dimensions, PartialShape]:
        """Unify up to trailing axes of size 1; label is [N] by default for data [N, 1]."""
        if label is None:
            if len(data) == 2 and data[1] in (1, None):
                return data, None if data[1] is None else data[:1]
            return data, data
        rank = min(len(data), len(label))
        if any(size not in (1, None) for size in label[rank:]) or not label:
            raise ShapeContradiction("label", show(label), show(data), "data")
        common = unify("label", label[:rank], data[:rank], "data")
        ones = (1,) * max(len(data), len(label))
        data = unify("data", data, (*common, *ones)[: len(data)], "label")
        return data, (*common, *ones)[: len(label)]

    def flops(self, in_shapes: Sequence[Shape], out_shapes: Sequence[Shape]) -> int:
        """Three per element: difference, loss and sum."""
        return 3 * (product(in_shapes[0]) or 0)

    def create_operator(self) -> Operator:
        """Create the NumPy body."""
        return RegressionOutput(self.parameters, self.rule)


@register(
    "LinearRegressionOutput",
    foreign={"LinearRegressionOutput: {label: label}": "mse mseloss l2loss meansquarederror"},
)
class LinearRegressionOutputProperty(RegressionOutputProperty):
    """output = data; loss = sum over samples of mean(0.5 * (data - label)^2).

    The gradient of data is (output - label) * grad_scale / elements of a sample, whatever the
    output's gradient is. data and output [N, ...]; label of data's shape, with or without trailing
    axes of size 1; loss [1], hidden. Backward reads label and output, and with use_sample_weight
    also the weights [N].
    """

    type_string = "LinearRegressionOutput"
    rule = RegressionFunctions(
        output=None,
        loss=lambda x, label: 0.5 * (x - label) * (x - label),
        slope=lambda y, label: y - label,
    )


@register(
    "LogisticRegressionOutput",
    foreign={
        "LogisticRegressionOutput: {label: label}, which contains the sigmoid": "bce bceloss "
        "bcewithlogitsloss binarycrossentropy sigmoidbinarycrossentropyloss sigmoidbceloss",
    },
)
class LogisticRegressionOutputProperty(RegressionOutputProperty):
    """output = 1 / (1 + exp(-data)); loss = sum over samples of mean(-label * log(output) - (1 -
    label) * log(1 - output)).

    The gradient of data is (output - label) * grad_scale / elements of a sample, whatever the
    output's gradient is. data and output [N, ...]; label of data's shape, with or without trailing
    axes of size 1; loss [1], hidden. Backward reads label and output, and with use_sample_weight
    also the weights [N].
    """

    type_string = "LogisticRegressionOutput"
    # As a function of data, the loss has no logarithm that underflows.
    rule = RegressionFunctions(
        output=lambda x: scalar.sigmoid(x),
        loss=lambda x, label: scalar.softplus(x) - label * x,
        slope=lambda y, label: y - label,
    )


@register(
    "MAERegressionOutput",
    foreign={"MAERegressionOutput: {label: label}": "mae l1loss meanabsoluteerror"},
)
class MAERegressionOutputProperty(RegressionOutputProperty):
    """output = data; loss = sum over samples of mean(|data - label|).

    The gradient of data is sign(output - label) * grad_scale / elements of a sample, whatever the
    output's gradient is; the sign of 0 is -1, as in MXNet. data and output [N, ...]; label of
    data's shape, with or without trailing axes of size 1; loss [1], hidden. Backward reads label
    and output, and with use_sample_weight also the weights [N].
    """

    type_string = "MAERegressionOutput"
    rule = RegressionFunctions(
        output=None,
        loss=lambda x, label: abs(x - label),
        slope=lambda y, label: scalar.where(y > label, 1.0, -1.0),
    )

    def loss_metric(self, data: Shape, label: Shape) -> str:
        """The mean absolute error."""
        return "mae"


class RegressionOutput(Operator):
    """NumPy body with data and label as [samples, elements]."""

    def __init__(self, parameters: RegressionOutputParameters, rule: RegressionFunctions) -> None:
        self.parameters, self.rule = parameters, rule

    def forward(self, call: ForwardCall) -> None:
        """output = output(data); loss = weighted sum over the samples of non-zero weight."""
        data = _samples(call.inputs.data)
        if call.is_requested("loss"):
            label, weight = _samples(call.inputs.label), row_weights(call, len(data), data.dtype)
            counted = weight != 0
            losses = evaluate(self.rule.loss, [data[counted], label[counted]])
            losses = losses.mean(axis=1) if data.size else losses.sum(axis=1)
            call.store(loss=np.sum(losses * weight[counted]))
        output = data if self.rule.output is None else evaluate(self.rule.output, [data])
        call.store(output=output.reshape(call.outputs.output.shape))

    def backward(self, call: BackwardCall) -> None:
        """Gradient of data: slope * weight * grad_scale / elements of a sample."""
        result = call.outputs.output
        output, label = _samples(result), _samples(call.inputs.label)
        weight = row_weights(call, len(output), output.dtype)
        counted = weight != 0
        slope = evaluate(self.rule.slope, [output[counted], label[counted]])
        scale = self.parameters.grad_scale / max(output.shape[1], 1)
        gradient = np.zeros_like(output)
        gradient[counted] = slope * (weight[counted, None] * scale)
        call.store(data=gradient.reshape(result.shape))


def _samples(array: Array) -> Array:
    return array.reshape(len(array), math.prod(array.shape[1:]))


@implement(
    "LinearRegressionOutput", "LogisticRegressionOutput", "MAERegressionOutput", backend="jit"
)
class CompiledRegressionOutput(Implementation):
    """Maps of float32 data and labels, and a sum."""

    def prepare_forward(self, prop: AnyProperty, request: ForwardRequest) -> Kernel | None:
        """Prepare the loss, which reads data, then the output, which may overwrite data."""
        assert isinstance(prop, RegressionOutputProperty)
        data, device = request.inputs[0], request.device
        if not data.elements or not served(*request.inputs):
            return None
        rows, operands = _rows(data, 0, prop.parameters.use_sample_weight)
        parts: list[KernelPart] = []
        if request.requests[1] is not OpReqType.NULL:
            kernel = _weighted(prop.rule.loss, len(operands))
            losses = strided_part(kernel, [between(0)], rows, operands, device, (1.0,))
            mean, axes = float(rows.shape[1]), (0, 1)
            total = reduce_part(
                ReductionKind.SUM, target(1), (between(0), rows), axes, device, mean
            )
            parts.append(ChainPart((losses, total), (rows.nbytes,)))
        if request.requests[0] is not OpReqType.NULL:
            parts.append(_output_part(prop.rule, data, device))
        return native_kernel(
            self.name,
            parts,
            tuple(spec.with_layout(PLAIN) for spec in request.inputs),
            tuple(spec.with_layout(PLAIN) for spec in request.outputs),
            request.requests,
            device,
            flops=prop.flops([data.shape], []),
        )

    def prepare_backward(self, prop: AnyProperty, request: BackwardRequest) -> Kernel | None:
        """Prepare the gradient in one pass over the output, which it may overwrite."""
        assert isinstance(prop, RegressionOutputProperty)
        output, device = request.out_data[0], request.device
        assert output is not None
        outputs, arguments = len(request.out_grad), len(request.in_data)
        rows, operands = _rows(output, outputs, prop.parameters.use_sample_weight)
        operands[0] = source(outputs + arguments), rows
        kernel = _weighted(prop.rule.slope, len(operands))
        scale = prop.parameters.grad_scale / rows.shape[1]
        part = strided_part(kernel, [target(0)], rows, operands, device, (scale,))
        return gradient_kernel(part, request, 2 * output.elements)


def _output_part(
    rule: RegressionFunctions, data: TensorSpec, device: DeviceDescription
) -> KernelPart:
    if rule.output is None:
        return copy_part(source(0), target(0), data.elements, device)
    kernel = scalar.compile(rule.output)
    return kernel.part(target(0), [source(0)], data.elements, device=device)


def _rows(
    data: TensorSpec, first: int, weighted: bool
) -> tuple[TensorSpec, list[tuple[Slot, TensorSpec]]]:
    """Return data's spec as [samples, elements], and data, label and weights as operands.

    The operands are the kernel's inputs from `first` on, in shapes that broadcast to the spec.
    """
    samples = data.shape[0]
    rows = TensorSpec((samples, data.elements // samples))
    specs = (rows, rows, TensorSpec((samples, 1)))[: 2 + weighted]
    return rows, [(source(first + index), spec) for index, spec in enumerate(specs)]


def _weighted(function: Callable[[Scalar, Scalar], Scalar], operands: int) -> scalar.MapKernel:
    """Compile function(x, label) * weight * scale, which is 0 where weight is 0.

    Without a third operand the weight is 1.
    """

    def weighted(x: Scalar, label: Scalar, weight: Scalar, scale: Scalar) -> Scalar:
        return scalar.where(weight == 0, 0.0, function(x, label) * (weight * scale))

    def scaled(x: Scalar, label: Scalar, scale: Scalar) -> Scalar:
        return function(x, label) * scale

    return scalar.compile(weighted if operands > 2 else scaled, parameters=("scale",))
