"""LinearRegressionOutput, LogisticRegressionOutput, MAERegressionOutput: losses on numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from pydantic import Field

from mxrun.backend.jit import Block, float32s, integer, native, real, share
from mxrun.backend.team import team_for_elements
from mxrun.base.params import Float32, Parameters
from mxrun.base.regression import Regression
from mxrun.base.tensor import PLAIN, PartialShape, Shape, TensorSpec
from mxrun.operator.kernel import BackwardRequest, ForwardRequest, Kernel, OpReqType
from mxrun.operator.native_kernel import LoopPart, Part, native_kernel, source, target
from mxrun.operator.operator import OpContext, Operator, assign, need
from mxrun.operator.property import Inferred, OperatorProperty, PartialShapes, PartialType
from mxrun.operator.register import AnyProperty, Implementation, implement, register
from mxrun.operator.shape import Dimensions, ShapeContradiction, product, show, unify
from mxrun.operator.tensor import Tensor

T = TypeVar("T")
Array = npt.NDArray[Any]

# What the loops call the three losses.
LINEAR, LOGISTIC, ABSOLUTE = range(3)
_KINDS = {
    "LinearRegressionOutput": LINEAR,
    "LogisticRegressionOutput": LOGISTIC,
    "MAERegressionOutput": ABSOLUTE,
}


class RegressionOutputParameters(Parameters):
    """Parameters of the regression outputs (MXNet's, and use_sample_weight of ours)."""

    grad_scale: Float32 = Field(
        default=1.0,
        description="Factor of the gradient, which is also divided by the elements of a sample.",
    )
    use_sample_weight: bool = Field(
        default=False,
        description="A third argument weighs each row of the batch; weight 0 takes it out of "
        "loss and gradient.",
    )


class RegressionOutputProperty(OperatorProperty[RegressionOutputParameters]):
    """data and output [N, ...]; label of data's shape, axes of size 1 at the end left out or not;
    loss [1], hidden: the sum over samples of the mean over a sample's elements.

    Backward: data's gradient is the loss's derivative times grad_scale, whatever the output's
    gradient. It reads label and output, with use_sample_weight also the weights [N].
    """

    parameter_type = RegressionOutputParameters
    label_arguments = ("label", "sample_weight")

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
    def loss_output(self) -> int:
        """The second output."""
        return 1

    def regression(self, data: Shape, label: Shape) -> Regression:
        """A sample is a row of the batch; of the logistic one, outputs are probabilities."""
        probabilities = _KINDS[self.type_string] == LOGISTIC
        return Regression(data[0], math.prod(data[1:]), probabilities)

    def infer_shape(self, inputs: PartialShapes, outputs: PartialShapes) -> Inferred:
        """output is data's shape; a label not given is too, but [N] for data [N, 1] as in MXNet."""
        data = unify("data", inputs[0], outputs[0], "output")
        loss = unify("loss", outputs[1], (1,), "one number")
        label = inputs[1]
        if data is not None and not data:
            raise ShapeContradiction("data", show(data), "rank 1 or more", "rows of a batch")
        batch = next((shape[0] for shape in (label, data) if shape), None)
        weights = [unify("sample_weight", shape, (batch,), "label's rows") for shape in inputs[2:]]
        if data is not None:
            rows = weights[0][0] if weights else None
            data = unify("data", data, (rows, *(None,) * (len(data) - 1)), "sample_weight's rows")
            data, label = _with_label(data, label)
            weights = [unify("sample_weight", shape, data[:1], "data's rows") for shape in weights]
        return Inferred([data, label, *weights], [data, loss], [])

    def infer_type(
        self, inputs: list[PartialType], outputs: list[PartialType]
    ) -> tuple[list[PartialType], list[PartialType]]:
        """Labels and weights are float32 unless given."""
        completed, types = super().infer_type(inputs, outputs)
        return [completed[0], *(dtype or "float32" for dtype in completed[1:])], types

    def declare_backward_dependency(
        self, out_grad: Sequence[T], in_data: Sequence[T], out_data: Sequence[T]
    ) -> list[T]:
        """label, output and the weights, if any."""
        return [*in_data[1:], out_data[0]]

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
        """Difference, loss and sum of every element."""
        return 3 * (product(in_shapes[0]) or 0)

    def create_operator(self) -> Operator:
        """NumPy on samples x elements."""
        return RegressionOutput(self.parameters, _KINDS[self.type_string])


def _with_label(data: Dimensions, label: PartialShape) -> tuple[Dimensions, PartialShape]:
    """Both shapes with what each says of the other."""
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


@register("LinearRegressionOutput")
class LinearRegressionOutputProperty(RegressionOutputProperty):
    """output = data; loss = sum over samples of mean(0.5 * (data - label)^2), so that data's
    gradient is (output - label) * grad_scale / elements of a sample. Shapes and what backward
    reads are those of all regression outputs.
    """

    type_string = "LinearRegressionOutput"


@register("LogisticRegressionOutput")
class LogisticRegressionOutputProperty(RegressionOutputProperty):
    """output = 1 / (1 + exp(-data)); loss = sum over samples of mean(-label * log(output)
    - (1 - label) * log(1 - output)), so that data's gradient is (output - label) * grad_scale /
    elements of a sample. Shapes and what backward reads are those of all regression outputs.
    """

    type_string = "LogisticRegressionOutput"


@register("MAERegressionOutput")
class MAERegressionOutputProperty(RegressionOutputProperty):
    """output = data; loss = sum over samples of mean(|data - label|), so that data's gradient is
    sign(output - label) * grad_scale / elements of a sample; as in MXNet the sign of 0 is -1.
    Shapes and what backward reads are those of all regression outputs.
    """

    type_string = "MAERegressionOutput"


class RegressionOutput(Operator):
    """Sees data and label as [samples, elements]."""

    def __init__(self, parameters: RegressionOutputParameters, kind: int) -> None:
        self.parameters = parameters
        self.kind = kind

    def forward(
        self,
        context: OpContext,
        in_data: Sequence[Tensor],
        req: Sequence[OpReqType],
        out_data: Sequence[Tensor],
        aux_states: Sequence[Tensor],
    ) -> None:
        """The output, and the loss summed over the samples that count."""
        data = _samples(in_data[0].array)
        if req[1] is not OpReqType.NULL:
            label, weight = _samples(in_data[1].array), _weight(in_data[2:], data)
            counted = weight != 0
            losses = self._loss(data[counted], label[counted]).mean(axis=1)
            assign(out_data[1], req[1], np.sum(losses * weight[counted]))
        output = _logistic(data) if self.kind == LOGISTIC else data
        assign(out_data[0], req[0], output.reshape(out_data[0].shape))

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
        """(output - label), or its sign, * weight * grad_scale / elements of a sample."""
        result = need(out_data[0])
        output, label = _samples(result), _samples(need(in_data[1]))
        weight = _weight(in_data[2:], output)
        counted = weight != 0
        difference = output[counted] - label[counted]
        if self.kind == ABSOLUTE:
            difference = np.where(difference > 0, 1, -1)
        scale = self.parameters.grad_scale / output.shape[1]
        slope = np.zeros_like(output)
        slope[counted] = difference * (weight[counted, None] * scale)
        assign(in_grad[0], req[0], slope.reshape(result.shape))

    def _loss(self, data: Array, label: Array) -> Array:
        difference = data - label
        if self.kind == LINEAR:
            result = 0.5 * difference * difference
        elif self.kind == ABSOLUTE:
            result = np.abs(difference)
        else:
            # -label log p - (1 - label) log (1 - p), where neither p nor 1 - p may vanish.
            result = np.maximum(data, 0) - label * data + np.log1p(np.exp(-np.abs(data)))
        return np.asarray(result)


def _samples(array: Array) -> Array:
    return array.reshape(len(array), -1)


def _weight(given: Sequence[Tensor | None], data: Array) -> Array:
    return need(given[0]) if given else np.ones(len(data), data.dtype)


def _logistic(data: Array) -> Array:
    # exp of a negative number cannot overflow.
    small = np.exp(-np.abs(data))
    return np.asarray(np.where(data >= 0, 1, small) / (1 + small))


@native
def sample_losses_loop(block: Block) -> None:
    """losses[n] = weight[n] * the mean of the loss over sample n's elements."""
    elements, kind = integer(block, 1), integer(block, 2)
    data, label, weight = float32s(block, 3), float32s(block, 4), float32s(block, 5)
    losses = float32s(block, 6)
    begin, end = share(block, integer(block, 0))
    for n in range(begin, end):
        factor = 1.0
        if integer(block, 5) != 0:
            factor = float(weight[n])
        losses[n] = 0
        if factor == 0:
            continue
        total = 0.0
        first, last = n * elements, (n + 1) * elements
        if kind == LINEAR:
            for k in range(first, last):
                difference = data[k] - label[k]
                total += 0.5 * difference * difference
        elif kind == ABSOLUTE:
            for k in range(first, last):
                total += abs(data[k] - label[k])
        else:
            for k in range(first, last):
                small = math.log(1 + math.exp(-abs(data[k])))
                total += max(data[k], np.float32(0)) - label[k] * data[k] + small
        losses[n] = total / elements * factor


@native
def total_loss_loop(block: Block) -> None:
    """loss[0] = the sum of losses, in the samples' order whatever the team that made them."""
    loss, losses = float32s(block, 1), float32s(block, 2)
    total = 0.0
    for n in range(integer(block, 0)):
        total += losses[n]
    loss[0] = total


@native
def regression_output_loop(block: Block) -> None:
    """output = data, or its logistic function; both may be one."""
    kind, data, output = integer(block, 1), float32s(block, 2), float32s(block, 3)
    begin, end = share(block, integer(block, 0))
    if kind == LOGISTIC:
        for k in range(begin, end):
            small = math.exp(-abs(data[k]))
            output[k] = (np.float32(1) if data[k] >= 0 else small) / (1 + small)
    elif integer(block, 2) != integer(block, 3):
        for k in range(begin, end):
            output[k] = data[k]


@native
def regression_gradient_loop(block: Block) -> None:
    """gradient = (output - label), or its sign, * weight * scale; it may lie over the output."""
    elements, kind, scale = integer(block, 1), integer(block, 2), real(block, 3)
    output, label, gradient = float32s(block, 4), float32s(block, 5), float32s(block, 6)
    weight = float32s(block, 7)
    begin, end = share(block, integer(block, 0) * elements)
    if begin == end:
        return
    for n in range(begin // elements, (end - 1) // elements + 1):
        factor = scale
        if integer(block, 7) != 0:
            factor *= weight[n]
        first, last = max(begin, n * elements), min(end, (n + 1) * elements)
        if factor == 0:
            for k in range(first, last):
                gradient[k] = 0
        elif kind == ABSOLUTE:
            for k in range(first, last):
                gradient[k] = factor if output[k] > label[k] else -factor
        else:
            for k in range(first, last):
                gradient[k] = (output[k] - label[k]) * factor


@implement(*_KINDS, backend="jit")
class CompiledRegressionOutput(Implementation):
    """Loops over float32 data and labels."""

    def prepare_forward(self, prop: AnyProperty, request: ForwardRequest) -> Kernel | None:
        """First the loss, which reads data, then the output, which may lie over them."""
        data, label, *weight = request.inputs
        if not _serves(data, label):
            return None
        samples = data.shape[0]
        team = team_for_elements(data.elements, request.threads)
        parts: list[Part] = []
        if request.requests[1] is not OpReqType.NULL:
            shape = (samples, data.elements // samples, _KINDS[prop.type_string])
            places = (source(0), source(1), source(2) if weight else 0)
            # Both loops have the same scratch: what the first leaves there the second adds up.
            losses = TensorSpec((samples,)).nbytes
            parts = [
                LoopPart(sample_losses_loop, (*shape, *places), team, losses),
                LoopPart(total_loss_loop, (samples, target(1)), 1, losses),
            ]
        if request.requests[0] is not OpReqType.NULL:
            arguments = (data.elements, _KINDS[prop.type_string], source(0), target(0))
            parts.append(LoopPart(regression_output_loop, arguments, team))
        return native_kernel(
            "jit",
            parts,
            tuple(spec.laid_out(PLAIN) for spec in request.inputs),
            tuple(spec.laid_out(PLAIN) for spec in request.outputs),
            request.requests,
            request.threads,
            flops=prop.flops([data.shape], []),
        )

    def prepare_backward(self, prop: AnyProperty, request: BackwardRequest) -> Kernel | None:
        """One pass over the output, which the gradient may replace."""
        output = request.out_data[0]
        assert output is not None
        outputs, arguments = len(request.out_grad), len(request.in_data)
        elements = output.elements // output.shape[0]
        part = LoopPart(
            regression_gradient_loop,
            (
                *(output.shape[0], elements, _KINDS[prop.type_string]),
                float(prop.parameters.grad_scale / elements),
                *(source(outputs + arguments), source(outputs + 1), target(0)),
                source(outputs + 2) if prop.parameters.use_sample_weight else 0,
            ),
            team_for_elements(output.elements, request.threads),
        )
        read = (None, *request.in_data[1:], output, None)
        plain = (None if spec is None else spec.laid_out(PLAIN) for spec in read)
        return native_kernel(
            "jit",
            [part],
            (*(None,) * outputs, *plain),
            (request.in_grad[0].laid_out(PLAIN), *(None,) * (arguments - 1)),
            request.requests,
            request.threads,
            flops=2 * output.elements,
        )


def _serves(data: TensorSpec, label: TensorSpec) -> bool:
    return bool(data.elements) and data.dtype == label.dtype == "float32"
