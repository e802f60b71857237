"""Concat: concatenation of tensors along one axis."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Annotated, TypeVar

import numpy as np
from pydantic import Field

from mxrun.base.dataclass import dataclass
from mxrun.base.dtype import item_size
from mxrun.base.params import Int32, Parameters
from mxrun.base.tensor import CHANNELS_LAST, PLAIN, Shape, TensorSpec, unpacked
from mxrun.operator.family import OperatorFamily
from mxrun.operator.incremental import SequenceArguments, shared_axis
from mxrun.operator.kernel import (
    BackwardRequest,
    ConcatLayout,
    ForwardRequest,
    Handles,
    Kernel,
    OpReqType,
)
from mxrun.operator.launch import Handle, Launch
from mxrun.operator.native_kernel import LoopPart, Pitch, Slot, native_kernel, source, target
from mxrun.operator.operator import BackwardCall, ForwardCall, Operator
from mxrun.operator.property import OperatorProperty, PartialInference, PartialShapes
from mxrun.operator.register import AnyProperty, Implementation, implement, register
from mxrun.operator.shape import Dimensions, ShapeContradiction, show, unify
from mxrun.ops.rows import RowCopy, copy_rows_loop, rows_along

T = TypeVar("T")


class ConcatParameters(Parameters):
    """Parameters of Concat (MXNet's)."""

    num_args: Annotated[Int32, Field(ge=1)] = Field(
        description="Number of inputs; follows from the connected inputs.",
        examples=[2],
    )
    dim: Int32 = Field(default=1, description="Axis of the concatenation; negative from the end.")


@register("Concat", "concat", foreign={"Concat: {inputs: [a, b]}": "cat concatenate"})
class ConcatProperty(OperatorProperty[ConcatParameters]):
    """output = concatenation of arg0, arg1, ... along the axis `dim`; all other axes are equal.

    Backward reads the output's gradient and the inputs' shapes. An input's gradient is its slice of
    the output's gradient.
    """

    type_string = "Concat"
    family = OperatorFamily.SHAPE
    parameter_type = ConcatParameters

    def list_arguments(self) -> tuple[str, ...]:
        """arg0, arg1, ..."""
        return tuple(f"arg{index}" for index in range(self.parameters.num_args))

    def infer_shape(self, inputs: PartialShapes, outputs: PartialShapes) -> PartialInference:
        """Infer all axes but `dim` in both directions; `dim` forward, or for one unknown input."""
        ranks = [len(shape) for shape in (*inputs, *outputs) if shape is not None]
        if not ranks:
            return PartialInference(inputs, outputs, [])
        axis = self.axis(ranks[0])
        named = list(zip((*self.list_arguments(), "output"), (*inputs, *outputs), strict=True))
        common: Dimensions = (None,) * ranks[0]
        for name, shape in named:
            unified = unify(name, shape, (None,) * ranks[0], "all have one rank")
            rule = f"all axes but {axis} are equal"
            common = unify(name, _with_axis(unified, axis, None), common, rule)
        *parts, output = [unify(name, shape, common) for name, shape in named]
        *sizes, total = self._sizes([part[axis] for part in parts], output[axis], output)
        joined = [_with_axis(part, axis, size) for part, size in zip(parts, sizes, strict=True)]
        return PartialInference([*joined], [_with_axis(output, axis, total)], [])

    def axis(self, rank: int) -> int:
        """Return `dim` counted from the front; raises ShapeContradiction if it exceeds the rank."""
        dim = self.parameters.dim
        if not -rank <= dim < rank:
            raise ShapeContradiction("arg0", f"rank {rank}", f"axis {dim} inside", "dim")
        return dim % rank

    def _sizes(
        self, sizes: Sequence[int | None], total: int | None, output: Dimensions
    ) -> list[int | None]:
        """Return the inputs' sizes along the axis, followed by the output's."""
        known = sum(size for size in sizes if size is not None)
        unknown = [index for index, size in enumerate(sizes) if size is None]
        if not unknown:
            (total,) = unify("output", (total,), (known,), "the sum of the inputs' sizes")
            return [*sizes, total]
        if total is not None and total < known:
            rule = "the sum of the inputs' sizes"
            raise ShapeContradiction("output", show(output), f"at least {known}", rule)
        completed = list(sizes)
        if len(unknown) == 1 and total is not None:
            completed[unknown[0]] = total - known
        return [*completed, total]

    def position_axis(self, sequences: SequenceArguments) -> int | None:
        """That of all inputs, unless they are joined along it."""
        return shared_axis(sequences.axes, self.axis(len(sequences.shapes[0])))

    def declare_backward_dependency(
        self, out_grad: Sequence[T], in_data: Sequence[T], out_data: Sequence[T]
    ) -> list[T]:
        """Return out_grad and in_data; in_data for the shapes, which null requests do not provide.

        The compiled implementation knows the shapes in advance and does not extend any input's
        lifetime.
        """
        return [out_grad[0], *in_data]

    def flops(self, in_shapes: Sequence[Shape], out_shapes: Sequence[Shape]) -> int:
        """Return 0: nothing is computed."""
        return 0

    def create_operator(self) -> Operator:
        """Create the NumPy body."""
        return Concat(self)


def _with_axis(shape: Dimensions, axis: int, size: int | None) -> Dimensions:
    return (*shape[:axis], size, *shape[axis + 1 :])


class Concat(Operator):
    """NumPy body: concatenates; backward splits the gradient."""

    def __init__(self, prop: ConcatProperty) -> None:
        self.axis = prop.axis

    def forward(self, call: ForwardCall) -> None:
        """output = concatenate(arg0, arg1, ...)."""
        axis = self.axis(call.outputs.output.ndim)
        call.store(output=np.concatenate(list(call.inputs), axis))

    def backward(self, call: BackwardCall) -> None:
        """Split the output's gradient into the inputs' slices."""
        gradient = call.output_gradients.output
        axis = self.axis(gradient.ndim)
        *ends, _ = accumulate(tensor.shape[axis] for tensor in call.inputs)
        call.store(*np.split(gradient, ends, axis))


@dataclass(frozen=True)
class _SlicePart:
    """Copy of one input to byte offset `begin` of the output; skipped if already stored there."""

    copy: LoopPart
    slot: Slot
    begin: int

    @property
    def scratch_bytes(self) -> int:
        """0: the copy needs no scratch space."""
        return 0

    def slots(self) -> Iterator[Slot]:
        """Yield the slots of the copy."""
        return self.copy.slots()

    def launches(self, handles: Handles, scratch: Handle | None) -> tuple[Launch, ...]:
        """Return the copy's launch, or none."""
        if self.slot.present(handles).is_at(target(0).present(handles) + self.begin):
            return ()
        return self.copy.launches(handles, scratch)


@implement("Concat", backend="jit")
class CompiledConcat(Implementation):
    """Row copies in float32; channels-last if an input or the gradient is channels-last."""

    def prepare_forward(self, prop: AnyProperty, request: ForwardRequest) -> Kernel | None:
        """Prepare one copy per input."""
        if any(spec.dtype != "float32" for spec in request.inputs):
            return None
        channels_last = any(spec.layout == CHANNELS_LAST for spec in request.inputs)
        layout = CHANNELS_LAST if channels_last else PLAIN
        inputs = tuple(spec.with_layout(layout) for spec in request.inputs)
        output = request.outputs[0].with_layout(layout)
        places = _places(prop, inputs, output)
        parts = []
        for index, (rows, columns, offset, stride) in enumerate(places):
            arguments = RowCopy(
                rows=rows,
                columns=columns,
                source=source(index),
                source_offset=0,
                source_stride=Pitch(source(index), columns),
                target=target(0),
                target_offset=offset,
                target_stride=Pitch(target(0), stride),
            )
            tasks = request.device.tasks_for_elements(rows * columns)
            copy = LoopPart(copy_rows_loop, arguments, tasks)
            parts.append(_SlicePart(copy, source(index), item_size(output.dtype) * offset))
        kernel = native_kernel(
            self.name, parts, inputs, (output,), request.requests, request.device
        )
        widths = tuple(columns for _, columns, _, _ in places)
        return replace(
            kernel,
            pitched_inputs=dict(enumerate(widths)),
            pitched_outputs={0: sum(widths)},
            join=ConcatLayout(places[0][0], widths),
        )

    def prepare_backward(self, prop: AnyProperty, request: BackwardRequest) -> Kernel | None:
        """Prepare one copy per requested gradient."""
        (gradient,) = request.out_grad
        assert gradient is not None
        gradient = unpacked(gradient)
        outputs = tuple(spec.with_layout(gradient.layout) for spec in request.in_grad)
        parts = []
        for index, (rows, columns, offset, stride) in enumerate(_places(prop, outputs, gradient)):
            if request.requests[index] is not OpReqType.NULL:
                arguments = RowCopy(
                    rows=rows,
                    columns=columns,
                    source=source(0),
                    source_offset=offset,
                    source_stride=stride,
                    target=target(index),
                    target_offset=0,
                    target_stride=columns,
                )
                tasks = request.device.tasks_for_elements(rows * columns)
                parts.append(LoopPart(copy_rows_loop, arguments, tasks))
        unread = (None,) * (len(outputs) + 1)
        return native_kernel(
            self.name, parts, (gradient, *unread), outputs, request.requests, request.device
        )


def _places(
    prop: AnyProperty, slices: Sequence[TensorSpec], parent: TensorSpec
) -> list[tuple[int, int, int, int]]:
    """Return (rows, columns, offset, stride) of each slice in `parent`'s memory, in elements."""
    assert isinstance(prop, ConcatProperty)
    axis = prop.axis(len(parent.shape))
    _, stride = rows_along(parent, axis)
    places, offset = [], 0
    for spec in slices:
        rows, columns = rows_along(spec, axis)
        places.append((rows, columns, offset, stride))
        offset += columns
    return places
