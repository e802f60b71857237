"""rotary_embedding: rotation of pairs of channels by angles that grow with the position."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import Annotated, Any, TypeVar

import numpy as np
import numpy.typing as npt
from pydantic import Field, model_validator

from mxrun.base.device import tasks_for_elements
from mxrun.base.dtype import BFLOAT16, FLOAT32
from mxrun.base.params import Int32, Parameters
from mxrun.base.tensor import PLAIN, Shape, TensorSpec
from mxrun.codegen.arguments import Arguments, Float32s, Floats, Integer
from mxrun.codegen.intrinsics import share
from mxrun.codegen.jit import native
from mxrun.codegen.vectors import (
    LANES,
    add_lanes,
    load_lanes,
    multiply_lanes,
    subtract_lanes,
)
from mxrun.operator.family import OperatorFamily
from mxrun.operator.incremental import IncrementalForm, SequenceArguments
from mxrun.operator.kernel import BackwardRequest, ForwardRequest, Kernel, OpReqType
from mxrun.operator.native_kernel import LoopPart, native_kernel, source, target
from mxrun.operator.operator import BackwardCall, ForwardCall, Operator
from mxrun.operator.property import InPlaceProperty, PartialInference, PartialShapes, Precision
from mxrun.operator.register import AnyProperty, Implementation, create, implement, register
from mxrun.operator.scalar import without_add_requests
from mxrun.operator.shape import ShapeContradiction, show, unify
from mxrun.ops.vector_stores import put_lanes

T = TypeVar("T")
Array = npt.NDArray[Any]
Count = Annotated[Int32, Field(ge=1)]


class RotaryEmbeddingParameters(Parameters):
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


@register("rotary_embedding")
class RotaryEmbeddingProperty(InPlaceProperty[RotaryEmbeddingParameters]):
    """Rotation of the pair (i, i + D / 2) of each head at position t by t * base^(-2 i / D).

    data, output [N, T, num_heads * D] with D even. For the pair (x, y) and the angle a the output
    is (x cos a - y sin a, y cos a + x sin a); the gradient is rotated back. Backward reads the
    output's gradient.
    """

    type_string = "rotary_embedding"
    family = OperatorFamily.ELEMENTWISE
    parameter_type = RotaryEmbeddingParameters
    precision = Precision.INHERIT
    is_floating = True

    def infer_shape(self, inputs: PartialShapes, outputs: PartialShapes) -> PartialInference:
        """Unify data and output."""
        data = unify("data", inputs[0], outputs[0], "output")
        if data is not None:
            data = unify("data", data, (None, None, None), "batch, positions and channels")
            if data[2] is not None and data[2] % (2 * self.parameters.num_heads):
                rule = f"a multiple of 2 * num_heads = {2 * self.parameters.num_heads} channels"
                raise ShapeContradiction("data", show(data), rule, "pairs of each head")
        return PartialInference([data], [data], [])

    def incremental(self, sequences: SequenceArguments) -> IncrementalForm[AnyProperty] | None:
        """Return the rotation at the run's positions."""
        if not sequences.counts_positions(0, axis=1):
            return None
        parameters = {**self.parameters.model_dump(), "length": sequences.length}
        return IncrementalForm(create("_present_rotary_embedding", parameters), 1)

    def declare_backward_dependency(
        self, out_grad: Sequence[T], in_data: Sequence[T], out_data: Sequence[T]
    ) -> list[T]:
        """Return out_grad."""
        return [out_grad[0]]

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
        call.store(output=self._rotated(call.inputs.data, 1))

    def backward(self, call: BackwardCall) -> None:
        """Gradient of data: the output's, rotated back."""
        call.store(data=self._rotated(call.output_gradients.output, -1))

    def _rotated(self, data: Array, direction: int) -> Array:
        p, (batch, positions, channels) = self.parameters, data.shape
        pairs = channels // (2 * p.num_heads)
        cosine, sine = (
            table.astype(data.dtype)[:, None] for table in rotations(positions, pairs, p.base)
        )
        result = data.reshape(batch, positions, p.num_heads, 2, pairs).copy()
        first, second = result[:, :, : p.rotated, 0].copy(), result[:, :, : p.rotated, 1].copy()
        result[:, :, : p.rotated, 0] = first * cosine - direction * (second * sine)
        result[:, :, : p.rotated, 1] = second * cosine + direction * (first * sine)
        rotated: Array = result.reshape(data.shape)
        return rotated


class PairRotation(Arguments):
    """Data [rows, heads, 2, pairs]; table [positions, 2, pairs]: cosines and sines.

    rotated: number of heads to rotate. is_added: whether the result is added to the output.
    """

    rows: Integer
    positions: Integer
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
    pairs = call.pairs
    # share() splits at multiples of 16, so each row counts as 16 elements.
    begin, end = share(call.rows * 16)
    for row in range(begin // 16, end // 16):
        cosines = row % call.positions * 2 * pairs
        at = row * call.heads * 2 * pairs
        for _ in range(call.rotated):
            for j in range(0, pairs, LANES):
                count = pairs - j
                first = load_lanes(call.data, at + j, count)
                second = load_lanes(call.data, at + pairs + j, count)
                cosine = load_lanes(call.table, cosines + j, count)
                sine = load_lanes(call.table, cosines + pairs + j, count)
                left = subtract_lanes(multiply_lanes(first, cosine), multiply_lanes(second, sine))
                right = add_lanes(multiply_lanes(second, cosine), multiply_lanes(first, sine))
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
        return self._kernel(prop, data, request, 1) if data.elements else None

    def prepare_backward(self, prop: AnyProperty, request: BackwardRequest) -> Kernel | None:
        """Prepare the rotation back."""
        return self._kernel(prop, request.in_grad[0], request, -1)

    def _kernel(
        self,
        prop: AnyProperty,
        spec: TensorSpec,
        request: ForwardRequest | BackwardRequest,
        direction: int,
    ) -> Kernel:
        p, spec, device = prop.parameters, spec.with_layout(PLAIN), request.device
        _, positions, channels = spec.shape
        pairs = channels // (2 * p.num_heads)
        cosine, sine = rotations(positions, pairs, p.base)
        arguments = PairRotation(
            rows=spec.elements // channels,
            positions=positions,
            heads=p.num_heads,
            rotated=p.rotated,
            pairs=pairs,
            table=np.stack([cosine, direction * sine], axis=1).astype(np.float32),
            data=source(0),
            output=target(0),
            is_added=int(request.requests[0] is OpReqType.ADD),
        )
        loop = rotation_loop.bfloat16 if spec.dtype == BFLOAT16 else rotation_loop
        further = 0 if isinstance(request, ForwardRequest) else 2
        return native_kernel(
            self.name,
            [LoopPart(loop, arguments, tasks_for_elements(spec.elements))],
            (spec, *(None,) * further),
            (spec,),
            without_add_requests(request.requests),
            device,
            flops=3 * spec.elements,
        )
