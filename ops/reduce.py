"""Reductions over some or all axes: sum, mean and maximum."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, TypeVar

import numpy as np
import numpy.typing as npt
from pydantic import BeforeValidator, Field, WithJsonSchema

from mxrun.base.params import Parameters
from mxrun.base.tensor import PLAIN, PartialShape, Shape, TensorSpec
from mxrun.operator.kernel import BackwardRequest, ForwardRequest, Kernel, OpReqType
from mxrun.operator.native_kernel import native_kernel, source, target
from mxrun.operator.operator import OpContext, Operator, assign, need
from mxrun.operator.property import Inferred, OperatorProperty, PartialShapes
from mxrun.operator.register import AnyProperty, Implementation, implement, register
from mxrun.operator.shape import ShapeContradiction, unify
from mxrun.operator.tensor import Tensor
from mxrun.ops.strided import Map, Reduction, map_part, reduce_part, same_order, unpacked

T = TypeVar("T")
Array = npt.NDArray[Any]


def _as_axes(value: object) -> object:
    """One axis may stand for a tuple of one."""
    is_axis = isinstance(value, int) and not isinstance(value, bool)
    return (value,) if is_axis else value


_AXES_SCHEMA = {
    "anyOf": [
        {"type": "integer"},
        {"type": "array", "items": {"type": "integer"}},
        {"type": "null"},
    ]
}


class ReduceParameters(Parameters):
    """Parameters of the reductions (MXNet's)."""

    axis: Annotated[
        tuple[int, ...] | None, BeforeValidator(_as_axes), WithJsonSchema(_AXES_SCHEMA)
    ] = Field(
        default=None,
        description="The axis or axes to reduce, counted from the end where negative; all where "
        "left out or empty.",
    )
    keepdims: bool = Field(
        default=False, description="Keep the reduced axes, with one element each."
    )
    exclude: bool = Field(default=False, description="Reduce all axes but those given.")

    def reduced(self, rank: int) -> tuple[int, ...]:
        """The axes to reduce of data with `rank` axes; raises ShapeContradiction."""
        if not self.axis:
            return tuple(range(rank))
        chosen = {axis + rank if axis < 0 else axis for axis in self.axis}
        if len(chosen) < len(self.axis) or not chosen <= set(range(rank)):
            expected = f"different axes of {rank}"
            raise ShapeContradiction("data", f"axis {list(self.axis)}", expected, "axis")
        return tuple(axis for axis in range(rank) if (axis in chosen) != self.exclude)


@dataclass(frozen=True)
class ReduceRule:
    """What becomes of the elements along the reduced axes, and of the gradient.

    formula: NumPy's function of (data, axis, keepdims). mean: whether the result is divided by how
    many they are. selects: the gradient goes to the elements that equal the output.
    """

    formula: Callable[..., Array]
    compiled: Reduction
    mean: bool = False
    selects: bool = False


class ReduceProperty(OperatorProperty[ReduceParameters]):
    """output = data reduced over the axes, which vanish unless keepdims; a full reduction's shape
    is [1].
    """

    parameter_type = ReduceParameters
    rule: ClassVar[ReduceRule]

    def infer_shape(self, inputs: PartialShapes, outputs: PartialShapes) -> Inferred:
        """The output from data; of data, the kept axes from the output."""
        data, output = inputs[0], outputs[0]
        if data is None:
            return Inferred([data], [output], [])
        reduced = self.parameters.reduced(len(data))
        shape: PartialShape = self._kept(data, reduced)
        output = unify("output", output, shape, "data and axis")
        if output is not None and len(output) == len(self._kept_axes(len(data), reduced)):
            sizes: list[int | None] = [None] * len(data)
            for axis, size in zip(self._kept_axes(len(data), reduced), output, strict=True):
                sizes[axis] = None if axis in reduced else size
            data = unify("data", data, tuple(sizes), "output")
        return Inferred([data], [output], [])

    def _kept_axes(self, rank: int, reduced: Sequence[int]) -> tuple[int, ...]:
        """Which of data's axes the output's are."""
        return tuple(
            axis for axis in range(rank) if self.parameters.keepdims or axis not in reduced
        )

    def _kept(self, data: tuple[int | None, ...], reduced: Sequence[int]) -> PartialShape:
        kept = self._kept_axes(len(data), reduced)
        return tuple(1 if axis in reduced else data[axis] for axis in kept) or (1,)

    def declare_backward_dependency(
        self, out_grad: Sequence[T], in_data: Sequence[T], out_data: Sequence[T]
    ) -> list[T]:
        """out_grad; a selection also reads data and output."""
        return [out_grad[0], *((in_data[0], out_data[0]) if self.rule.selects else ())]

    def flops(self, in_shapes: Sequence[Shape], out_shapes: Sequence[Shape]) -> int:
        """One per element of data."""
        return math.prod(in_shapes[0])

    def create_operator(self) -> Operator:
        """NumPy's reduction."""
        return Reduce(self.parameters, self.rule)


class Reduce(Operator):
    """NumPy's reduction with the axes kept, which is what gradients are spread from."""

    def __init__(self, parameters: ReduceParameters, rule: ReduceRule) -> None:
        self.parameters, self.rule = parameters, rule

    def forward(
        self,
        context: OpContext,
        in_data: Sequence[Tensor],
        req: Sequence[OpReqType],
        out_data: Sequence[Tensor],
        aux_states: Sequence[Tensor],
    ) -> None:
        """output = data reduced."""
        data = in_data[0].array
        axes = self.parameters.reduced(data.ndim)
        reduced = self.rule.formula(data, axis=axes, keepdims=True)
        assign(out_data[0], req[0], reduced.reshape(out_data[0].shape))

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
        """out_grad repeated: divided by the count for a mean, at all maxima for a maximum."""
        if in_grad[0] is None:
            return
        shape = in_grad[0].shape
        axes = self.parameters.reduced(len(shape))
        kept = tuple(1 if axis in axes else size for axis, size in enumerate(shape))
        gradient = np.broadcast_to(need(out_grad[0]).reshape(kept), shape)
        if self.rule.mean:
            gradient = gradient / gradient.dtype.type(count_of(shape, axes))
        if self.rule.selects:
            chosen = need(in_data[0]) == need(out_data[0]).reshape(kept)
            gradient = np.where(chosen, gradient, gradient.dtype.type(0))
        assign(in_grad[0], req[0], gradient)


def count_of(shape: Shape, axes: Sequence[int]) -> int:
    """How many elements of `shape` each output of a reduction over `axes` is made of."""
    return math.prod(shape[axis] for axis in axes)


@register("sum", "sum_axis")
class SumProperty(ReduceProperty):
    """output = sum of data over the axes. Backward reads the output's gradient only."""

    type_string = "sum"
    rule = ReduceRule(np.sum, Reduction.SUM)


@register("mean")
class MeanProperty(ReduceProperty):
    """output = mean of data over the axes. Backward reads the output's gradient only."""

    type_string = "mean"
    rule = ReduceRule(np.mean, Reduction.SUM, mean=True)


@register("max", "max_axis")
class MaxProperty(ReduceProperty):
    """output = maximum of data over the axes; all elements that equal it get its whole gradient,
    as in MXNet. Backward reads the output's gradient, data and output.
    """

    type_string = "max"
    rule = ReduceRule(np.max, Reduction.MAX, selects=True)


@implement("sum", "mean", "max", backend="jit")
class CompiledReduce(Implementation):
    """One pass in float32, over plain data or any whose kept axes lie in order."""

    def prepare_forward(self, prop: AnyProperty, request: ForwardRequest) -> Kernel | None:
        """The reduction, one output by one thread."""
        assert isinstance(prop, ReduceProperty)
        (data,) = request.inputs
        if OpReqType.NULL in request.requests or data.dtype != "float32" or not data.elements:
            return None
        axes = prop.parameters.reduced(len(data.shape))
        data = unpacked(data)
        if not same_order(data, axes):
            data = data.laid_out(PLAIN)
        divisor = float(count_of(data.shape, axes)) if prop.rule.mean else 1.0
        operand = (source(0), data)
        return native_kernel(
            self.name,
            [reduce_part(prop.rule.compiled, target(0), operand, axes, request.threads, divisor)],
            (data,),
            (request.outputs[0].laid_out(PLAIN),),
            request.requests,
            request.threads,
            flops=data.elements,
        )

    def prepare_backward(self, prop: AnyProperty, request: BackwardRequest) -> Kernel | None:
        """out_grad spread over data's shape."""
        assert isinstance(prop, ReduceProperty)
        (gradient,), (data,) = request.out_grad, request.in_grad
        assert gradient is not None
        data, gradient = data.laid_out(PLAIN), gradient.laid_out(PLAIN)
        axes = prop.parameters.reduced(len(data.shape))
        kept = TensorSpec(tuple(1 if axis in axes else n for axis, n in enumerate(data.shape)))
        operands = [(source(0), kept)]
        if prop.rule.selects:
            operands += [(source(1), data), (source(2), kept)]
        part = map_part(
            Map.WHERE_EQUAL if prop.rule.selects else Map.SCALE,
            (target(0), data),
            operands,
            request.threads,
            1 / count_of(data.shape, axes) if prop.rule.mean else 1.0,
        )
        return native_kernel(
            self.name,
            [part],
            (gradient, data, gradient) if prop.rule.selects else (gradient, None, None),
            (data,),
            request.requests,
            request.threads,
            flops=data.elements,
        )
