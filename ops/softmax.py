"""softmax and log_softmax along one axis."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar, TypeVar

import numpy as np
import numpy.typing as npt
from pydantic import Field, field_validator

from mxrun.backend.onednn import operations
from mxrun.backend.onednn.descriptor import strides_of
from mxrun.backend.onednn.primitive import Argument
from mxrun.backend.team import team_for_elements
from mxrun.base.params import Float32, Parameters
from mxrun.base.tensor import PLAIN, Shape, TensorSpec, unpacked
from mxrun.operator import scalar
from mxrun.operator.kernel import BackwardRequest, ForwardRequest, Kernel, OpReqType
from mxrun.operator.native_kernel import (
    KernelPart,
    PrimitivePart,
    Slot,
    native_kernel,
    onednn_serves,
    source,
    target,
)
from mxrun.operator.operator import BackwardCall, ForwardCall, Operator
from mxrun.operator.property import InPlaceProperty, PartialInference, PartialShapes, same_shape
from mxrun.operator.register import AnyProperty, Implementation, implement, register
from mxrun.operator.shape import ShapeContradiction, show
from mxrun.ops.chain import ChainPart, between
from mxrun.ops.strided_map import permuted_part

T = TypeVar("T")
Array = npt.NDArray[Any]

_QUOTIENT = scalar.compile(lambda data, divisor: data / divisor, parameters=("divisor",))


class SoftmaxParameters(Parameters):
    """Parameters of softmax and log_softmax (MXNet's)."""

    axis: int = Field(default=-1, description="Axis of the classes; negative from the end.")
    temperature: Float32 | None = Field(
        default=None, description="Divisor of data before the softmax; default 1."
    )

    @field_validator("temperature")
    @classmethod
    def _not_zero(cls, value: float | None) -> float | None:
        if value == 0:
            raise ValueError("temperature is a divisor and cannot be 0")
        return value


class SoftmaxProperty(InPlaceProperty[SoftmaxParameters]):
    """Common part of softmax and log_softmax. Backward reads the output and its gradient."""

    parameter_type = SoftmaxParameters
    is_floating = True
    logarithm: ClassVar[bool]

    def infer_shape(self, inputs: PartialShapes, outputs: PartialShapes) -> PartialInference:
        """Unify data and output, and check that `axis` exists."""
        data, output = same_shape(("data", "output"), [*inputs, *outputs], "softmax")
        axis = self.parameters.axis
        if data is not None and not -len(data) <= axis < len(data):
            raise ShapeContradiction("data", show(data), "a shape with that axis", f"axis {axis}")
        return PartialInference([data], [output], [])

    def declare_backward_dependency(
        self, out_grad: Sequence[T], in_data: Sequence[T], out_data: Sequence[T]
    ) -> list[T]:
        """Return out_grad and output."""
        return [out_grad[0], out_data[0]]

    def flops(self, in_shapes: Sequence[Shape], out_shapes: Sequence[Shape]) -> int:
        """Five per element: maximum, subtraction, exponential, sum and division."""
        return 5 * math.prod(in_shapes[0])

    def create_operator(self) -> Operator:
        """Create the NumPy body."""
        return Softmax(self.parameters, self.logarithm)


@register("softmax")
class PlainSoftmax(SoftmaxProperty):
    """output = exp(x - max x) / sum of exp(x - max x) along the axis, x = data / temperature.

    The gradient of data is output * (grad - sum of grad * output) / temperature. Backward reads the
    output and its gradient.
    """

    type_string = "softmax"
    logarithm = False


@register("log_softmax")
class LogSoftmax(SoftmaxProperty):
    """output = x - max x - log(sum of exp(x - max x)) along the axis, x = data / temperature.

    The gradient of data is (grad - exp(output) * sum of grad) / temperature. Backward reads the
    output and its gradient.
    """

    type_string = "log_softmax"
    logarithm = True


class Softmax(Operator):
    """NumPy body: numerically stable softmax or its logarithm."""

    def __init__(self, parameters: SoftmaxParameters, logarithm: bool) -> None:
        self.axis, self.temperature = parameters.axis, parameters.temperature or 1.0
        self.logarithm = logarithm

    def forward(self, call: ForwardCall) -> None:
        """output = softmax of data / temperature, or its logarithm."""
        data = call.inputs.data
        # A difference of -inf correctly gives probability 0; inf - inf gives NaN.
        with np.errstate(over="ignore", invalid="ignore"):
            scaled = data / data.dtype.type(self.temperature)
            scaled -= scaled.max(axis=self.axis, keepdims=True)
            exponential = np.exp(scaled)
        total = exponential.sum(axis=self.axis, keepdims=True)
        result = scaled - np.log(total) if self.logarithm else exponential / total
        call.store(output=result)

    def backward(self, call: BackwardCall) -> None:
        """Gradient of data, as given in the property."""
        gradient, output = call.output_gradients.output, call.outputs.output
        if self.logarithm:
            result = gradient - np.exp(output) * gradient.sum(axis=self.axis, keepdims=True)
        else:
            inner = (gradient * output).sum(axis=self.axis, keepdims=True)
            result = output * (gradient - inner)
        call.store(data=result / output.dtype.type(self.temperature))


@implement("softmax", "log_softmax", backend="onednn")
class OnednnSoftmax(Implementation):
    """oneDNN's softmax of rows; another axis is transposed to the last one in memory and back.

    oneDNN's code for other axes is a slow reference: 3.3 against 0.1 ms for 8 x 16 x 20 x 20.
    """

    def prepare_forward(self, prop: AnyProperty, request: ForwardRequest) -> Kernel | None:
        """Prepare data / temperature in rows, then their softmax in place."""
        assert isinstance(prop, SoftmaxProperty)
        if not onednn_serves(*request.inputs) or OpReqType.NULL in request.requests:
            return None
        data, permutation = _rows(request.inputs[0], prop.parameters.axis)
        rows = _matrix(data, prop.parameters.axis)
        team = team_for_elements(data.elements, request.threads)
        softmax = operations.softmax_forward(rows, 1, team, prop.logarithm)
        temperature = prop.parameters.temperature or 1.0
        parts: list[KernelPart] = []
        place, read = target(0), source(0)
        if permutation:
            place = read = between(0)
            parts.append(permuted_part(place, source(0), data.shape, permutation, request.threads))
        if temperature != 1:
            parts.append(_divided(place, read, data, temperature, request.threads))
            read = place
        parts.append(PrimitivePart(softmax, {Argument.SOURCE: read, Argument.OUTPUT: place}))
        if permutation:
            parts.append(_back(place, data, permutation, request.threads))
        return native_kernel(
            f"onednn:{softmax.implementation}",
            [ChainPart(tuple(parts), (data.nbytes,) if permutation else ())],
            (data,),
            (data,),
            request.requests,
            request.threads,
            flops=5 * data.elements,
        )

    def prepare_backward(self, prop: AnyProperty, request: BackwardRequest) -> Kernel | None:
        """Prepare the gradient in rows, then its division by the temperature in place."""
        assert isinstance(prop, SoftmaxProperty)
        (given,) = request.out_data
        assert given is not None
        output, permutation = _rows(given, prop.parameters.axis)
        rows = _matrix(output, prop.parameters.axis)
        threads = request.threads
        softmax = operations.softmax_backward(
            rows, 1, team_for_elements(output.elements, threads), prop.logarithm
        )
        temperature = prop.parameters.temperature or 1.0
        parts: list[KernelPart] = []
        place, gradient, read = target(0), source(0), source(2)
        if permutation:
            place, gradient, read = between(0), between(0), between(1)
            for slot, original in ((gradient, source(0)), (read, source(2))):
                parts.append(permuted_part(slot, original, output.shape, permutation, threads))
        slots = {
            Argument.OUTPUT_GRAD: gradient,
            Argument.OUTPUT: read,
            Argument.SOURCE_GRAD: place,
        }
        parts.append(PrimitivePart(softmax, slots))
        if temperature != 1:
            parts.append(_divided(place, place, output, temperature, threads))
        if permutation:
            parts.append(_back(place, output, permutation, threads))
        return native_kernel(
            f"onednn:{softmax.implementation}",
            [ChainPart(tuple(parts), (output.nbytes,) * 2 if permutation else ())],
            (output, None, output),
            (output,),
            request.requests,
            threads,
            flops=4 * output.elements,
        )


def _rows(spec: TensorSpec, axis: int) -> tuple[TensorSpec, tuple[int, ...]]:
    """Return the spec to read and the order of axes that makes `axis` the last in memory.

    The order is empty if `axis` already is the last.
    """
    spec = unpacked(spec)
    axis %= len(spec.shape)
    for candidate in (spec, spec.with_layout(PLAIN)):
        if strides_of(candidate.shape, candidate.layout)[axis] == 1:
            return candidate, ()
    others = tuple(other for other in range(len(spec.shape)) if other != axis)
    return spec.with_layout(PLAIN), (*others, axis)


def _matrix(spec: TensorSpec, axis: int) -> TensorSpec:
    classes = spec.shape[axis]
    return TensorSpec((spec.elements // classes, classes))


def _divided(
    output: Slot, data: Slot, spec: TensorSpec, temperature: float, threads: int
) -> KernelPart:
    """Return output = data / temperature, both in one layout."""
    return _QUOTIENT.part(output, [data], spec.elements, [temperature], threads=threads)


def _back(rows: Slot, spec: TensorSpec, permutation: tuple[int, ...], threads: int) -> KernelPart:
    """Return output = rows with their axes in the original order."""
    shape = tuple(spec.shape[axis] for axis in permutation)
    order = [permutation.index(axis) for axis in range(len(shape))]
    return permuted_part(target(0), rows, shape, order, threads)
