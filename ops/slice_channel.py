"""SliceChannel: splits a tensor into equal slices along one axis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, TypeVar

import numpy as np
from pydantic import Field

from mxrun.base.params import Int32, Parameters
from mxrun.base.tensor import PLAIN, PartialShape, Shape, TensorSpec, unpacked
from mxrun.operator.family import OperatorFamily
from mxrun.operator.incremental import SequenceArguments, shared_axis
from mxrun.operator.kernel import BackwardRequest, ForwardRequest, Kernel, OpReqType
from mxrun.operator.native_kernel import LoopPart, native_kernel, source, target
from mxrun.operator.operator import BackwardCall, ForwardCall, Operator
from mxrun.operator.property import OperatorProperty, PartialInference, PartialShapes
from mxrun.operator.register import AnyProperty, Implementation, implement, register
from mxrun.operator.shape import Dimensions, ShapeContradiction, show, unify
from mxrun.ops.rows import RowCopy, RowZeroing, copy_rows_loop, rows_along, zero_rows_loop

T = TypeVar("T")

# Far more than any network has; each output is a tensor, a name and a call.
_MAX_OUTPUTS = 4096


class SliceChannelParameters(Parameters):
    """Parameters of SliceChannel (MXNet's)."""

    num_outputs: Annotated[int, Field(ge=1, le=_MAX_OUTPUTS)] = Field(
        description="Number of outputs; must divide the axis.", examples=[2]
    )
    axis: Int32 = Field(
        default=1, description="Axis along which data is split; negative from the end."
    )
    squeeze_axis: bool = Field(
        default=False,
        description="Remove that axis from the outputs, in which it must have size 1.",
    )


@register("SliceChannel", "split", foreign={"SliceChannel: {num_outputs: 2}": "chunk unbind"})
class SliceChannelProperty(OperatorProperty[SliceChannelParameters]):
    """output0, output1, ... = consecutive slices of equal size of data along `axis`.

    Backward reads the outputs' gradients. The gradient of data is their concatenation; it is zero
    for the slices that nothing reads.
    """

    type_string = "SliceChannel"
    family = OperatorFamily.SHAPE
    parameter_type = SliceChannelParameters

    def list_outputs(self) -> tuple[str, ...]:
        """output0, output1, ..."""
        return tuple(f"output{index}" for index in range(self.parameters.num_outputs))

    def infer_shape(self, inputs: PartialShapes, outputs: PartialShapes) -> PartialInference:
        """Infer in both directions once either rank is known."""
        data = inputs[0]
        part: PartialShape = None
        for name, output in zip(self.list_outputs(), outputs, strict=True):
            part = unify(name, output, part, "all outputs have one shape")
        squeezed = self.parameters.squeeze_axis
        if data is None and part is not None:
            data = (None,) * (len(part) + squeezed)
        if data is None:
            return PartialInference([None], outputs, [])
        axis = self.axis(len(data))
        count = self.parameters.num_outputs
        size = data[axis]
        if size is not None and (size % count or (squeezed and size != count)):
            expected = f"axis {axis} of {count}" + ("" if squeezed else " or a multiple")
            raise ShapeContradiction("data", show(data), expected, f"num_outputs {count}")
        length = 1 if squeezed else None if size is None else size // count
        sliced = self._with_axis(data, axis, length)
        part = unify("output0", part, sliced[:axis] + sliced[axis + squeezed :], "data")
        if squeezed:
            full: Dimensions = (*part[:axis], count, *part[axis:])
        else:
            length = part[axis]
            full = self._with_axis(part, axis, None if length is None else length * count)
        return PartialInference([unify("data", data, full, "output")], [part] * count, [])

    def _with_axis(self, shape: Dimensions, axis: int, size: int | None) -> Dimensions:
        return (*shape[:axis], size, *shape[axis + 1 :])

    def axis(self, rank: int) -> int:
        """Return `axis` counted from the front; raises ShapeContradiction if outside the rank."""
        axis = self.parameters.axis
        if not -rank <= axis < rank:
            raise ShapeContradiction("data", f"rank {rank}", f"axis {axis} inside", "axis")
        return axis % rank

    def position_axis(self, sequences: SequenceArguments) -> int | None:
        """That of data, unless it is sliced along it."""
        axis, own = self.axis(len(sequences.shapes[0])), shared_axis(sequences.axes)
        if own is None or own == axis:
            return None
        return own - (self.parameters.squeeze_axis and axis < own)

    def declare_backward_dependency(
        self, out_grad: Sequence[T], in_data: Sequence[T], out_data: Sequence[T]
    ) -> list[T]:
        """Return the outputs' gradients."""
        return [*out_grad]

    def flops(self, in_shapes: Sequence[Shape], out_shapes: Sequence[Shape]) -> int:
        """Return 0: nothing is computed."""
        return 0

    def create_operator(self) -> Operator:
        """Create the NumPy body."""
        return SliceChannel(self)


class SliceChannel(Operator):
    """NumPy body: splits data; backward concatenates."""

    def __init__(self, prop: SliceChannelProperty) -> None:
        self.axis, self.count = prop.axis, prop.parameters.num_outputs

    def forward(self, call: ForwardCall) -> None:
        """output i = slice i of data."""
        data = call.inputs.data
        parts = np.split(data, self.count, self.axis(data.ndim))
        shape = call.outputs[0].shape
        call.store(*(part.reshape(shape) for part in parts))

    def backward(self, call: BackwardCall) -> None:
        """Slice i of data's gradient = gradient of output i; zero if it is absent."""
        if not call.is_requested("data"):
            return
        gradient = np.zeros_like(call.input_gradients.data)
        parts = np.split(gradient, self.count, self.axis(gradient.ndim))
        for index, part in enumerate(parts):
            if f"output{index}" in call.output_gradients:
                part[...] = call.output_gradients[index].reshape(part.shape)
        call.store(data=gradient)


@implement("SliceChannel", backend="jit")
class CompiledSliceChannel(Implementation):
    """Row copies in float32; channels-last if data or gradients are channels-last."""

    def prepare_forward(self, prop: AnyProperty, request: ForwardRequest) -> Kernel | None:
        """Prepare one copy per requested output."""
        (data,) = request.inputs
        if data.dtype != "float32":
            return None
        data = data.with_layout(PLAIN) if prop.parameters.squeeze_axis else unpacked(data)
        outputs = tuple(spec.with_layout(data.layout) for spec in request.outputs)
        rows, columns, stride = _places(prop, data)
        tasks = request.device.tasks_for_elements(rows * columns)
        parts = [
            LoopPart(
                copy_rows_loop,
                RowCopy(
                    rows=rows,
                    columns=columns,
                    source=source(0),
                    source_offset=index * columns,
                    source_stride=stride,
                    target=target(index),
                    target_offset=0,
                    target_stride=columns,
                ),
                tasks,
            )
            for index, req in enumerate(request.requests)
            if req is not OpReqType.NULL
        ]
        return native_kernel(self.name, parts, (data,), outputs, request.requests, request.device)

    def prepare_backward(self, prop: AnyProperty, request: BackwardRequest) -> Kernel | None:
        """Prepare one copy per given gradient, and zeros for each absent one."""
        before = request.forward.inputs[0]
        assert before is not None
        data_grad = request.in_grad[0].with_layout(before.layout)
        rows, columns, stride = _places(prop, data_grad)
        tasks = request.device.tasks_for_elements(rows * columns)
        parts = []
        for index, gradient in enumerate(request.out_grad):
            offset = index * columns
            if gradient is None:
                zeroing = RowZeroing(
                    rows=rows, columns=columns, target=target(0), offset=offset, stride=stride
                )
                parts.append(LoopPart(zero_rows_loop, zeroing, tasks))
            else:
                copy = RowCopy(
                    rows=rows,
                    columns=columns,
                    source=source(index),
                    source_offset=0,
                    source_stride=columns,
                    target=target(0),
                    target_offset=offset,
                    target_stride=stride,
                )
                parts.append(LoopPart(copy_rows_loop, copy, tasks))
        gradients = tuple(
            None if spec is None else spec.with_layout(data_grad.layout)
            for spec in request.out_grad
        )
        unread = (None,) * (1 + len(gradients))
        return native_kernel(
            self.name, parts, (*gradients, *unread), (data_grad,), request.requests, request.device
        )


def _places(prop: AnyProperty, data: TensorSpec) -> tuple[int, int, int]:
    """Return (rows, columns, stride) of one slice in data's memory, in elements."""
    assert isinstance(prop, SliceChannelProperty)
    rows, stride = rows_along(data, prop.axis(len(data.shape)))
    return rows, stride // prop.parameters.num_outputs, stride
