"""position_embedding: sum of data and one learned vector for each position."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, TypeVar

import numpy as np
from pydantic import Field

from mxrun.base.dtype import BFLOAT16, FLOAT32
from mxrun.base.params import Int32
from mxrun.base.tensor import PLAIN, Shape, TensorSpec
from mxrun.codegen.arguments import Arguments, Float32s, Floats, Int32s, Integer
from mxrun.codegen.intrinsics import share
from mxrun.codegen.jit import compact, native
from mxrun.codegen.vectors import LANES, add_lanes, lanes, load_lanes, store_lanes
from mxrun.operator.family import OperatorFamily
from mxrun.operator.incremental import POSITION, IncrementalForm, SequenceArguments
from mxrun.operator.kernel import BackwardRequest, ForwardRequest, Kernel, OpReqType
from mxrun.operator.native_kernel import LoopPart, native_kernel, source, target
from mxrun.operator.operator import BackwardCall, ForwardCall, Operator, OperatorCall
from mxrun.operator.property import InPlaceProperty, PartialInference, PartialShapes, Precision
from mxrun.operator.register import AnyProperty, Implementation, implement, register
from mxrun.operator.scalar import without_add_requests
from mxrun.operator.shape import unify
from mxrun.ops.copy_part import copy_part
from mxrun.ops.positions import (
    PositionParameters,
    first_position,
    given_position,
    require_positions,
)
from mxrun.ops.rows import clear
from mxrun.ops.sums import sum_over
from mxrun.ops.vector_stores import put_lanes

T = TypeVar("T")


class PositionEmbeddingParameters(PositionParameters):
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
    """output[n, t, :] = data[n, t, :] + weight[position + t, :], where position is 0 if not given.

    data, output [N, T, C] with T at most max_length; weight [max_length, C]; position [1], at most
    max_length - T. The gradient of data is the output's; the weight's is its sum over n, and 0 for
    the other rows. Backward reads the output's gradient and the position.
    """

    type_string = "position_embedding"
    family = OperatorFamily.DENSE
    parameter_type = PositionEmbeddingParameters
    precision = Precision.INHERIT
    is_floating = True
    integer_arguments = (POSITION,)

    def list_arguments(self) -> tuple[str, ...]:
        """data and weight, and the position if used."""
        return ("data", "weight", *self.parameters.positions)

    def infer_shape(self, inputs: PartialShapes, outputs: PartialShapes) -> PartialInference:
        """Unify data and output, and data's channels with the weight's columns."""
        data = unify("data", inputs[0], outputs[0], "output")
        rows = self.parameters.max_length
        weight = unify("weight", inputs[1], (rows, None), "[max_length, channels]")
        position = [unify(POSITION, given, (1,), "one number") for given in inputs[2:]]
        if data is not None:
            expected = (None, None, weight[1])
            data = unify("data", data, expected, "batch, positions, weight's columns")
            weight = unify("weight", weight, (None, data[2]), "data's channels")
            require_positions("data", data, rows)
        return PartialInference([data, weight, *position], [data], [])

    def incremental(self, sequences: SequenceArguments) -> IncrementalForm[AnyProperty] | None:
        """Return the sum with the vectors from the run's position on."""
        p, (_, *others) = self.parameters, sequences.axes
        if not sequences.counts_positions(0, axis=1) or others != [None]:
            return None
        form = type(self)(p.model_copy(update={"use_position": True}))
        return IncrementalForm(form, 1, limit=p.max_length)

    def list_passed_gradients(self) -> dict[int, int]:
        """The gradient of data is the output's."""
        return {0: 0}

    def independent_gradients(self) -> list[list[int]]:
        """The gradients of data and weight share no computation."""
        return [[0], [1]]

    def declare_backward_dependency(
        self, out_grad: Sequence[T], in_data: Sequence[T], out_data: Sequence[T]
    ) -> list[T]:
        """Return out_grad and the position."""
        return [out_grad[0], *in_data[2:]]

    def flops(self, in_shapes: Sequence[Shape], out_shapes: Sequence[Shape]) -> int:
        """One addition per element."""
        return math.prod(in_shapes[0])

    def create_operator(self) -> Operator:
        """Create the NumPy body."""
        return PositionEmbedding(self.parameters)


class PositionEmbedding(Operator):
    """NumPy body."""

    def __init__(self, parameters: PositionEmbeddingParameters) -> None:
        self.parameters = parameters

    def forward(self, call: ForwardCall) -> None:
        """output = data + the weight's rows from the position on."""
        data = call.inputs.data
        call.store(output=data + call.inputs.weight[self._rows(call, data.shape[1])])

    def backward(self, call: BackwardCall) -> None:
        """Gradient of data: grad; of weight: its sum over the batch."""
        gradient = call.output_gradients.output
        if call.is_requested("weight"):
            sums = np.zeros_like(call.input_gradients.weight)
            sums[self._rows(call, gradient.shape[1])] = sum_over(gradient, 0)
            call.store(weight=sums)
        call.store(data=gradient)

    def _rows(self, call: OperatorCall, positions: int) -> slice:
        first = given_position(call, positions, self.parameters.max_length)
        return slice(first, first + positions)


class PositionSum(Arguments):
    """Data [batch, positions, columns], of which `rows` is batch times positions.

    length: rows of the weight. position: of its first row; None for 0. is_added: whether the
    result is added to the output.
    """

    rows: Integer
    positions: Integer
    columns: Integer
    length: Integer
    position: Int32s
    data: Floats
    weight: Float32s
    output: Floats
    is_added: Integer


@compact
def position_sum_loop(call: PositionSum) -> None:
    """output[n, t, :] = data[n, t, :] + weight[position + t, :]; it may overwrite data."""
    columns, first = call.columns, first_position(call.position, call.positions, call.length)
    at, end = share(call.rows * columns)
    while at < end:
        row = at // columns
        column = at - row * columns
        width = min(columns - column, end - at)
        own = (first + row % call.positions) * columns + column
        for j in range(0, width, LANES):
            value = load_lanes(call.data, at + j, width - j)
            value = add_lanes(value, load_lanes(call.weight, own + j, width - j))
            put_lanes(call.output, at + j, value, width - j, call.is_added != 0)
        at += width


class PositionGradient(Arguments):
    """Gradient [batch, positions, columns] and its sums [length, columns] over the batch.

    position: of the first row that is not 0; None for 0.
    """

    batch: Integer
    positions: Integer
    columns: Integer
    length: Integer
    position: Int32s
    grad: Floats
    sums: Float32s


@native
def position_gradient_loop(call: PositionGradient) -> None:
    """sums[position + t, :] = sum of grad[n, t, :] over n, in order; 0 for the unused rows."""
    begin, end = share(call.length * call.columns)
    clear(call.sums, begin, end - begin)
    used = call.positions * call.columns
    first = first_position(call.position, call.positions, call.length) * call.columns
    stop = min(first + used, end)
    for at in range(max(begin, first), stop, LANES):
        total = lanes(0.0)
        for n in range(call.batch):
            total = add_lanes(total, load_lanes(call.grad, n * used + at - first, stop - at))
        store_lanes(call.sums, at, total, stop - at)


@implement("position_embedding", backend="jit")
class CompiledPositionEmbedding(Implementation):
    """One pass over float32 or bfloat16 data, with a float32 weight."""

    def prepare_forward(self, prop: AnyProperty, request: ForwardRequest) -> Kernel | None:
        """Prepare the sum."""
        data, weight, *position = (spec.with_layout(PLAIN) for spec in request.inputs)
        output = request.outputs[0].with_layout(PLAIN)
        served = data.dtype in (FLOAT32, BFLOAT16) and weight.dtype == FLOAT32
        if not served or output.dtype != data.dtype or not data.elements:
            return None
        _, positions, columns = data.shape
        arguments = PositionSum(
            rows=data.elements // columns,
            positions=positions,
            columns=columns,
            length=weight.shape[0],
            position=source(2) if position else None,
            data=source(0),
            weight=source(1),
            output=target(0),
            is_added=int(request.requests[0] is OpReqType.ADD),
        )
        loop = position_sum_loop.bfloat16 if data.dtype == BFLOAT16 else position_sum_loop
        return native_kernel(
            self.name,
            [LoopPart(loop, arguments, request.device.tasks_for_elements(data.elements))],
            (data, weight, *position),
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
        data, weight, *others = (spec.with_layout(PLAIN) for spec in request.in_grad)
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
            (gradient, None, None, *request.in_data[2:], None),
            (data, weight, *others),
            (*without_add_requests(request.requests[:1]), *request.requests[1:]),
            request.device,
            flops=gradient.elements,
        )


def _sums(gradient: TensorSpec, weight: TensorSpec, request: BackwardRequest) -> LoopPart:
    """Return the weight's gradient."""
    batch, positions, columns = gradient.shape
    arguments = PositionGradient(
        batch=batch,
        positions=positions,
        columns=columns,
        length=weight.shape[0],
        position=source(3) if request.in_data[2:] else None,
        grad=source(0),
        sums=target(1),
    )
    low = gradient.dtype == BFLOAT16
    loop = position_gradient_loop.bfloat16 if low else position_gradient_loop
    return LoopPart(loop, arguments, request.device.tasks_for_elements(gradient.elements))
