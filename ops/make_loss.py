"""MakeLoss, which starts a gradient, and BlockGrad, which stops it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from pydantic import Field

from mxrun.base.device import DeviceDescription
from mxrun.base.params import Float32, Parameters
from mxrun.base.tensor import PLAIN, Shape, TensorSpec
from mxrun.codegen.arguments import Arguments, Float32s, Integer, Real
from mxrun.codegen.intrinsics import each
from mxrun.codegen.jit import native
from mxrun.codegen.loops import runs_of_task
from mxrun.operator import scalar
from mxrun.operator.family import OperatorFamily
from mxrun.operator.kernel import BackwardRequest, ForwardRequest, Kernel, OpReqType
from mxrun.operator.native_kernel import KernelPart, LoopPart, native_kernel, source, target
from mxrun.operator.operator import BackwardCall, ForwardCall, Operator
from mxrun.operator.property import (
    GradientKind,
    PartialInference,
    PartialShapes,
    same_shape,
)
from mxrun.operator.register import AnyProperty, Implementation, implement, register
from mxrun.ops.chain import ChainPart, between
from mxrun.ops.copy_part import copy_part
from mxrun.ops.loss import (
    NORMALIZATIONS,
    HiddenLossProperty,
    LossParameters,
    Normalization,
    gradient_kernel,
    row_weights,
)
from mxrun.ops.reduce.loops import ReductionKind, reduce_part
from mxrun.ops.view import ViewProperty

T = TypeVar("T")
Array = npt.NDArray[Any]


class BlockGradParameters(Parameters):
    """Parameters of BlockGrad: none."""


@register("BlockGrad", "stop_gradient", foreign={"BlockGrad": "detach"})
class BlockGradProperty(ViewProperty[BlockGradParameters]):
    """output = data; data's gradient is zero, whatever the output's gradient is."""

    type_string = "BlockGrad"
    family = OperatorFamily.ELEMENTWISE
    parameter_type = BlockGradParameters
    nonstandard_gradient = "Zero, whatever the output's gradient is."

    def infer_shape(self, inputs: PartialShapes, outputs: PartialShapes) -> PartialInference:
        """Unify the shapes of data and output."""
        data, output = same_shape(("data", "output"), [*inputs, *outputs], "elementwise")
        return PartialInference([data], [output], [])

    def list_gradients(self) -> tuple[GradientKind, ...]:
        """The gradient of data is zero."""
        return (GradientKind.ZERO,)


class MakeLossParameters(LossParameters):
    """Parameters of MakeLoss (MXNet's, and use_sample_weight)."""

    grad_scale: Float32 = Field(default=1.0, description="Multiplies the gradient.")
    valid_thresh: Float32 = Field(
        default=0.0, description="With normalization valid: elements greater than this are counted."
    )
    normalization: Normalization = Field(
        default="null",
        description="Divides the gradient by 1 (null), by the product of all axes but the last "
        "(batch), or by the number of elements above valid_thresh (valid).",
    )
    use_sample_weight: bool = Field(
        default=False,
        description="Adds the argument sample_weight [batch], by which loss and gradient of "
        "each row are multiplied; rows of weight 0 do not count in the normalization.",
    )


@register("MakeLoss", "make_loss")
class MakeLossProperty(HiddenLossProperty[MakeLossParameters]):
    """output = data; data's gradient is grad_scale / divisor everywhere, whatever the output's
    gradient is.

    data [N, ...]; loss [1], hidden, = sum of data. The divisor is 1; with normalization batch, the
    product of all axes but the last, which MXNet 1.9.1 treats as the batch; with normalization
    valid, the number of elements of data above valid_thresh, at least 1. With use_sample_weight,
    loss and gradient of a row are multiplied by its weight, and rows of weight 0 do not count.
    Backward reads data only for normalization valid.
    """

    type_string = "MakeLoss"
    parameter_type = MakeLossParameters
    label_arguments = ()
    label_type = None
    nonstandard_gradient = "grad_scale / divisor everywhere, whatever the output's gradient is."

    @property
    def mixes_samples(self) -> bool:
        """True unless normalization is null: gradients are divided by a count over the batch."""
        return self.parameters.normalization != "null"

    def averages_gradient(self, in_shapes: Sequence[Shape]) -> bool:
        """True for valid, and for batch unless data is a vector, which counts as one row."""
        has_count = {"null": False, "batch": len(in_shapes[0]) > 1, "valid": True}
        return has_count[self.parameters.normalization]

    def declare_backward_dependency(
        self, out_grad: Sequence[T], in_data: Sequence[T], out_data: Sequence[T]
    ) -> list[T]:
        """Return data if its elements are counted, and sample_weight."""
        return [*in_data] if self.parameters.normalization == "valid" else [*in_data[1:]]

    def create_operator(self) -> Operator:
        """Create the NumPy body."""
        return MakeLoss(self.parameters)


class MakeLoss(Operator):
    """NumPy body: copies and sums data; backward starts the gradient."""

    def __init__(self, parameters: MakeLossParameters) -> None:
        self.parameters = parameters

    def forward(self, call: ForwardCall) -> None:
        """output = data; loss = weighted sum of data over the rows."""
        data = call.inputs.data
        weight = row_weights(call, len(data), np.float32)
        present = weight != 0
        rows = data.reshape(len(data), -1)[present].sum(axis=1)
        call.store(loss=np.sum(rows * weight[present]))
        call.store(output=data)

    def backward(self, call: BackwardCall) -> None:
        """Gradient of data: grad_scale * weight / divisor."""
        if not call.is_requested("data"):
            return
        shape = call.input_gradients.data.shape
        weight = row_weights(call, shape[0], np.float32)
        divisor = 1
        if self.parameters.normalization == "batch":
            divisor = max(1, int(np.count_nonzero(weight)) * _counted_per_row(shape))
        elif self.parameters.normalization == "valid":
            counted = call.inputs.data[weight != 0] > self.parameters.valid_thresh
            divisor = max(1, int(np.count_nonzero(counted)))
        gradient = weight * (self.parameters.grad_scale / divisor)
        rows = gradient.reshape(-1, *(1,) * (len(shape) - 1))
        call.store(data=np.broadcast_to(rows, shape))


def _counted_per_row(shape: Shape) -> int:
    """Return each row's contribution to the divisor of batch; MXNet treats a vector as one row."""
    return math.prod(shape[1:-1]) if len(shape) > 1 else 0


_WEIGHTED = scalar.compile(lambda x, weight: scalar.where(weight == 0, 0.0, x * weight))


class LossGradient(Arguments):
    """Arguments of `loss_gradient_loop`.

    data: None unless its elements are counted. weight: one per row, or None. normalization: index
    in NORMALIZATIONS. counted_per_row: a row's contribution to the divisor of batch.
    """

    rows: Integer
    columns: Integer
    data: Float32s
    weight: Float32s
    gradient: Float32s
    scale: Real
    normalization: Integer
    threshold: Real
    counted_per_row: Integer


@native
def loss_gradient_loop(call: LossGradient) -> None:
    """gradient[r, :] = scale * weight[r] / divisor."""
    columns = call.columns
    counted = 0
    if call.normalization != 0:
        for row in range(call.rows):
            if call.weight is not None and call.weight[row] == 0:
                continue
            if call.normalization == 1:
                counted += call.counted_per_row
            else:
                for i in range(row * columns, (row + 1) * columns):
                    if call.data[i] > call.threshold:
                        counted += 1
    scale = call.scale / np.float32(max(counted, 1))
    for row, _, at, width in runs_of_task(call.rows, columns):
        value = scale
        if call.weight is not None:
            value *= call.weight[row]
        for i in each(at, at + width):
            call.gradient[i] = value


@implement("MakeLoss", backend="jit")
class CompiledMakeLoss(Implementation):
    """Compiled sum and gradient loop in float32."""

    def prepare_forward(self, prop: AnyProperty, request: ForwardRequest) -> Kernel | None:
        """Prepare the sum, then a copy, which is skipped in place."""
        inputs = tuple(spec.with_layout(PLAIN) for spec in request.inputs)
        if any(spec.dtype != "float32" for spec in inputs):
            return None
        parts: list[KernelPart] = []
        if request.requests[1] is not OpReqType.NULL:
            parts.append(_loss_part(inputs, request.device))
        if request.requests[0] is not OpReqType.NULL:
            parts.append(copy_part(source(0), target(0), inputs[0].elements, request.device))
        return native_kernel(
            self.name,
            parts,
            inputs,
            (inputs[0], request.outputs[1]),
            request.requests,
            request.device,
            flops=inputs[0].elements,
        )

    def prepare_backward(self, prop: AnyProperty, request: BackwardRequest) -> Kernel | None:
        """Prepare the gradient: one value per row."""
        p = prop.parameters
        shape = request.in_grad[0].shape
        rows, columns = _matrix(shape)
        arguments = LossGradient(
            rows=rows,
            columns=columns,
            data=source(2) if p.normalization == "valid" else None,
            weight=source(3) if p.use_sample_weight else None,
            gradient=target(0),
            scale=float(p.grad_scale),
            normalization=NORMALIZATIONS.index(p.normalization),
            threshold=float(p.valid_thresh),
            counted_per_row=_counted_per_row(shape),
        )
        tasks = request.device.tasks_for_elements(rows * columns)
        part = LoopPart(loss_gradient_loop, arguments, tasks)
        return gradient_kernel(part, request, rows * columns)


def _loss_part(inputs: Sequence[TensorSpec], device: DeviceDescription) -> KernelPart:
    """Return loss = sum of data, with each row multiplied by its weight."""
    data = TensorSpec(_matrix(inputs[0].shape))
    if len(inputs) == 1:
        return reduce_part(ReductionKind.SUM, target(1), (source(0), data), (0, 1), device)
    rows, samples = between(0), TensorSpec(data.shape[:1])
    parts = (
        reduce_part(ReductionKind.SUM, rows, (source(0), data), (1,), device),
        _WEIGHTED.part(rows, [rows, source(1)], samples.elements, device=device),
        reduce_part(ReductionKind.SUM, target(1), (rows, samples), (0,), device),
    )
    return ChainPart(parts, (samples.nbytes,))


def _matrix(shape: Shape) -> tuple[int, int]:
    """Return (rows, columns): the batch, and the product of all other axes."""
    return shape[0], math.prod(shape[1:])
