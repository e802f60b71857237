"""_sequence_tail: the last values of every sequence, for final memories of recurrences."""

from __future__ import annotations

import math
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
from pydantic import Field

from mxrun.base.params import Parameters
from mxrun.base.tensor import PLAIN, TensorSpec
from mxrun.codegen.arguments import Arguments, Floats, Int32s, Integer
from mxrun.codegen.jit import native
from mxrun.codegen.loops import runs_of_task, vectors
from mxrun.codegen.vectors import lanes, load_lanes
from mxrun.operator.kernel import BackwardRequest, ForwardRequest, Kernel, OpReqType
from mxrun.operator.native_kernel import LoopPart, Slot, native_kernel, source, target
from mxrun.operator.operator import BackwardCall, ForwardCall, Operator, OperatorCall
from mxrun.operator.property import PartialInference, PartialShapes, SelectionProperty
from mxrun.operator.register import AnyProperty, Implementation, implement, register
from mxrun.operator.scalar import without_add_requests
from mxrun.operator.shape import Dimensions, ShapeContradiction, show, unify
from mxrun.ops.indexing.kernels import is_served, of_dtype
from mxrun.ops.vector_stores import put_lanes

Array = npt.NDArray[Any]

_MIN_RANK = 2


class SequenceTailParameters(Parameters):
    """Parameters of `_sequence_tail`."""

    count: Annotated[int, Field(ge=1)] = Field(
        description="Number of values of each sequence.", examples=[2]
    )
    before: Annotated[int, Field(ge=0)] = Field(
        default=0, description="Number of rows of data before the first step."
    )


@register("_sequence_tail")
class SequenceTailProperty(SelectionProperty[SequenceTailParameters]):
    """output[j] = data[before + length - count + j], or 0 where this is before data's first row.

    data [before + steps, batch, ...], output [count, batch, ...], sequence_length [batch]. A length
    beyond 0 to steps counts as the nearest one. The gradient of data is the output's gradient in
    the rows that are selected, else 0. Backward reads the output's gradient and sequence_length.
    """

    type_string = "_sequence_tail"
    parameter_type = SequenceTailParameters
    is_internal = True

    def list_arguments(self) -> tuple[str, ...]:
        """data and sequence_length."""
        return ("data", "sequence_length")

    def infer_shape(self, inputs: PartialShapes, outputs: PartialShapes) -> PartialInference:
        """Unify all axes of data and output but the first, and the batch with the lengths."""
        data, lengths = inputs
        if outputs[0]:
            data = unify("data", data, (None, *outputs[0][1:]), "output")
        if data is None:
            return PartialInference([data, lengths], outputs, [])
        if len(data) < _MIN_RANK:
            raise ShapeContradiction("data", show(data), "at least two axes", "steps and batch")
        (batch,) = unify("sequence_length", lengths, (data[1],), "data's batch")
        made: Dimensions = (self.parameters.count, batch, *data[2:])
        output = unify("output", outputs[0], made, "data")
        return PartialInference([(data[0], batch, *data[2:]), (batch,)], [output], [])

    def create_operator(self) -> Operator:
        """Create the NumPy body."""
        return SequenceTail(self.parameters)


class SequenceTail(Operator):
    """NumPy body."""

    def __init__(self, parameters: SequenceTailParameters) -> None:
        self._count, self._before = parameters.count, parameters.before

    def forward(self, call: ForwardCall) -> None:
        """output = the selected rows, and zeros."""
        data = call.inputs.data
        output = np.zeros((self._count, *data.shape[1:]), data.dtype)
        rows, (places, records) = self._selected(call, len(data))
        output[rows, records] = data[places, records]
        call.store(output=output)

    def backward(self, call: BackwardCall) -> None:
        """Gradient of data: the output's in the selected rows, else 0."""
        gradient = np.zeros_like(call.input_gradients.data)
        rows, (places, records) = self._selected(call, len(gradient))
        gradient[places, records] = call.output_gradients.output[rows, records]
        call.store(data=gradient)

    def _selected(self, call: OperatorCall, size: int) -> tuple[Array, tuple[Array, Array]]:
        """Return the rows of the output that are in data, and data's rows and records."""
        lengths = call.inputs.sequence_length.astype(np.int64).clip(0, size - self._before)
        first = self._before + lengths - self._count
        places = first + np.arange(self._count)[:, None]
        rows, records = np.nonzero(places >= 0)
        return rows, (places[rows, records], records)


class ShiftedRows(Arguments):
    """Output [rows, batch, columns], and data with `size` rows.

    steps: largest length. sign: 1 or -1, by which lengths are multiplied.
    """

    rows: Integer
    batch: Integer
    columns: Integer
    size: Integer
    steps: Integer
    lengths: Int32s
    sign: Integer
    offset: Integer
    data: Floats
    output: Floats
    is_added: Integer


@native
def shift_rows_loop(call: ShiftedRows) -> None:
    """output[r, n] = data[r + offset + sign * length[n], n], or 0 if data has no such row."""
    columns, zero = call.columns, lanes(0.0)
    for row, _, at, width in runs_of_task(call.rows * call.batch, columns):
        length = min(max(call.lengths[row % call.batch], 0), call.steps)
        shift = call.offset + call.sign * length
        step = row // call.batch + shift
        read = at + shift * call.batch * columns
        is_there = step >= 0 and step < call.size
        for j, count in vectors(0, width):
            value = zero
            if is_there:
                value = load_lanes(call.data, read + j, count)
            put_lanes(call.output, at + j, value, count, call.is_added != 0)


@implement("_sequence_tail", backend="jit")
class CompiledSequenceTail(Implementation):
    """One pass over the output or data's gradient, in float32 or bfloat16, with int32 lengths."""

    def prepare_forward(self, prop: AnyProperty, request: ForwardRequest) -> Kernel | None:
        """Prepare the pass over the output."""
        if not is_served(request):
            return None
        data, lengths = (spec.with_layout(PLAIN) for spec in request.inputs)
        output, p = request.outputs[0].with_layout(PLAIN), prop.parameters
        steps, offset = data.shape[0] - p.before, p.before - p.count
        return native_kernel(
            self.name,
            [_shift(request, data, output, source(1), steps, offset)],
            (data, lengths),
            (output,),
            without_add_requests(request.requests),
            request.device,
            # Only the copied rows of data are read.
            bytes_moved=lengths.nbytes + 2 * output.nbytes,
        )

    def prepare_backward(self, prop: AnyProperty, request: BackwardRequest) -> Kernel | None:
        """Prepare the pass over data's gradient."""
        gradient, lengths = request.out_grad[0], request.in_data[1]
        assert gradient is not None
        assert lengths is not None
        gradient, lengths = gradient.with_layout(PLAIN), lengths.with_layout(PLAIN)
        data, p = request.in_grad[0].with_layout(PLAIN), prop.parameters
        steps, offset = data.shape[0] - p.before, p.count - p.before
        return native_kernel(
            self.name,
            [_shift(request, gradient, data, source(2), steps, offset, sign=-1)],
            (gradient, None, lengths, None),
            (data, None),
            without_add_requests(request.requests),
            request.device,
        )


def _shift(
    request: ForwardRequest | BackwardRequest,
    data: TensorSpec,
    output: TensorSpec,
    lengths: Slot,
    steps: int,
    offset: int,
    sign: int = 1,
) -> LoopPart:
    """Return the pass over an output."""
    rows, batch, *others = output.shape
    shifted = ShiftedRows(
        rows=rows,
        batch=batch,
        columns=math.prod(others),
        size=data.shape[0],
        steps=steps,
        lengths=lengths,
        sign=sign,
        offset=offset,
        data=source(0),
        output=target(0),
        is_added=int(request.requests[0] is OpReqType.ADD),
    )
    tasks = request.device.tasks_for_elements(output.elements)
    return LoopPart(of_dtype(shift_rows_loop, data), shifted, tasks)
