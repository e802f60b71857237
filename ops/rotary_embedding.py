"""rotary_embedding: rotation of pairs of channels by angles that grow with the position."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import Annotated, Any, TypeVar

import numpy as np
import numpy.typing as npt
from pydantic import Field, model_validator

from mxrun.base.dtype import BFLOAT16, FLOAT32
from mxrun.base.params import Int32
from mxrun.base.tensor import PLAIN, Shape, TensorSpec
from mxrun.codegen.arguments import Arguments, Float32s, Floats, Int32s, Integer
from mxrun.codegen.jit import native
from mxrun.codegen.loops import rows_of_task
from mxrun.codegen.vectors import (
    LANES,
    add_lanes,
    load_lanes,
    multiply_lanes,
    subtract_lanes,
)
from mxrun.operator.family import OperatorFamily
from mxrun.operator.incremental import POSITION, IncrementalForm, SequenceArguments
from mxrun.operator.kernel import BackwardRequest, ForwardRequest, Kernel, OpReqType
from mxrun.operator.native_kernel import LoopPart, native_kernel, source, target
from mxrun.operator.operator import BackwardCall, ForwardCall, Operator, OperatorCall
from mxrun.operator.property import InPlaceProperty, PartialInference, PartialShapes, Precision
from mxrun.operator.register import AnyProperty, Implementation, implement, register
from mxrun.operator.scalar import without_add_requests
from mxrun.operator.shape import ShapeContradiction, show, unify
from mxrun.ops.positions import (
    PositionParameters,
    first_position,
    given_position,
    require_positions,
)
from mxrun.ops.vector_stores import put_lanes

T = TypeVar("T")
Array = npt.NDArray[Any]
Count = Annotated[Int32, Field(ge=1)]


class RotaryEmbeddingParameters(PositionParameters):
    """Parameters of rotary_embedding."""

    num_heads: Count = Field(description="Number of heads, side by side in a row.", examples=[2])
    rotated_heads: Count | None = Field(
        default=None,
        description="Number of heads to rotate, from the first on; the others are copied, as the "
        "values of packed queries, keys and values; default: all.",
    )
    base: float = Field(
        default=10000.0,
        gt=0,
        description="Base of the angles' geometric sequence over the pairs of a head.",
    )

    @model_validator(mode="after")
    def _rotates_heads_that_exist(self) -> RotaryEmbeddingParameters:
        if self.rotated_heads is not None and self.rotated_heads > self.num_heads:
            raise ValueError(f"rotated_heads is above num_heads = {self.num_heads}")
        return self

    @property
    def rotated(self) -> int:
        """Number of heads to rotate."""
        return self.num_heads if self.rotated_heads is None else self.rotated_heads

    def angles(self, positions: int) -> int:
        """Return the number of positions whose angles are stored."""
        return self.max_length if self.use_position else positions


@register("rotary_embedding")
class RotaryEmbeddingProperty(InPlaceProperty[RotaryEmbeddingParameters]):
    """Rotation of the pair (i, i + D / 2) of each head at position t by t * base^(-2 i / D).

    data, output [N, T, num_heads * D] with D even; position [1], with use_position: t of the first
    of the T positions, at most max_length - T. For the pair (x, y) and the angle a the output is
    (x cos a - y sin a, y cos a + x sin a); the gradient is rotated back. Backward reads the
    output's gradient and the position.
    """

    type_string = "rotary_embedding"
    family = OperatorFamily.ELEMENTWISE
    parameter_type = RotaryEmbeddingParameters
    precision = Precision.INHERIT
    is_floating = True
    integer_arguments = (POSITION,)

    def list_arguments(self) -> tuple[str, ...]:
        """data, and the position if used."""
        return ("data", *self.parameters.positions)

    def infer_shape(self, inputs: PartialShapes, outputs: PartialShapes) -> PartialInference:
        """Unify data and output."""
        p, data = self.parameters, unify("data", inputs[0], outputs[0], "output")
        position = [unify(POSITION, given, (1,), "one number") for given in inputs[1:]]
        if data is not None:
            data = unify("data", data, (None, None, None), "batch, positions and channels")
            if data[2] is not None and data[2] % (2 * p.num_heads):
                rule = f"a multiple of 2 * num_heads = {2 * p.num_heads} channels"
                raise ShapeContradiction("data", show(data), rule, "pairs of each head")
            if p.use_position:
                require_positions("data", data, p.max_length)
        return PartialInference([data, *position], [data], [])

    def incremental(self, sequences: SequenceArguments) -> IncrementalForm[AnyProperty] | None:
        """Return the rotation from the run's position on."""
        if self.parameters.use_position or not sequences.counts_positions(0, axis=1):
            return None
        changes = {"use_position": True, "max_length": sequences.length}
        return IncrementalForm(type(self)(self.parameters.model_copy(update=changes)), 1)

    def declare_backward_dependency(
        self, out_grad: Sequence[T], in_data: Sequence[T], out_data: Sequence[T]
    ) -> list[T]:
        """Return out_grad and the position."""
        return [out_grad[0], *in_data[1:]]

    def flops(self, in_shapes: Sequence[Shape], out_shapes: Sequence[Shape]) -> int:
        """Three per element: two products and a sum."""
        return 3 * math.prod(in_shapes[0])

    def create_operator(self) -> Operator:
        """Create the NumPy body."""
        return RotaryEmbedding(self.parameters)


@cache
def rotations(positions: int, pairs: int, base: float) -> tuple[Array, Array]:
    """Return cosines and sines [positions, pairs] in float64; do not write to them."""
    slopes = base ** (-np.arange(pairs) / pairs)
    angles = np.arange(positions)[:, None] * slopes
    return np.cos(angles), np.sin(angles)


class RotaryEmbedding(Operator):
    """NumPy body."""

    def __init__(self, parameters: RotaryEmbeddingParameters) -> None:
        self.parameters = parameters

    def forward(self, call: ForwardCall) -> None:
        """output = data, rotated."""
        call.store(output=self._rotated(call, call.inputs.data, 1))

    def backward(self, call: BackwardCall) -> None:
        """Gradient of data: the output's, rotated back."""
        call.store(data=self._rotated(call, call.output_gradients.output, -1))

    def _rotated(self, call: OperatorCall, data: Array, direction: int) -> Array:
        p, (batch, positions, channels) = self.parameters, data.shape
        pairs, first = channels // (2 * p.num_heads), given_position(call, positions, p.max_length)
        cosine, sine = (
            table[first : first + positions].astype(data.dtype)[:, None]
            for table in rotations(p.angles(positions), pairs, p.base)
        )
        result = data.reshape(batch, positions, p.num_heads, 2, pairs).copy()
        first, second = result[:, :, : p.rotated, 0].copy(), result[:, :, : p.rotated, 1].copy()
        result[:, :, : p.rotated, 0] = first * cosine - direction * (second * sine)
        result[:, :, : p.rotated, 1] = second * cosine + direction * (first * sine)
        rotated: Array = result.reshape(data.shape)
        return rotated


class PairRotation(Arguments):
    """Data [rows, heads, 2, pairs]; table [length, 2, pairs]: cosines and sines.

    position: first row of the table; None for 0. rotated: number of heads to rotate. is_added:
    whether the result is added to the output.
    """

    rows: Integer
    positions: Integer
    length: Integer
    position: Int32s
    heads: Integer
    rotated: Integer
    pairs: Integer
    table: Float32s
    data: Floats
    output: Floats
    is_added: Integer


@native
def rotation_loop(call: PairRotation) -> None:
    """output = rotated heads, then the others as they are; it may overwrite data."""
    pairs, first = call.pairs, first_position(call.position, call.positions, call.length)
    for row in rows_of_task(call.rows):
        cosines = (first + row % call.positions) * 2 * pairs
        at = row * call.heads * 2 * pairs
        for _ in range(call.rotated):
            for j in range(0, pairs, LANES):
                count = pairs - j
                x = load_lanes(call.data, at + j, count)
                y = load_lanes(call.data, at + pairs + j, count)
                cosine = load_lanes(call.table, cosines + j, count)
                sine = load_lanes(call.table, cosines + pairs + j, count)
                left = subtract_lanes(multiply_lanes(x, cosine), multiply_lanes(y, sine))
                right = add_lanes(multiply_lanes(y, cosine), multiply_lanes(x, sine))
                put_lanes(call.output, at + j, left, count, call.is_added != 0)
                put_lanes(call.output, at + pairs + j, right, count, call.is_added != 0)
            at += 2 * pairs
        rest = (call.heads - call.rotated) * 2 * pairs
        for j in range(0, rest, LANES):
            value = load_lanes(call.data, at + j, rest - j)
            put_lanes(call.output, at + j, value, rest - j, call.is_added != 0)


@implement("rotary_embedding", backend="jit")
class CompiledRotaryEmbedding(Implementation):
    """One pass over float32 or bfloat16 data, with a table of constants."""

    def prepare_forward(self, prop: AnyProperty, request: ForwardRequest) -> Kernel | None:
        """Prepare the rotation."""
        data, output = request.inputs[0], request.outputs[0]
        if data.dtype not in (FLOAT32, BFLOAT16) or output.dtype != data.dtype:
            return None
        inputs = (data.with_layout(PLAIN), *request.inputs[1:])
        return self._kernel(prop, inputs, (inputs[0],), request, 1) if data.elements else None

    def prepare_backward(self, prop: AnyProperty, request: BackwardRequest) -> Kernel | None:
        """Prepare the rotation back."""
        data, *others = request.in_grad
        data = data.with_layout(PLAIN)
        inputs = (data, None, *request.in_data[1:], None)
        return self._kernel(prop, inputs, (data, *others), request, -1)

    def _kernel(
        self,
        prop: AnyProperty,
        inputs: tuple[TensorSpec | None, ...],
        outputs: tuple[TensorSpec, ...],
        request: ForwardRequest | BackwardRequest,
        direction: int,
    ) -> Kernel:
        p, spec = prop.parameters, outputs[0]
        _, positions, channels = spec.shape
        pairs, length = channels // (2 * p.num_heads), p.angles(positions)
        cosine, sine = rotations(length, pairs, p.base)
        arguments = PairRotation(
            rows=spec.elements // channels,
            positions=positions,
            length=length,
            position=source(1 if direction > 0 else 2) if p.use_position else None,
            heads=p.num_heads,
            rotated=p.rotated,
            pairs=pairs,
            table=np.stack([cosine, direction * sine], axis=1).astype(np.float32),
            data=source(0),
            output=target(0),
            is_added=int(request.requests[0] is OpReqType.ADD),
        )
        loop = rotation_loop.bfloat16 if spec.dtype == BFLOAT16 else rotation_loop
        return native_kernel(
            self.name,
            [LoopPart(loop, arguments, request.device.tasks_for_elements(spec.elements))],
            inputs,
            outputs,
            without_add_requests(request.requests),
            request.device,
            flops=3 * spec.elements,
        )
