"""Reductions over some or all axes: sums, means, products, extremes and norms."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Annotated, Any, ClassVar, TypeVar

import numpy as np
import numpy.typing as npt
from pydantic import BeforeValidator, Field, WithJsonSchema

from mxrun.base.params import Parameters
from mxrun.base.tensor import PLAIN, PartialShape, Shape, TensorSpec, unpacked
from mxrun.operator import scalar
from mxrun.operator.family import OperatorFamily
from mxrun.operator.incremental import SequenceArguments, shared_axis
from mxrun.operator.kernel import BackwardRequest, ForwardRequest, Kernel, OpReqType
from mxrun.operator.native_kernel import KernelPart, native_kernel, source, target
from mxrun.operator.operator import BackwardCall, ForwardCall, Operator
from mxrun.operator.property import OperatorProperty, PartialInference, PartialShapes
from mxrun.operator.register import AnyProperty, Implementation, implement, register
from mxrun.operator.scalar import without_add_requests
from mxrun.operator.shape import ShapeContradiction, unify
from mxrun.ops.chain import ChainPart, between
from mxrun.ops.reduce import functions
from mxrun.ops.reduce.loops import reduce_part
from mxrun.ops.strided import same_order
from mxrun.ops.strided_map import strided_part
from mxrun.ops.sums import count_of

T = TypeVar("T")
Array = npt.NDArray[Any]


def as_axes(value: object) -> object:
    """Convert a single axis to a tuple."""
    is_axis = isinstance(value, int) and not isinstance(value, bool)
    return (value,) if is_axis else value


AXES_SCHEMA = {
    "anyOf": [
        {"type": "integer"},
        {"type": "array", "items": {"type": "integer"}},
        {"type": "null"},
    ]
}


# None or an empty tuple means all axes.
AxesOption = Annotated[
    tuple[int, ...] | None, BeforeValidator(as_axes), WithJsonSchema(AXES_SCHEMA)
]


class AxisParameters(Parameters):
    """Axes that an operator reduces, and whether they remain."""

    axis: AxesOption = Field(
        default=None,
        description="Axis or axes to reduce, negative from the end; default: all, as if empty.",
    )
    keepdims: bool = Field(default=False, description="Retain the reduced axes with size 1.")

    def reduced(self, rank: int) -> tuple[int, ...]:
        """Return the axes to reduce for data of `rank` axes; raises ShapeContradiction."""
        return chosen_axes(self.axis, rank) if self.axis else tuple(range(rank))


class ReduceParameters(AxisParameters):
    """Parameters of the reductions (MXNet's)."""

    exclude: bool = Field(default=False, description="Reduce all axes except the given ones.")

    def reduced(self, rank: int) -> tuple[int, ...]:
        """Return the axes to reduce for data of `rank` axes; raises ShapeContradiction."""
        chosen = super().reduced(rank)
        if not (self.exclude and self.axis):
            return chosen
        return tuple(axis for axis in range(rank) if axis not in chosen)


class NormParameters(AxisParameters):
    """Parameters of norm (MXNet's, except out_dtype, which on its CPU must equal data's dtype)."""

    ord: int = Field(
        default=2,
        ge=1,
        le=2,
        description="1: sum of magnitudes; 2: square root of the sum of squares.",
    )


def chosen_axes(axes: Sequence[int], rank: int, name: str = "axis") -> tuple[int, ...]:
    """Return `axes` of `rank` in order, counted from 0; raises ShapeContradiction."""
    chosen = {axis + rank if axis < 0 else axis for axis in axes}
    if len(chosen) < len(axes) or not chosen <= set(range(rank)):
        raise ShapeContradiction("data", f"{name} {list(axes)}", f"different axes of {rank}", name)
    return tuple(sorted(chosen))


class ReduceProperty(OperatorProperty[AxisParameters]):
    """output = data reduced over the axes, which are removed unless keepdims.

    The output of a reduction over all axes has shape [1].
    """

    family = OperatorFamily.REDUCTION
    parameter_type: ClassVar[type[AxisParameters]] = ReduceParameters
    reduction: ClassVar[functions.ReductionFunctions]

    @property
    def rule(self) -> functions.ReductionFunctions:
        """Reduction and gradient for these parameters."""
        return self.reduction

    def infer_shape(self, inputs: PartialShapes, outputs: PartialShapes) -> PartialInference:
        """Infer the output from data, and data's remaining axes from the output."""
        data, output = inputs[0], outputs[0]
        if data is None:
            return PartialInference([data], [output], [])
        reduced = self.parameters.reduced(len(data))
        shape: PartialShape = self._output_shape(data, reduced)
        output = unify("output", output, shape, "data and axis")
        if output is not None and len(output) == len(self._output_axes(len(data), reduced)):
            sizes: list[int | None] = [None] * len(data)
            for axis, size in zip(self._output_axes(len(data), reduced), output, strict=True):
                sizes[axis] = None if axis in reduced else size
            data = unify("data", data, tuple(sizes), "output")
        return PartialInference([data], [output], [])

    def _output_axes(self, rank: int, reduced: Sequence[int]) -> tuple[int, ...]:
        """Return the axes of data that the output has."""
        return tuple(
            axis for axis in range(rank) if self.parameters.keepdims or axis not in reduced
        )

    def _output_shape(self, data: tuple[int | None, ...], reduced: Sequence[int]) -> PartialShape:
        axes = self._output_axes(len(data), reduced)
        return tuple(1 if axis in reduced else data[axis] for axis in axes) or (1,)

    def position_axis(self, sequences: SequenceArguments) -> int | None:
        """That of data, unless it is reduced along it."""
        rank = len(sequences.shapes[0])
        kept = self._output_axes(rank, self.parameters.reduced(rank))
        axis = shared_axis(sequences.axes)
        is_kept = axis in kept and axis not in self.parameters.reduced(rank)
        return kept.index(axis) if axis is not None and is_kept else None

    def declare_backward_dependency(
        self, out_grad: Sequence[T], in_data: Sequence[T], out_data: Sequence[T]
    ) -> list[T]:
        """Return out_grad and the tensors that the gradient reads."""
        rule = self.rule
        return [*out_grad, *in_data[: rule.reads], *(out_data if rule.reads_output else ())]

    def flops(self, in_shapes: Sequence[Shape], out_shapes: Sequence[Shape]) -> int:
        """One per element of data."""
        return math.prod(in_shapes[0])

    def create_operator(self) -> Operator:
        """Create the NumPy body."""
        return Reduce(self.parameters, self.rule)


class Reduce(Operator):
    """NumPy body; retains the reduced axes with size 1, from which gradients are broadcast."""

    def __init__(self, parameters: AxisParameters, rule: functions.ReductionFunctions) -> None:
        self.parameters, self.rule = parameters, rule

    def forward(self, call: ForwardCall) -> None:
        """output = data reduced over the axes."""
        data = call.inputs.data
        axes = self.parameters.reduced(data.ndim)
        reduced = self.rule.formula(data, axes, True)
        call.store(output=reduced.reshape(call.outputs.output.shape))

    def backward(self, call: BackwardCall) -> None:
        """Gradient of data: the rule's, of tensors broadcast along the reduced axes."""
        if not call.is_requested("data"):
            return
        shape = call.input_gradients.data.shape
        axes, reduced_shape = reduction(self.parameters.reduced, shape)
        rule, heads = self.rule, [call.output_gradients.output.reshape(reduced_shape)]
        output = [call.outputs.output.reshape(reduced_shape)] if rule.reads_output else []
        if rule.head is not None:
            further = [formula(call.inputs.data, axes, True) for formula, _ in rule.further]
            found = scalar.evaluate(rule.head, [*heads, *(further or output)])
            heads = list(found) if isinstance(found, tuple) else [found]
        operands = [np.broadcast_to(head, shape) for head in heads]
        if rule.reads:
            operands.append(call.inputs.data)
        operands += output[: max(rule.reads - 1, 0)]
        parameters = rule.parameters(count_of(shape, axes))
        call.store(data=scalar.evaluate(rule.gradient, operands, parameters))


def reduction(
    reduced: Callable[[int], tuple[int, ...]], shape: Shape
) -> tuple[tuple[int, ...], Shape]:
    """Return the axes that `reduced` chooses from a rank, and `shape` with size 1 for them."""
    axes = reduced(len(shape))
    return axes, tuple(1 if axis in axes else size for axis, size in enumerate(shape))


def in_remaining_order(data: TensorSpec, axes: Sequence[int]) -> TensorSpec:
    """Return data in its own layout if that allows a reduction over `axes`, else plain."""
    data = unpacked(data)
    return data if same_order(data, axes) else data.with_layout(PLAIN)


@register("sum", "sum_axis", foreign={"sum: {axis: 1}": "reducesum"})
class SumProperty(ReduceProperty):
    """output = sum of data over the axes. Backward reads only the output's gradient, which is the
    gradient of every summed element.
    """

    type_string = "sum"
    reduction = functions.SUM


@register("mean", foreign={"mean: {axis: 1}": "reducemean"})
class MeanProperty(ReduceProperty):
    """output = mean of data over the axes. Backward reads only the output's gradient: the gradient
    of data is out_grad / number of averaged elements.
    """

    type_string = "mean"
    reduction = functions.MEAN


@register("prod")
class ProdProperty(ReduceProperty):
    """output = product of data over the axes. The gradient of an element is out_grad times the
    product of the other elements, also where it is 0 (MXNet: NaN). Backward reads the output's
    gradient and data.
    """

    type_string = "prod"
    reduction = functions.PRODUCT


@register("nansum")
class NanSumProperty(ReduceProperty):
    """output = sum of data over the axes without NaN elements. The gradient of data is out_grad,
    and 0 for NaN. Backward reads the output's gradient and data.
    """

    type_string = "nansum"
    reduction = functions.SUM_WITHOUT_NAN


@register("nanprod")
class NanProductProperty(ReduceProperty):
    """output = product of data over the axes without NaN elements. The gradient of an element is
    out_grad times the product of the others, also where it is 0 (MXNet: NaN), and 0 for NaN.
    Backward reads the output's gradient and data.
    """

    type_string = "nanprod"
    reduction = functions.PRODUCT_WITHOUT_NAN


@register("max", "max_axis", foreign={"max: {axis: 1}": "reducemax"})
class MaxProperty(ReduceProperty):
    """output = maximum of data over the axes. The gradient of data is out_grad for every element
    that equals the maximum, as in MXNet, else 0. Backward reads the output's gradient, data and
    output.
    """

    type_string = "max"
    reduction = functions.MAXIMUM


@register("min", "min_axis", foreign={"min: {axis: 1}": "reducemin"})
class MinProperty(ReduceProperty):
    """output = minimum of data over the axes. The gradient of data is out_grad for every element
    that equals the minimum, as in MXNet, else 0. Backward reads the output's gradient, data and
    output.
    """

    type_string = "min"
    reduction = functions.MINIMUM


@register("norm")
class NormProperty(ReduceProperty):
    """output = sum of |data| (ord 1) or square root of the sum of data^2 (ord 2) over the axes.

    The gradient of data is out_grad * sign(data), 0 for NaN (ord 1), or out_grad * data / output,
    and 0 where output is 0, which MXNet divides by (ord 2). Backward reads the output's gradient,
    data and, for ord 2, output.
    """

    type_string = "norm"
    parameter_type = NormParameters

    @property
    def rule(self) -> functions.ReductionFunctions:
        """Reduction and gradient for ord."""
        assert isinstance(self.parameters, NormParameters)
        if self.parameters.ord == 1:
            return functions.MAGNITUDES
        return functions.ROOT_OF_SQUARES


@implement("sum", "mean", "prod", "nansum", "nanprod", "max", "min", "norm", backend="jit")
class CompiledReduce(Implementation):
    """Compiled float32 reductions of plain data, or of a layout with remaining axes in order."""

    def prepare_forward(self, prop: AnyProperty, request: ForwardRequest) -> Kernel | None:
        """Prepare the reduction, in the stages that its shape requires."""
        assert isinstance(prop, ReduceProperty)
        (data,) = request.inputs
        if OpReqType.NULL in request.requests or data.dtype != "float32" or not data.elements:
            return None
        axes = prop.parameters.reduced(len(data.shape))
        data = in_remaining_order(data, axes)
        divisor = float(count_of(data.shape, axes)) if prop.rule.mean else 1.0
        operand = (source(0), data)
        return native_kernel(
            self.name,
            [reduce_part(prop.rule.compiled, target(0), operand, axes, request.device, divisor)],
            (data,),
            (request.outputs[0].with_layout(PLAIN),),
            request.requests,
            request.device,
            flops=data.elements,
        )

    def prepare_backward(self, prop: AnyProperty, request: BackwardRequest) -> Kernel | None:
        """Prepare the gradient, in one pass."""
        assert isinstance(prop, ReduceProperty)
        (gradient,), (data,) = request.out_grad, request.in_grad
        assert gradient is not None
        data, gradient = data.with_layout(PLAIN), gradient.with_layout(PLAIN)
        rule, (axes, reduced_shape) = prop.rule, reduction(prop.parameters.reduced, data.shape)
        reduced = TensorSpec(reduced_shape)
        device, heads, parts, scratch = request.device, [source(0)], list[KernelPart](), 0
        if (head := rule.compiled_head) is not None:
            heads = [between(index) for index in range(len(head.results))]
            further = [between(len(heads) + index) for index in range(len(rule.further))]
            for slot, (_, kind) in zip(further, rule.further, strict=True):
                parts.append(reduce_part(kind, slot, (source(1), data), axes, device))
            scratch = len(heads) + len(further)
            sides, written = [source(0), *(further or [source(2)])], (OpReqType.WRITE,) * len(heads)
            parts.append(
                head.multi_output_part(
                    heads, sides, gradient.elements, device=device, requests=written
                )
            )
        part = strided_part(
            rule.compiled_gradient,
            [target(0)],
            data,
            [
                *((head, reduced) for head in heads),
                *[(source(1), data), (source(2), reduced)][: rule.reads],
            ],
            device,
            rule.parameters(count_of(data.shape, axes)),
            request.requests,
        )
        return native_kernel(
            self.name,
            [ChainPart((*parts, part), (gradient.nbytes,) * scratch)],
            (gradient, data if rule.reads else None, gradient if rule.reads_output else None),
            (data,),
            without_add_requests(request.requests),
            device,
            flops=data.elements,
        )
