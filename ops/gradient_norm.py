"""Gradient norms and the scale factors that limit them.

Sums of squares are computed in float64 over fixed blocks of elements, and the blocks' sums are
added in order: the result depends neither on the tasks nor on concurrent work.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
from pydantic import Field

from mxrun.base.params import Int32, NotNegative, Parameters
from mxrun.base.tensor import Shape
from mxrun.codegen.arguments import Arguments, Float32s, Float64s, Integer, Real
from mxrun.codegen.intrinsics import each
from mxrun.codegen.jit import native
from mxrun.codegen.loops import rows_of_task
from mxrun.operator.kernel import ForwardRequest, Kernel
from mxrun.operator.native_kernel import LoopPart, Scratch, Slot, source, target
from mxrun.operator.operator import ForwardCall, Operator
from mxrun.operator.property import GradientKind, OperatorProperty, PartialInference, PartialShapes
from mxrun.operator.register import AnyProperty, implement, register
from mxrun.operator.shape import unify
from mxrun.ops.forward_only import ForwardOnlyImplementation

Array = npt.NDArray[Any]

# A block of 4,096 elements is summed in 64 interleaved lanes: additions to a single sum depend on
# each other, but adjacent lanes can be vectorised.
_CHUNK = 4096
_LANES = 64
_FLOAT64_BYTES = 8


def sums(count: int) -> int:
    """Return the number of partial sums for `count` elements."""
    return -(-count // _CHUNK) * _LANES


def sums_bytes(count: int) -> int:
    """Return the size in bytes of the partial sums of `count` elements."""
    return sums(count) * _FLOAT64_BYTES


def sum_of_squares(values: Array) -> float:
    """Return the sum of squares in float64, where the square of a float32 is exact."""
    flat = values.ravel().astype(np.float64)
    return float(np.dot(flat, flat))


class SquareSums(Arguments):
    """Arguments of `square_sums_loop`: sums is [blocks, lanes]; size is that of a block."""

    count: Integer
    data: Float32s
    sums: Float64s
    size: Integer
    lanes: Integer


@native
def square_sums_loop(call: SquareSums) -> None:
    """sums[block, lane] = sum of data[i]^2 over every `lanes`-th element of a block."""
    count, data, size, lanes = call.count, call.data, call.size, call.lanes
    for chunk in rows_of_task((count + size - 1) // size):
        own, first, last = chunk * lanes, chunk * size, min(count, chunk * size + size)
        for lane in each(0, lanes):
            call.sums[own + lane] = 0.0
        rows = (last - first) // lanes
        for row in range(rows):
            start = first + row * lanes
            for lane in each(0, lanes):
                value = np.float64(data[start + lane])
                call.sums[own + lane] += value * value
        start = first + rows * lanes
        for lane in each(0, last - start):
            value = np.float64(data[start + lane])
            call.sums[own + lane] += value * value


def square_sums(
    count: int, data: Slot | Scratch, partial: Scratch, tasks: int, scratch_bytes: int
) -> LoopPart:
    """Return the part that computes the partial sums of `data`."""
    squares = SquareSums(count=count, data=data, sums=partial, size=_CHUNK, lanes=_LANES)
    return LoopPart(square_sums_loop, squares, tasks, scratch_bytes)


class GlobalNormScaleParameters(Parameters):
    """Parameters of _global_norm_scale."""

    num_args: Annotated[Int32, Field(ge=1)] = Field(
        description="Number of gradients.", examples=[2]
    )
    max_norm: NotNegative = Field(
        description="Maximum norm: gradients with a larger norm are scaled down to it.",
        examples=[1.0],
    )


@register("_global_norm_scale")
class GlobalNormScaleProperty(OperatorProperty[GlobalNormScaleParameters]):
    """output = gradient_scale * min(1, max_norm / (norm + 1e-8)), norm = |gradient_scale| *
    sqrt(sum of all grads^2).

    The gradients have any shapes; gradient_scale, their factor before the clipping, and output are
    of shape [1]. The minimum is the factor of gluon.utils.clip_global_norm. The output is NaN if
    the norm is not finite. No gradient.
    """

    type_string = "_global_norm_scale"
    parameter_type = GlobalNormScaleParameters
    is_internal = True

    def list_arguments(self) -> tuple[str, ...]:
        """grad0, grad1, ..., gradient_scale."""
        grads = (f"grad{index}" for index in range(self.parameters.num_args))
        return (*grads, "gradient_scale")

    def infer_shape(self, inputs: PartialShapes, outputs: PartialShapes) -> PartialInference:
        """Set the shape of both scales to [1]; the gradients may have any shapes."""
        *grads, scale = inputs
        scale = unify("gradient_scale", scale, (1,), "one number")
        output = unify("output", outputs[0], (1,), "one number")
        return PartialInference([*grads, scale], [output], [])

    def list_gradients(self) -> tuple[GradientKind, ...]:
        """No input has a gradient."""
        return (GradientKind.NONE,) * len(self.list_arguments())

    def flops(self, in_shapes: Sequence[Shape], out_shapes: Sequence[Shape]) -> int:
        """One product and one sum per element of a gradient."""
        return 2 * sum(math.prod(shape) for shape in in_shapes[:-1])

    def create_operator(self) -> Operator:
        """Create the NumPy body."""
        return GlobalNormScale(self.parameters)


class GlobalNormScale(Operator):
    """NumPy body; squares in float64."""

    def __init__(self, parameters: GlobalNormScaleParameters) -> None:
        self._parameters = parameters

    def forward(self, call: ForwardCall) -> None:
        """output = gradient_scale * min(1, max_norm / (norm + 1e-8))."""
        *grads, given = call.inputs
        norm = abs(float(given[0])) * math.sqrt(math.fsum(map(sum_of_squares, grads)))
        largest = self._parameters.max_norm
        factor = min(1.0, largest / (norm + 1e-8)) if math.isfinite(norm) else math.nan
        call.store(output=given * given.dtype.type(factor))


class NormScale(Arguments):
    """Arguments of `norm_scale_loop`; count is the number of partial sums."""

    count: Integer
    sums: Float64s
    scale: Float32s
    output: Float32s
    max_norm: Real


@native
def norm_scale_loop(call: NormScale) -> None:
    """output = scale * min(1, max_norm / (norm + 1e-8)), from partial sums of all gradients."""
    total = 0.0
    for k in range(call.count):
        total += call.sums[k]
    norm = math.sqrt(total) * abs(np.float64(call.scale[0]))
    factor = min(1.0, np.float64(call.max_norm) / (norm + 1e-8))
    call.output[0] = call.scale[0] * np.float32(factor + (norm - norm))


@implement("_global_norm_scale", backend="jit")
class CompiledGlobalNormScale(ForwardOnlyImplementation):
    """Partial sums of every gradient, then one loop over these sums."""

    def prepare_forward(self, prop: AnyProperty, request: ForwardRequest) -> Kernel | None:
        """Prepare the scale of plain float32 gradients."""
        if any(spec.dtype != "float32" for spec in request.inputs):
            return None
        counts = [spec.elements for spec in request.inputs[:-1]]
        scratch_bytes = sum(map(sums_bytes, counts))
        parts, offset = [], 0
        for index, count in enumerate(counts):
            tasks = request.device.tasks_for_elements(count)
            partial = Scratch(offset)
            parts.append(square_sums(count, source(index), partial, tasks, scratch_bytes))
            offset += sums_bytes(count)
        scale = NormScale(
            count=offset // _FLOAT64_BYTES,
            sums=Scratch(),
            scale=source(len(counts)),
            output=target(0),
            max_norm=float(prop.parameters.max_norm),
        )
        last = LoopPart(norm_scale_loop, scale, 1, scratch_bytes)
        return self.plain_kernel(prop, request, [*parts, last])
