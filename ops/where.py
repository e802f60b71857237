"""where: elements of one of two tensors, as a third says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from mxrun.base.params import Parameters
from mxrun.base.tensor import PLAIN, TensorSpec
from mxrun.operator import scalar
from mxrun.operator.kernel import BackwardRequest, ForwardRequest, Kernel, OpReqType
from mxrun.operator.native_kernel import native_kernel, source, target
from mxrun.operator.operator import OpContext, Operator, assign, require_array
from mxrun.operator.property import (
    GradientKind,
    OperatorProperty,
    PartialInference,
    PartialShapes,
    PartialType,
    same_shape,
)
from mxrun.operator.register import AnyProperty, Implementation, implement, register
from mxrun.operator.scalar import written
from mxrun.operator.shape import unify
from mxrun.operator.simple_entry import Array
from mxrun.operator.tensor import Tensor
from mxrun.ops.strided import joint_layout
from mxrun.ops.strided_map import served, strided_part

T = TypeVar("T")
Scalar = Any


def chosen(condition: Scalar, x: Scalar, y: Scalar) -> Scalar:
    """x where the condition is not 0, else y."""
    return scalar.where(condition != 0, x, y)


def gradient_of_x(gradient: Scalar, condition: Scalar) -> Scalar:
    """The gradient where x was taken."""
    return scalar.where(condition != 0, gradient, 0.0)


def gradient_of_y(gradient: Scalar, condition: Scalar) -> Scalar:
    """The gradient where y was taken."""
    return scalar.where(condition != 0, 0.0, gradient)


_FORWARD = scalar.compile(chosen)
# Of (out_grad, condition), for x and for y.
_GRADIENTS = (gradient_of_x, gradient_of_y)
_BACKWARD = tuple(scalar.compile(gradient) for gradient in _GRADIENTS)


class WhereParameters(Parameters):
    """where has no parameters."""


@register("where", "_sparse_where")
class WhereProperty(OperatorProperty[WhereParameters]):
    """output = x where condition is not 0, else y; NaN is not 0.

    x, y and output have one shape. condition has it too, or has one axis, x's first, and chooses
    whole rows; no gradient reaches it, and its element type is its own. Backward reads condition
    and the output's gradient.
    """

    type_string = "where"
    parameter_type = WhereParameters

    def list_arguments(self) -> tuple[str, ...]:
        """condition, x and y."""
        return ("condition", "x", "y")

    def list_gradients(self) -> tuple[GradientKind, ...]:
        """condition's is zero everywhere."""
        return (GradientKind.ZERO, GradientKind.COMPUTES, GradientKind.COMPUTES)

    def infer_shape(self, inputs: PartialShapes, outputs: PartialShapes) -> PartialInference:
        """All of one shape; of a condition with one axis, that axis."""
        condition, *sides = inputs
        common = same_shape(("x", "y", "output"), [*sides, *outputs], "where")[0]
        if condition is not None and len(condition) != 1:
            rule = "the shape of x, or one axis of its first size"
            condition = common = unify("condition", condition, common, rule)
        elif condition is not None and common is not None:
            rule = "the first size of x"
            first = unify("condition", condition, common[:1], rule)
            condition, common = first, (*first, *common[1:])
        return PartialInference([condition, common, common], [common], [])

    def infer_type(
        self, inputs: list[PartialType], outputs: list[PartialType]
    ) -> tuple[list[PartialType], list[PartialType]]:
        """x, y and output share one; the condition has its own."""
        condition, *sides = inputs
        common = next((dtype for dtype in (*sides, *outputs) if dtype is not None), None)
        return [condition, *(dtype or common for dtype in sides)], [outputs[0] or common]

    def declare_backward_dependency(
        self, out_grad: Sequence[T], in_data: Sequence[T], out_data: Sequence[T]
    ) -> list[T]:
        """out_grad and condition."""
        return [out_grad[0], in_data[0]]

    def forward_inplace_option(
        self, in_data: Sequence[T], out_data: Sequence[T]
    ) -> list[tuple[T, T]]:
        """The output over x or y."""
        return [(in_data[1], out_data[0]), (in_data[2], out_data[0])]

    def backward_inplace_option(
        self,
        out_grad: Sequence[T],
        in_data: Sequence[T],
        out_data: Sequence[T],
        in_grad: Sequence[T],
    ) -> list[tuple[T, T]]:
        """x's gradient, which is computed last, over the output's."""
        return [(out_grad[0], in_grad[1])]

    def create_operator(self) -> Operator:
        """NumPy's where."""
        return Where()


def _wide(condition: tuple[int, ...], shape: tuple[int, ...]) -> tuple[int, ...]:
    """The condition's shape with an axis for each of x."""
    return condition + (1,) * (len(shape) - len(condition))


def _beside(condition: Array, shape: tuple[int, ...]) -> Array:
    """The condition as it broadcasts to x's shape."""
    return condition.reshape(_wide(condition.shape, shape))


class Where(Operator):
    """Choices of NumPy's."""

    def forward(
        self,
        context: OpContext,
        in_data: Sequence[Tensor],
        req: Sequence[OpReqType],
        out_data: Sequence[Tensor],
        aux_states: Sequence[Tensor],
    ) -> None:
        """output = x where condition is not 0, else y."""
        condition, x, y = (tensor.array for tensor in in_data)
        assign(out_data[0], req[0], chosen(_beside(condition, x.shape), x, y))

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
        """out_grad where a side was taken, else 0; x's comes last, it may lie over out_grad."""
        gradient = require_array(out_grad[0])
        condition = _beside(require_array(in_data[0]), gradient.shape)
        for side in (2, 1):
            value = _GRADIENTS[side - 1](gradient, condition)
            assign(in_grad[side], req[side], value.astype(gradient.dtype))


def _layout_of(output: TensorSpec, condition: TensorSpec) -> TensorSpec:
    """The layout of all: plain where the condition has another shape."""
    same = condition.shape == output.shape
    return joint_layout(output, [output]) if same else output.laid_out(PLAIN)


@implement("where", backend="jit")
class CompiledWhere(Implementation):
    """One pass over float32 tensors, in x's layout where all have one shape."""

    def prepare_forward(self, prop: AnyProperty, request: ForwardRequest) -> Kernel | None:
        """The choice."""
        if OpReqType.NULL in request.requests or not served(*request.inputs):
            return None
        condition, x, _ = request.inputs
        full = _layout_of(x, condition)
        narrow = condition.laid_out(full.layout)
        wide = TensorSpec(_wide(condition.shape, full.shape), layout=full.layout)
        operands = [(source(0), wide), (source(1), full), (source(2), full)]
        (asked,) = request.requests
        place, threads = (target(0), full), request.threads
        return native_kernel(
            self.name,
            [strided_part(_FORWARD, place, operands, threads, request=asked)],
            (narrow, full, full),
            (full,),
            written(request.requests),
            request.threads,
            flops=full.elements,
        )

    def prepare_backward(self, prop: AnyProperty, request: BackwardRequest) -> Kernel | None:
        """One pass for either side's gradient; x's last."""
        gradient, condition = request.out_grad[0], request.in_data[0]
        assert gradient is not None
        assert condition is not None
        full = _layout_of(gradient, condition)
        wide = TensorSpec(_wide(condition.shape, full.shape), layout=full.layout)
        asked = [side for side in (2, 1) if request.requests[side] is not OpReqType.NULL]
        operands, threads = [(source(0), full), (source(1), wide)], request.threads
        return native_kernel(
            self.name,
            [
                strided_part(
                    _BACKWARD[side - 1],
                    (target(side), full),
                    operands,
                    threads,
                    request=request.requests[side],
                )
                for side in asked
            ],
            (full, condition.laid_out(full.layout), None, None, None),
            tuple(full if side in asked else None for side in range(3)),
            written(request.requests),
            request.threads,
            flops=len(asked) * full.elements,
        )
