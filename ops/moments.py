"""moments: mean and variance over axes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from pydantic import Field

from mxrun.base.params import Parameters
from mxrun.base.tensor import PLAIN, Shape, TensorSpec
from mxrun.operator import scalar
from mxrun.operator.family import OperatorFamily
from mxrun.operator.kernel import BackwardRequest, ForwardRequest, Kernel, OpReqType
from mxrun.operator.native_kernel import KernelPart, native_kernel, source, target
from mxrun.operator.operator import BackwardCall, ForwardCall, Operator
from mxrun.operator.property import OperatorProperty, PartialInference, PartialShapes
from mxrun.operator.register import AnyProperty, Implementation, implement, register
from mxrun.operator.scalar import without_add_requests
from mxrun.operator.shape import unify
from mxrun.ops.chain import ChainPart, between
from mxrun.ops.reduce.loops import ReductionKind, reduce_part
from mxrun.ops.reduce.operator import (
    AxesOption,
    chosen_axes,
    in_remaining_order,
    reduction,
)
from mxrun.ops.strided_map import strided_part
from mxrun.ops.sums import count_of, mean_over

T = TypeVar("T")
# Scalar functions run on arrays and symbolic values.
Scalar = Any
Array = npt.NDArray[Any]


class MomentsParameters(Parameters):
    """Parameters of moments (MXNet's)."""

    axes: AxesOption = Field(
        default=None,
        description="Axes to reduce, negative from the end; default: all, as if empty (which MXNet "
        "rejects).",
    )
    keepdims: bool = Field(default=False, description="Retain the reduced axes with size 1.")

    def reduced(self, rank: int) -> tuple[int, ...]:
        """Return the axes to reduce for data of `rank` axes; raises ShapeContradiction."""
        return chosen_axes(self.axes, rank, "axes") if self.axes else tuple(range(rank))


@register("moments")
class MomentsProperty(OperatorProperty[MomentsParameters]):
    """mean = mean of data over the n elements along the axes; var = mean of (data - mean)^2.

    The gradient of data is (mean's gradient + 2 * var's gradient * (data - mean)) / n. Backward
    reads both gradients, data and mean.
    """

    type_string = "moments"
    family = OperatorFamily.REDUCTION
    parameter_type = MomentsParameters

    def list_outputs(self) -> tuple[str, ...]:
        """mean and var, both visible."""
        return ("mean", "var")

    def infer_shape(self, inputs: PartialShapes, outputs: PartialShapes) -> PartialInference:
        """Infer both outputs from data, and data's remaining axes from the outputs."""
        data = inputs[0]
        output = unify("var", outputs[1], outputs[0], "mean")
        if data is None:
            return PartialInference([data], [output, output], [])
        rank, keepdims = len(data), self.parameters.keepdims
        reduced = self.parameters.reduced(rank)
        output_axes = [axis for axis in range(rank) if keepdims or axis not in reduced]
        shape = tuple(1 if axis in reduced else data[axis] for axis in output_axes) or (1,)
        output = unify("mean", output, shape, "data and axes")
        sizes: list[int | None] = [None] * rank
        for axis, size in zip(output_axes, output, strict=False):
            sizes[axis] = None if axis in reduced else size
        data = unify("data", data, tuple(sizes), "mean")
        return PartialInference([data], [output, output], [])

    def declare_backward_dependency(
        self, out_grad: Sequence[T], in_data: Sequence[T], out_data: Sequence[T]
    ) -> list[T]:
        """Return both gradients, data and mean."""
        return [*out_grad, *in_data, out_data[0]]

    def flops(self, in_shapes: Sequence[Shape], out_shapes: Sequence[Shape]) -> int:
        """Four per element: an addition for the mean, three operations for the variance."""
        return 4 * math.prod(in_shapes[0])

    def create_operator(self) -> Operator:
        """Create the NumPy body."""
        return Moments(self.parameters)


class Moments(Operator):
    """NumPy body: two passes in float64."""

    def __init__(self, parameters: MomentsParameters) -> None:
        self.parameters = parameters

    def forward(self, call: ForwardCall) -> None:
        """mean = mean of data; var = mean of (data - mean)^2."""
        data = call.inputs.data
        axes = self.parameters.reduced(data.ndim)
        mean = mean_over(data.astype(np.float64), axes, keepdims=True)
        var = mean_over(np.square(data - mean), axes)
        shape = call.outputs.mean.shape
        call.store(
            mean=mean.reshape(shape).astype(data.dtype),
            var=var.reshape(shape).astype(data.dtype),
        )

    def backward(self, call: BackwardCall) -> None:
        """Gradient of data from both outputs' gradients; that of an unused output is absent."""
        if not call.is_requested("data"):
            return
        shape = call.input_gradients.data.shape
        axes, reduced_shape = reduction(self.parameters.reduced, shape)
        heads = call.output_gradients
        given = tuple(name in heads for name in ("mean", "var"))
        operands = [heads[i].reshape(reduced_shape) for i in range(2) if given[i]]
        if "var" in heads:
            operands += [call.inputs.data, call.outputs.mean.reshape(reduced_shape)]
        formula = _GRADIENTS[given]
        gradient = scalar.evaluate(formula, operands, [1 / max(count_of(shape, axes), 1)])
        call.store(data=np.broadcast_to(gradient, shape))


def _of_mean(mean_grad: Scalar, part: Scalar) -> Scalar:
    return mean_grad * part


def _of_var(var_grad: Scalar, data: Scalar, mean: Scalar, part: Scalar) -> Scalar:
    return var_grad * (2 * part) * (data - mean)


def _of_both(
    mean_grad: Scalar, var_grad: Scalar, data: Scalar, mean: Scalar, part: Scalar
) -> Scalar:
    return mean_grad * part + var_grad * (2 * part) * (data - mean)


# Keys: whether the gradients of mean and var are given. `part` is 1 / number of elements.
_GRADIENTS: dict[tuple[bool, ...], Callable[..., Scalar]] = {
    (True, False): _of_mean,
    (False, True): _of_var,
    (True, True): _of_both,
}
_MAPS = {
    given: scalar.compile(formula, parameters=("part",)) for given, formula in _GRADIENTS.items()
}


def _about_mean(square: Scalar, deviation: Scalar) -> Scalar:
    """Return the variance from the mean square and the mean of the deviations."""
    return scalar.maximum(square - deviation * deviation, 0.0)


_ABOUT_MEAN = scalar.compile(_about_mean)


@implement("moments", backend="jit")
class CompiledMoments(Implementation):
    """Three passes over data, and one for the gradient; sums as in the reduction operators.

    The mean is rounded to float32. If it is large compared with the deviations, the square of the
    rounding error would be part of the variance. The third pass computes that error: var = max(mean
    of (data - mean)^2 - (mean of (data - mean))^2, 0).
    """

    def prepare_forward(self, prop: AnyProperty, request: ForwardRequest) -> Kernel | None:
        """Prepare the mean, and the variance from the first two moments of the deviations."""
        assert isinstance(prop, MomentsProperty)
        (data,), device = request.inputs, request.device
        if data.dtype != "float32" or not data.elements:
            return None
        axes = prop.parameters.reduced(len(data.shape))
        data = in_remaining_order(data, axes)
        count = float(count_of(data.shape, axes))
        requested_outputs = [requested is not OpReqType.NULL for requested in request.requests]
        mean, deviation = target(0) if requested_outputs[0] else between(0), between(1)
        operand = (source(0), data)
        parts: list[KernelPart] = [
            reduce_part(ReductionKind.SUM, mean, operand, axes, device, count)
        ]
        if requested_outputs[1]:
            for kind, slot in (
                (ReductionKind.SQUARED_DEVIATIONS, target(1)),
                (ReductionKind.DEVIATIONS, deviation),
            ):
                parts.append(reduce_part(kind, slot, operand, axes, device, count, mean))
            moments, elements = [target(1), deviation], request.outputs[1].elements
            parts.append(_ABOUT_MEAN.part(target(1), moments, elements, device=device))
        return native_kernel(
            self.name,
            [ChainPart(tuple(parts), (request.outputs[0].nbytes,) * 2)],
            (data,),
            tuple(spec.with_layout(PLAIN) for spec in request.outputs),
            request.requests,
            device,
            flops=4 * data.elements,
        )

    def prepare_backward(self, prop: AnyProperty, request: BackwardRequest) -> Kernel | None:
        """Prepare the gradient, in one pass."""
        assert isinstance(prop, MomentsProperty)
        data = request.in_grad[0].with_layout(PLAIN)
        axes, reduced_shape = reduction(prop.parameters.reduced, data.shape)
        reduced = TensorSpec(reduced_shape)
        heads = tuple(head is not None for head in request.out_grad)
        read: list[TensorSpec | None] = [reduced if given else None for given in heads]
        read += [data, reduced] if heads[1] else [None, None]
        given = (*request.out_grad, data, request.out_data[0])
        part = strided_part(
            _MAPS[heads],
            [target(0)],
            data,
            [(source(place), spec) for place, spec in enumerate(read) if spec is not None],
            request.device,
            [1 / count_of(data.shape, axes)],
            request.requests,
        )
        plain = (None if spec is None else spec.with_layout(PLAIN) for spec in given)
        inputs = (own and spec for own, spec in zip(read, plain, strict=True))
        return native_kernel(
            self.name,
            [part],
            (*inputs, None),
            (data,),
            without_add_requests(request.requests),
            request.device,
            flops=4 * data.elements,
        )
