"""cumsum: cumulative sums along an axis."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from pydantic import Field

from mxrun.base.device import DeviceDescription
from mxrun.base.params import Parameters
from mxrun.base.tensor import PLAIN, Shape, TensorSpec
from mxrun.codegen.arguments import Arguments, Float32s, Float64s, Integer
from mxrun.codegen.intrinsics import reduced_run, scan_columns, scan_line
from mxrun.codegen.jit import native
from mxrun.codegen.loops import elements_of_task, rows_of_task, runs_of_task
from mxrun.operator.family import OperatorFamily
from mxrun.operator.kernel import BackwardRequest, ForwardRequest, Kernel
from mxrun.operator.native_kernel import LoopPart, Scratch, native_kernel, source, target
from mxrun.operator.operator import BackwardCall, ForwardCall, Operator
from mxrun.operator.property import InPlaceProperty, PartialInference, PartialShapes
from mxrun.operator.register import AnyProperty, Implementation, implement, register
from mxrun.operator.shape import ShapeContradiction, is_known, require_complete, unify

T = TypeVar("T")
Array = npt.NDArray[Any]


class CumsumParameters(Parameters):
    """Parameters of cumsum (MXNet's, without dtype: the sums have the input's dtype)."""

    axis: int | None = Field(
        default=None,
        ge=0,
        description="Axis to sum along; default: the sums run over all elements.",
    )

    def views(self, shape: Shape) -> tuple[int, int, int]:
        """Return the sizes before, along and after the axis; raises ShapeContradiction."""
        if self.axis is None:
            return 1, math.prod(shape), 1
        self.check(len(shape))
        return math.prod(shape[: self.axis]), shape[self.axis], math.prod(shape[self.axis + 1 :])

    def check(self, rank: int) -> None:
        """Raise ShapeContradiction if data of this rank has no such axis."""
        if self.axis is not None and self.axis >= rank:
            raise ShapeContradiction("a", f"axis {self.axis}", f"an axis of {rank}", "axis")


@register("cumsum")
class CumsumProperty(InPlaceProperty[CumsumParameters]):
    """output[.., i, ..] = sum of a[.., j, ..] over j <= i along the axis; without an axis, the
    output is the cumulative sum over all elements, a vector.

    Backward reads only the output's gradient: the gradient of a[.., j, ..] is the sum of the
    output's gradient over i >= j.
    """

    type_string = "cumsum"
    family = OperatorFamily.REDUCTION
    parameter_type = CumsumParameters

    def list_arguments(self) -> tuple[str, ...]:
        """MXNet's name of the input."""
        return ("a",)

    def infer_shape(self, inputs: PartialShapes, outputs: PartialShapes) -> PartialInference:
        """Unify both shapes; without an axis the output is a vector of all of a's elements."""
        data, output = inputs[0], outputs[0]
        if self.parameters.axis is not None:
            shape = unify("output", output, data, "a")
            if shape is not None:
                self.parameters.check(len(shape))
            return PartialInference([shape], [shape], [])
        total = math.prod(require_complete(data)) if is_known(data) else None
        return PartialInference(
            [data], [unify("output", output, (total,), "a without an axis")], []
        )

    def declare_backward_dependency(
        self, out_grad: Sequence[T], in_data: Sequence[T], out_data: Sequence[T]
    ) -> list[T]:
        """Return out_grad."""
        return [out_grad[0]]

    def create_operator(self) -> Operator:
        """Create the NumPy body."""
        return Cumsum(self.parameters)


def _sums(data: Array) -> Array:
    """Return the cumulative sums along axis 1, in float64 or int64."""
    kind = np.float64 if data.dtype.kind == "f" else np.int64
    sums: Array = np.cumsum(data, axis=1, dtype=kind)
    return sums


class Cumsum(Operator):
    """NumPy body; sums in float64 or int64."""

    def __init__(self, parameters: CumsumParameters) -> None:
        self.parameters = parameters

    def forward(self, call: ForwardCall) -> None:
        """output = cumulative sums of data."""
        data = call.inputs.a
        sums = _sums(data.reshape(self.parameters.views(data.shape)))
        call.store(output=sums.reshape(call.outputs.output.shape).astype(data.dtype))

    def backward(self, call: BackwardCall) -> None:
        """Gradient of data: cumulative sums of out_grad from the end."""
        if not call.is_requested("a"):
            return
        gradient, shape = call.output_gradients.output, call.input_gradients.a.shape
        backwards = gradient.reshape(self.parameters.views(shape))[:, ::-1]
        sums = _sums(backwards)[:, ::-1]
        call.store(a=sums.reshape(shape).astype(gradient.dtype))


# Long lines are divided into at most this many chunks, whose sums are computed first, in parallel.
_CHUNKS = 32
_CHUNK_ELEMENTS = 16_384
_SHORT = 16


class ColumnSums(Arguments):
    """Arguments of `columns_loop`: data and output [o, r, k], summed along r.

    before, size, behind: sizes of o, r and k; first: offset of the first element; step: distance
    between elements along r, negative for sums from the end.
    """

    before: Integer
    size: Integer
    behind: Integer
    output: Float32s
    data: Float32s
    first: Integer
    step: Integer


@native
def columns_loop(call: ColumnSums) -> None:
    """output[o, r, k] = sum of data[o, s, k] over s <= r, in float64; for several k."""
    size, behind = call.size, call.behind
    for before, within, _, count in runs_of_task(call.before, behind):
        position = before * size * behind + within + call.first
        scan_columns(call.output, call.data, position, count, call.step, size)


class LineSums(Arguments):
    """Arguments of the loops over lines: data and output [o, r], summed along r.

    lines: number of o; size: elements of a line; first: offset of a line's first element; step: 1,
    or -1 for sums from the end; chunks: chunks of a line; length: elements of a chunk; totals
    [o, chunk]: the sum of a chunk, later of all chunks before it; None for lines of one chunk.
    """

    lines: Integer
    size: Integer
    output: Float32s
    data: Float32s
    first: Integer
    step: Integer
    chunks: Integer
    length: Integer
    totals: Float64s


@native
def lines_loop(call: LineSums) -> None:
    """output[o, r] = sum of data[o, s] over s <= r, computed by chunks of lines."""
    size, step, chunks = call.size, call.step, call.chunks
    for item in rows_of_task(call.lines * chunks):
        line = item // chunks
        done = (item - line * chunks) * call.length
        position = line * size + call.first + done * step
        total = 0.0
        if call.totals is not None:
            total = call.totals[item]
        scan_line(call.output, call.data, position, min(call.length, size - done), step, total)


@native
def short_lines_loop(call: LineSums) -> None:
    """Like `lines_loop`, for lines too short for vectors; sums in float32."""
    for line in elements_of_task(call.lines):
        at, total = line * call.size + call.first, np.float32(0)
        for _ in range(call.size):
            total += call.data[at]
            call.output[at] = total
            at += call.step


@native
def sums_loop(call: LineSums) -> None:
    """totals[o, p] = sum of chunk p of data[o]."""
    size, data, step, chunks = call.size, call.data, call.step, call.chunks
    for item in rows_of_task(call.lines * chunks):
        line = item // chunks
        done = (item - line * chunks) * call.length
        count = min(call.length, size - done)
        position = line * size + call.first + done * step
        if step < 0:
            position -= count - 1
        call.totals[item] = reduced_run(0, 0.0, data, position, count, data[position], 0)


@native
def carry_loop(call: LineSums) -> None:
    """totals[line, chunk] = sum of the totals before it."""
    chunks, totals = call.chunks, call.totals
    for line in range(call.lines):
        total = 0.0
        for at in range(line * chunks, line * chunks + chunks):
            own = totals[at]
            totals[at] = total
            total += own


@implement("cumsum", backend="jit")
class CompiledCumsum(Implementation):
    """Cumulative sums in float32: one pass, or two for a few long lines."""

    def prepare_forward(self, prop: AnyProperty, request: ForwardRequest) -> Kernel | None:
        """Prepare the cumulative sums."""
        assert isinstance(prop, CumsumProperty)
        (data,), (output,) = request.inputs, request.outputs
        if data.dtype != "float32" or not data.elements:
            return None
        return native_kernel(
            self.name,
            _parts(prop.parameters, data.shape, False, request.device),
            (data.with_layout(PLAIN),),
            (output.with_layout(PLAIN),),
            request.requests,
            request.device,
            flops=data.elements,
        )

    def prepare_backward(self, prop: AnyProperty, request: BackwardRequest) -> Kernel | None:
        """Prepare the cumulative sums of out_grad from the end."""
        assert isinstance(prop, CumsumProperty)
        (gradient,), (data,) = request.out_grad, request.in_grad
        assert isinstance(gradient, TensorSpec)
        return native_kernel(
            self.name,
            _parts(prop.parameters, data.shape, True, request.device),
            (gradient.with_layout(PLAIN), None, None),
            (data.with_layout(PLAIN),),
            request.requests,
            request.device,
            flops=data.elements,
        )


def _parts(
    parameters: CumsumParameters, shape: Shape, onward: bool, device: DeviceDescription
) -> list[LoopPart]:
    """Return the loops of the cumulative sums, with `onward` from the end of the axis."""
    before, size, behind = parameters.views(shape)
    first, step = ((size - 1) * behind, -behind) if onward else (0, behind)
    tasks = device.tasks_for_elements(before * size * behind)
    if behind > 1:
        columns = ColumnSums(
            before=before,
            size=size,
            behind=behind,
            output=target(0),
            data=source(0),
            first=first,
            step=step,
        )
        return [LoopPart(columns_loop, columns, tasks)]
    parallel = 1 if before >= _CHUNKS else max(1, min(_CHUNKS, size // _CHUNK_ELEMENTS))
    length = -(-size // parallel)
    chunks = -(-size // length)
    lines = LineSums(
        lines=before,
        size=size,
        output=target(0),
        data=source(0),
        first=first,
        step=step,
        chunks=chunks,
        length=length,
        totals=None if chunks == 1 else Scratch(),
    )
    if chunks == 1:
        return [LoopPart(short_lines_loop if size < _SHORT else lines_loop, lines, tasks)]
    nbytes = 8 * before * chunks
    return [
        LoopPart(sums_loop, lines, tasks, nbytes),
        LoopPart(carry_loop, lines, 1, nbytes),
        LoopPart(lines_loop, lines, tasks, nbytes),
    ]
