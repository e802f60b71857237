"""Incremental forms of the position operators: at the positions of the present run."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from mxrun.base.dtype import BFLOAT16, FLOAT32
from mxrun.base.params import Parameters
from mxrun.base.tensor import PLAIN, Shape
from mxrun.codegen.arguments import Arguments, Float32s, Floats, Int32s, Integer
from mxrun.codegen.jit import NativeFunction, native
from mxrun.codegen.vectors import (
    LANES,
    add_lanes,
    load_lanes,
    multiply_lanes,
    store_lanes,
    subtract_lanes,
)
from mxrun.operator.incremental import POSITION
from mxrun.operator.kernel import ForwardRequest, Kernel, OpReqType
from mxrun.operator.native_kernel import LoopPart, source, target
from mxrun.operator.operator import ForwardCall, Operator
from mxrun.operator.property import (
    GradientKind,
    InPlaceProperty,
    PartialInference,
    PartialShapes,
    PartialType,
    Precision,
)
from mxrun.operator.register import AnyProperty, implement, register
from mxrun.operator.shape import ShapeContradiction, show, unify
from mxrun.ops.forward_only import ForwardOnlyImplementation
from mxrun.ops.rotary_embedding import RotaryEmbeddingParameters, rotations


class _PresentPosition(InPlaceProperty[Any]):
    """Operator on data [N, T, C], whose first position its last argument gives, int32 [1]."""

    precision = Precision.INHERIT
    is_internal = True

    def infer_shape(self, inputs: PartialShapes, outputs: PartialShapes) -> PartialInference:
        """Unify data and output."""
        data = unify("data", inputs[0], outputs[0], "output")
        data = unify("data", data, (None, None, None), "batch, positions and channels")
        position = unify(POSITION, inputs[-1], (1,), "one number")
        return PartialInference([data, *inputs[1:-1], position], [data], [])

    def example_shapes(self, sample: Shape) -> PartialShapes:
        """Return the shapes of an example whose position may be 0 or 1."""
        if len(sample) != len("NTC"):
            return []
        return self._example(*sample)

    @abstractmethod
    def _example(self, batch: int, positions: int, channels: int) -> PartialShapes:
        """Return the shapes of an example of some sizes."""

    def infer_type(
        self, inputs: list[PartialType], outputs: list[PartialType]
    ) -> tuple[list[PartialType], list[PartialType]]:
        """All tensors have one dtype, but the position is int32."""
        common = next((dtype for dtype in (*inputs[:-1], *outputs) if dtype is not None), None)
        return [*(dtype or common for dtype in inputs[:-1]), "int32"], [outputs[0] or common]

    def list_gradients(self) -> tuple[GradientKind, ...]:
        """No input has a gradient."""
        return (GradientKind.NONE,) * len(self.list_arguments())

    def flops(self, in_shapes: Sequence[Shape], out_shapes: Sequence[Shape]) -> int:
        """Three per element, as for a rotation."""
        return 3 * math.prod(in_shapes[0])


class PresentPositionEmbeddingParameters(Parameters):
    """Parameters of _present_position_embedding: none."""


@register("_present_position_embedding")
class PresentPositionEmbeddingProperty(_PresentPosition):
    """output[n, t, :] = data[n, t, :] + weight[position + t, :]; no gradient.

    data, output [N, T, C]; weight [length, C]; position + T is at most length.
    """

    type_string = "_present_position_embedding"
    parameter_type = PresentPositionEmbeddingParameters

    def list_arguments(self) -> tuple[str, ...]:
        """data, weight and position."""
        return ("data", "weight", POSITION)

    def infer_shape(self, inputs: PartialShapes, outputs: PartialShapes) -> PartialInference:
        """Unify data and output, and data's channels with the weight's columns."""
        data, weight, position = super().infer_shape(inputs, outputs).inputs
        weight = unify("weight", weight, (None, None if data is None else data[2]), "channels")
        data = unify("data", data, (None, None, weight[1]), "the weight's columns")
        return PartialInference([data, weight, position], [data], [])

    def _example(self, batch: int, positions: int, channels: int) -> PartialShapes:
        return [(batch, positions, channels), (positions + 1, channels), (1,)]

    def create_operator(self) -> Operator:
        """Create the NumPy body."""
        return PresentPositionEmbedding()


class PresentPositionEmbedding(Operator):
    """NumPy body."""

    def forward(self, call: ForwardCall) -> None:
        """output = data + weight[position : position + T]."""
        data, first = call.inputs.data, int(call.inputs.position[0])
        call.store(output=data + call.inputs.weight[first : first + data.shape[1]])


class PresentRotationParameters(RotaryEmbeddingParameters):
    """Parameters of _present_rotary_embedding: those of rotary_embedding, and the length."""

    length: Annotated[int, Field(ge=1)] = Field(
        description="Number of positions of which angles are stored.", examples=[16]
    )


@register("_present_rotary_embedding")
class PresentRotationProperty(_PresentPosition):
    """rotary_embedding of data [N, T, num_heads * D] at the positions from `position` on.

    position + T is at most `length`. No gradient.
    """

    type_string = "_present_rotary_embedding"
    parameter_type = PresentRotationParameters

    def list_arguments(self) -> tuple[str, ...]:
        """data and position."""
        return ("data", POSITION)

    def infer_shape(self, inputs: PartialShapes, outputs: PartialShapes) -> PartialInference:
        """Unify data and output; each head has pairs of channels, and the positions are stored."""
        p, found = self.parameters, super().infer_shape(inputs, outputs)
        _, positions, channels = found.outputs[0] or (None, None, None)
        if channels is not None and channels % (2 * p.num_heads):
            rule = f"a multiple of 2 * num_heads = {2 * p.num_heads} channels"
            raise ShapeContradiction("data", show(found.outputs[0]), rule, "pairs of each head")
        if positions is not None and positions > p.length:
            rule = f"at most {p.length} positions"
            raise ShapeContradiction("data", show(found.outputs[0]), rule, "length")
        return found

    def _example(self, batch: int, positions: int, channels: int) -> PartialShapes:
        p = self.parameters
        return [(batch, min(positions, p.length - 1), 2 * p.num_heads * channels), (1,)]

    def create_operator(self) -> Operator:
        """Create the NumPy body."""
        return PresentRotation(self.parameters)


class PresentRotation(Operator):
    """NumPy body."""

    def __init__(self, parameters: PresentRotationParameters) -> None:
        self.parameters = parameters

    def forward(self, call: ForwardCall) -> None:
        """output = data, of which the rotated heads are rotated."""
        p, data, at = self.parameters, call.inputs.data, int(call.inputs.position[0])
        batch, positions, channels = data.shape
        pairs = channels // (2 * p.num_heads)
        cosine, sine = (
            table[at : at + positions].astype(data.dtype)[:, None]
            for table in rotations(p.length, pairs, p.base)
        )
        result = data.reshape(batch, positions, p.num_heads, 2, pairs).copy()
        rotated = result[:, :, : p.rotated]
        first, second = rotated[..., 0, :].copy(), rotated[..., 1, :].copy()
        rotated[..., 0, :] = first * cosine - second * sine
        rotated[..., 1, :] = second * cosine + first * sine
        call.store(output=result.reshape(data.shape))


class PresentSum(Arguments):
    """Data [rows, positions, columns]; each position's row of the weight is added to it."""

    rows: Integer
    positions: Integer
    columns: Integer
    position: Int32s
    data: Floats
    weight: Float32s
    output: Floats


@native
def present_sum_loop(call: PresentSum) -> None:
    """output[n, t, :] = data[n, t, :] + weight[position + t, :]; it may overwrite data."""
    columns = call.columns
    for row in range(call.rows * call.positions):
        at = row * columns
        own = (np.int64(call.position[0]) + row % call.positions) * columns
        for j in range(0, columns, LANES):
            count = columns - j
            value = load_lanes(call.data, at + j, count)
            value = add_lanes(value, load_lanes(call.weight, own + j, count))
            store_lanes(call.output, at + j, value, count)


class PresentPairs(Arguments):
    """Data [rows, positions, heads, 2, pairs]; table [length, 2, pairs]: cosines and sines."""

    rows: Integer
    positions: Integer
    heads: Integer
    rotated: Integer
    pairs: Integer
    position: Int32s
    table: Float32s
    data: Floats
    output: Floats


@native
def present_rotation_loop(call: PresentPairs) -> None:
    """Rotate the pairs of the first heads and copy the others; the output may overwrite data."""
    pairs = call.pairs
    for head in range(call.rows * call.positions * call.heads):
        at = head * 2 * pairs
        own = (np.int64(call.position[0]) + head // call.heads % call.positions) * 2 * pairs
        for j in range(0, pairs, LANES):
            count = pairs - j
            first = load_lanes(call.data, at + j, count)
            second = load_lanes(call.data, at + pairs + j, count)
            low, high = first, second
            if head % call.heads < call.rotated:
                cosine = load_lanes(call.table, own + j, count)
                sine = load_lanes(call.table, own + pairs + j, count)
                low = subtract_lanes(multiply_lanes(first, cosine), multiply_lanes(second, sine))
                high = add_lanes(multiply_lanes(second, cosine), multiply_lanes(first, sine))
            store_lanes(call.output, at + j, low, count)
            store_lanes(call.output, at + pairs + j, high, count)


class _OnePass(ForwardOnlyImplementation):
    """Loop over float32 or bfloat16 data on one thread: it is few positions of each sequence."""

    def kernel(
        self, prop: AnyProperty, request: ForwardRequest, loop: NativeFunction, call: Arguments
    ) -> Kernel | None:
        """Return the kernel of the loop; None for other dtypes and add-to requests."""
        dtype, output = request.inputs[0].dtype, request.outputs[0].dtype
        if dtype not in (FLOAT32, BFLOAT16) or output != dtype or OpReqType.ADD in request.requests:
            return None
        chosen = loop.bfloat16 if dtype == BFLOAT16 else loop
        return self.plain_kernel(prop, request, [LoopPart(chosen, call, 1)])


@implement("_present_position_embedding", backend="jit")
class CompiledPresentPositionEmbedding(_OnePass):
    """One sum."""

    def prepare_forward(self, prop: AnyProperty, request: ForwardRequest) -> Kernel | None:
        """Prepare the sum with a float32 weight."""
        rows, positions, columns = request.inputs[0].with_layout(PLAIN).shape
        call = PresentSum(
            rows=rows,
            positions=positions,
            columns=columns,
            position=source(2),
            data=source(0),
            weight=source(1),
            output=target(0),
        )
        is_served = request.inputs[1].dtype == FLOAT32
        return self.kernel(prop, request, present_sum_loop, call) if is_served else None


@implement("_present_rotary_embedding", backend="jit")
class CompiledPresentRotation(_OnePass):
    """One rotation, with a table of all angles."""

    def prepare_forward(self, prop: AnyProperty, request: ForwardRequest) -> Kernel | None:
        """Prepare the rotation."""
        p, data = prop.parameters, request.inputs[0].with_layout(PLAIN)
        rows, positions, channels = data.shape
        pairs = channels // (2 * p.num_heads)
        cosine, sine = rotations(p.length, pairs, p.base)
        call = PresentPairs(
            rows=rows,
            positions=positions,
            heads=p.num_heads,
            rotated=p.rotated,
            pairs=pairs,
            position=source(1),
            table=np.stack([cosine, sine], axis=1).astype(np.float32),
            data=source(0),
            output=target(0),
        )
        return self.kernel(prop, request, present_rotation_loop, call)
