"""cumsum: cumulative sums along an axis."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from pydantic import Field

from mxrun.backend.jit import (
    Block,
    float32s,
    float64s,
    integer,
    native,
    reduced_run,
    scan_columns,
    scan_line,
    share,
)
from mxrun.backend.team import team_for_elements
from mxrun.base.params import Parameters
from mxrun.base.tensor import PLAIN, Shape, TensorSpec
from mxrun.operator.kernel import BackwardRequest, ForwardRequest, Kernel, OpReqType
from mxrun.operator.native_kernel import LoopPart, native_kernel, source, target
from mxrun.operator.operator import OpContext, Operator, assign, require_array
from mxrun.operator.property import InPlaceProperty, PartialInference, PartialShapes
from mxrun.operator.register import AnyProperty, Implementation, implement, register
from mxrun.operator.shape import ShapeContradiction, is_known, require_complete, unify
from mxrun.operator.tensor import Tensor

T = TypeVar("T")
Array = npt.NDArray[Any]


class CumsumParameters(Parameters):
    """Parameters of cumsum (MXNet's, without dtype: the sums have the input's dtype)."""

    axis: int | None = Field(
        default=None,
        ge=0,
        description="Axis to sum along; by default the sums run over all elements.",
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

    def forward(
        self,
        context: OpContext,
        in_data: Sequence[Tensor],
        req: Sequence[OpReqType],
        out_data: Sequence[Tensor],
        aux_states: Sequence[Tensor],
    ) -> None:
        """output = cumulative sums of data."""
        data = in_data[0].array
        sums = _sums(data.reshape(self.parameters.views(data.shape)))
        assign(out_data[0], req[0], sums.reshape(out_data[0].shape).astype(data.dtype))

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
        """Gradient of data: cumulative sums of out_grad from the end."""
        if in_grad[0] is None:
            return
        gradient, shape = require_array(out_grad[0]), in_grad[0].shape
        backwards = gradient.reshape(self.parameters.views(shape))[:, ::-1]
        sums = _sums(backwards)[:, ::-1]
        assign(in_grad[0], req[0], sums.reshape(shape).astype(gradient.dtype))


# Long lines are divided into at most this many chunks, whose sums are computed first, in parallel.
_CHUNKS = 32
_CHUNK_ELEMENTS = 16_384
_SHORT = 16


@native
def columns_loop(block: Block) -> None:
    """output[o, r, k] = sum of data[o, s, k] over s <= r, in float64; for several k.

    Slots: number of columns o * k, sizes along and after the axis, output, data, offset of the
    first element and step along the axis.
    """
    size, behind = integer(block, 1), integer(block, 2)
    output, data = float32s(block, 3), float32s(block, 4)
    k, end = share(block, integer(block, 0))
    while k < end:
        before = k // behind
        within = k - before * behind
        count = min(end - k, behind - within)
        position = before * size * behind + within + integer(block, 5)
        scan_columns(output, data, position, count, integer(block, 6), size)
        k += count


@native
def lines_loop(block: Block) -> None:
    """output[o, r] = sum of data[o, s] over s <= r, computed by chunks of lines.

    Slots: number of lines o, elements of each, output, data, offset of a line's first element and
    step (1 or -1), chunks per line, elements per chunk, the sums before each chunk or address 0 for
    none.
    """
    size, output, data = integer(block, 1), float32s(block, 2), float32s(block, 3)
    step, chunks, length = integer(block, 5), integer(block, 6), integer(block, 7)
    totals = float64s(block, 8)
    # share() splits at multiples of 16, so each chunk counts as 16 elements.
    begin, end = share(block, integer(block, 0) * chunks * 16)
    for item in range(begin // 16, end // 16):
        line = item // chunks
        done = (item - line * chunks) * length
        position = line * size + integer(block, 4) + done * step
        total = 0.0
        if integer(block, 8) != 0:
            total = totals[item]
        scan_line(output, data, position, min(length, size - done), step, total)


@native
def short_lines_loop(block: Block) -> None:
    """Like `lines_loop`, with the same slots, for lines too short for vectors; sums in float32."""
    size, output, data = integer(block, 1), float32s(block, 2), float32s(block, 3)
    step = integer(block, 5)
    begin, end = share(block, integer(block, 0))
    for line in range(begin, end):
        at, total = line * size + integer(block, 4), np.float32(0)
        for _ in range(size):
            total += data[at]
            output[at] = total
            at += step


@native
def sums_loop(block: Block) -> None:
    """totals[o, p] = sum of chunk p of data[o]; same slots as `lines_loop`."""
    size, data, step = integer(block, 1), float32s(block, 3), integer(block, 5)
    chunks, length, totals = integer(block, 6), integer(block, 7), float64s(block, 8)
    begin, end = share(block, integer(block, 0) * chunks * 16)
    for item in range(begin // 16, end // 16):
        line = item // chunks
        done = (item - line * chunks) * length
        count = min(length, size - done)
        position = line * size + integer(block, 4) + done * step
        if step < 0:
            position -= count - 1
        totals[item] = reduced_run(0, 0.0, data, position, count, data[position], 0)


@native
def carry_loop(block: Block) -> None:
    """totals[line, chunk] = sum of the totals before it. Slots: lines, chunks, totals."""
    chunks, totals = integer(block, 1), float64s(block, 2)
    for line in range(integer(block, 0)):
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
            _parts(prop.parameters, data.shape, False, request.threads),
            (data.with_layout(PLAIN),),
            (output.with_layout(PLAIN),),
            request.requests,
            request.threads,
            flops=data.elements,
        )

    def prepare_backward(self, prop: AnyProperty, request: BackwardRequest) -> Kernel | None:
        """Prepare the cumulative sums of out_grad from the end."""
        assert isinstance(prop, CumsumProperty)
        (gradient,), (data,) = request.out_grad, request.in_grad
        assert isinstance(gradient, TensorSpec)
        return native_kernel(
            self.name,
            _parts(prop.parameters, data.shape, True, request.threads),
            (gradient.with_layout(PLAIN), None, None),
            (data.with_layout(PLAIN),),
            request.requests,
            request.threads,
            flops=data.elements,
        )


def _parts(
    parameters: CumsumParameters, shape: Shape, onward: bool, threads: int
) -> list[LoopPart]:
    """Return the loops of the cumulative sums, with `onward` from the end of the axis."""
    before, size, behind = parameters.views(shape)
    first, step = ((size - 1) * behind, -behind) if onward else (0, behind)
    team = team_for_elements(before * size * behind, threads)
    if behind > 1:
        columns = (before * behind, size, behind, target(0), source(0), first, step)
        return [LoopPart(columns_loop, columns, team)]
    parallel = 1 if before >= _CHUNKS else max(1, min(_CHUNKS, size // _CHUNK_ELEMENTS))
    length = -(-size // parallel)
    chunks = -(-size // length)
    slots = (before, size, target(0), source(0), first, step, chunks, length)
    if chunks == 1:
        loop = short_lines_loop if size < _SHORT else lines_loop
        return [LoopPart(loop, (*slots, 0), team)]
    nbytes = 8 * before * chunks
    return [
        LoopPart(sums_loop, slots, team, nbytes),
        LoopPart(carry_loop, (before, chunks), 1, nbytes),
        LoopPart(lines_loop, slots, team, nbytes),
    ]
