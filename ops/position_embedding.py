"""position_embedding: sum of data and one learned vector for each position."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, TypeVar

import numpy as np
from pydantic import Field

from mxrun.base.device import tasks_for_elements
from mxrun.base.dtype import BFLOAT16, FLOAT32
from mxrun.base.params import Int32, Parameters
from mxrun.base.tensor import PLAIN, Shape, TensorSpec
from mxrun.codegen.arguments import Arguments, Float32s, Floats, Integer
from mxrun.codegen.intrinsics import share
from mxrun.codegen.jit import native
from mxrun.codegen.vectors import LANES, add_lanes, lanes, load_lanes, store_lanes
from mxrun.operator.family import OperatorFamily
from mxrun.operator.incremental import IncrementalForm, SequenceArguments
from mxrun.operator.kernel import BackwardRequest, ForwardRequest, Kernel, OpReqType
from mxrun.operator.native_kernel import LoopPart, native_kernel, source, target
from mxrun.operator.operator import BackwardCall, ForwardCall, Operator
from mxrun.operator.property import InPlaceProperty, PartialInference, PartialShapes, Precision
from mxrun.operator.register import AnyProperty, Implementation, create, implement, register
from mxrun.operator.scalar import without_add_requests
from mxrun.operator.shape import ShapeContradiction, show, unify
from mxrun.ops.copy_part import copy_part
from mxrun.ops.sums import sum_over
from mxrun.ops.vector_stores import put_lanes

T = TypeVar("T")


class PositionEmbeddingParameters(Parameters):
    """Parameters of position_embedding."""

    max_length: Annotated[Int32, Field(ge=1)] = Field(
        description="Number of rows of the table: greatest number of positions.", examples=[64]
    )


@register(
    "position_embedding",
    foreign={
        "position_embedding: {max_length: 64}": "positionalencoding positionalembedding "
        "positionembedding",
    },
)
class PositionEmbeddingProperty(InPlaceProperty[PositionEmbeddingParameters]):
    """output[n, t, :] = data[n, t, :] + weight[t, :].

    data, output [N, T, C] with T at most max_length; weight [max_length, C]. The gradient of data
    is the output's; the weight's is its sum over n, and 0 for the rows from T on. Backward reads
    the output's gradient.
    """

    type_string = "position_embedding"
    family = OperatorFamily.DENSE
    parameter_type = PositionEmbeddingParameters
    precision = Precision.INHERIT
    is_floating = True

    def list_arguments(self) -> tuple[str, ...]:
        """data and weight."""
        return ("data", "weight")

    def infer_shape(self, inputs: PartialShapes, outputs: PartialShapes) -> PartialInference:
        """Unify data and output, and data's channels with the weight's columns."""
        data = unify("data", inputs[0], outputs[0], "output")
        rows = self.parameters.max_length
        weight = unify("weight", inputs[1], (rows, None), "[max_length, channels]")
        if data is None:
            return PartialInference([data, weight], [data], [])
        data = unify("data", data, (None, None, weight[1]), "batch, positions, weight's columns")
        weight = unify("weight", weight, (None, data[2]), "data's channels")
        if data[1] is not None and data[1] > rows:
            rule = "max_length"
            raise ShapeContradiction("data", show(data), f"at most {rows} positions", rule)
        return PartialInference([data, weight], [data], [])

    def incremental(self, sequences: SequenceArguments) -> IncrementalForm[AnyProperty] | None:
        """Return the sum with the vectors of the run's positions."""
        if not sequences.counts_positions(0, axis=1) or sequences.axes[1] is not None:
            return None
        form = create("_present_position_embedding", {})
        return IncrementalForm(form, 1, limit=self.parameters.max_length)

    def list_passed_gradients(self) -> dict[int, int]:
        """The gradient of data is the output's."""
        return {0: 0}

    def independent_gradients(self) -> list[list[int]]:
        """The gradients of data and weight share no computation."""
        return [[0], [1]]

    def declare_backward_dependency(
        self, out_grad: Sequence[T], in_data: Sequence[T], out_data: Sequence[T]
    ) -> list[T]:
        """Return out_grad."""
        return [out_grad[0]]

    def flops(self, in_shapes: Sequence[Shape], out_shapes: Sequence[Shape]) -> int:
        """One addition per element."""
        return math.prod(in_shapes[0])

    def create_operator(self) -> Operator:
        """Create the NumPy body."""
        return PositionEmbedding()


class PositionEmbedding(Operator):
    """NumPy body."""

    def forward(self, call: ForwardCall) -> None:
        """output = data + weight[:T]."""
        data = call.inputs.data
        call.store(output=data + call.inputs.weight[: data.shape[1]])

    def backward(self, call: BackwardCall) -> None:
        """Gradient of data: grad; of weight: its sum over the batch."""
        gradient = call.output_gradients.output
        if call.is_requested("weight"):
            sums = np.zeros_like(call.input_gradients.weight)
            sums[: gradient.shape[1]] = sum_over(gradient, 0)
            call.store(weight=sums)
        call.store(data=gradient)


class PositionSum(Arguments):
    """Data [batch, positions, columns], of which `rows` is batch times positions.

    is_added: whether the result is added to the output.
    """

    rows: Integer
    positions: Integer
    columns: Integer
    data: Floats
    weight: Float32s
    output: Floats
    is_added: Integer


@native
def position_sum_loop(call: PositionSum) -> None:
    """output[n, t, :] = data[n, t, :] + weight[t, :]; it may overwrite data."""
    columns = call.columns
    at, end = share(call.rows * columns)
    while at < end:
        row = at // columns
        column = at - row * columns
        width = min(columns - column, end - at)
        own = row % call.positions * columns + column
        for j in range(0, width, LANES):
            value = load_lanes(call.data, at + j, width - j)
            value = add_lanes(value, load_lanes(call.weight, own + j, width - j))
            put_lanes(call.output, at + j, value, width - j, call.is_added != 0)
        at += width


class PositionGradient(Arguments):
    """Gradient [batch, positions, columns] and its sums [rows, columns] over the batch.

    used: number of elements of the first `positions` rows of the sums; elements: of all rows.
    """

    batch: Integer
    used: Integer
    elements: Integer
    grad: Floats
    sums: Float32s


@native
def position_gradient_loop(call: PositionGradient) -> None:
    """sums[t, :] = sum of grad[n, t, :] over n, in order; 0 for the unused rows."""
    begin, end = share(call.elements)
    for at in range(begin, end, LANES):
        count, total = min(call.used, end) - at, lanes(0.0)
        if count > 0:
            for n in range(call.batch):
                total = add_lanes(total, load_lanes(call.grad, n * call.used + at, count))
        store_lanes(call.sums, at, total, end - at)


@implement("position_embedding", backend="jit")
class CompiledPositionEmbedding(Implementation):
    """One pass over float32 or bfloat16 data, with a float32 weight."""

    def prepare_forward(self, prop: AnyProperty, request: ForwardRequest) -> Kernel | None:
        """Prepare the sum."""
        data, weight = (spec.with_layout(PLAIN) for spec in request.inputs)
        output = request.outputs[0].with_layout(PLAIN)
        served = data.dtype in (FLOAT32, BFLOAT16) and weight.dtype == FLOAT32
        if not served or output.dtype != data.dtype or not data.elements:
            return None
        _, positions, columns = data.shape
        arguments = PositionSum(
            rows=data.elements // columns,
            positions=positions,
            columns=columns,
            data=source(0),
            weight=source(1),
            output=target(0),
            is_added=int(request.requests[0] is OpReqType.ADD),
        )
        loop = position_sum_loop.bfloat16 if data.dtype == BFLOAT16 else position_sum_loop
        return native_kernel(
            self.name,
            [LoopPart(loop, arguments, tasks_for_elements(data.elements))],
            (data, weight),
            (output,),
            without_add_requests(request.requests),
            request.device,
            flops=data.elements,
        )

    def prepare_backward(self, prop: AnyProperty, request: BackwardRequest) -> Kernel | None:
        """Prepare the copy of the gradient and its sums over the batch, where requested."""
        gradient = request.out_grad[0]
        assert gradient is not None
        gradient = gradient.with_layout(PLAIN)
        data, weight = (spec.with_layout(PLAIN) for spec in request.in_grad)
        parts: list[LoopPart] = []
        if request.requests[0] is not OpReqType.NULL:
            stored = [data.dtype, gradient.dtype]
            copied = (gradient.elements, request.device, request.requests[0], stored)
            parts.append(copy_part(source(0), target(0), *copied))
        if request.requests[1] is not OpReqType.NULL:
            parts.append(_sums(gradient, weight, request))
        return native_kernel(
            self.name,
            parts,
            (gradient, None, None, None),
            (data, weight),
            (*without_add_requests(request.requests[:1]), request.requests[1]),
            request.device,
            flops=gradient.elements,
        )


def _sums(gradient: TensorSpec, weight: TensorSpec, request: BackwardRequest) -> LoopPart:
    """Return the weight's gradient."""
    batch, positions, columns = gradient.shape
    arguments = PositionGradient(
        batch=batch,
        used=positions * columns,
        elements=weight.elements,
        grad=source(0),
        sums=target(1),
    )
    low = gradient.dtype == BFLOAT16
    loop = position_gradient_loop.bfloat16 if low else position_gradient_loop
    return LoopPart(loop, arguments, tasks_for_elements(gradient.elements))
