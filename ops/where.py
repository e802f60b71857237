"""where(condition, x, y): element of x where condition is not 0, else of y."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from mxrun.base.dtype import BFLOAT16, FLOAT32
from mxrun.base.errors import Diagnostic, UserError
from mxrun.base.params import Parameters
from mxrun.base.tensor import PLAIN, TensorSpec
from mxrun.operator import scalar
from mxrun.operator.family import OperatorFamily
from mxrun.operator.incremental import SequenceArguments, shared_axis
from mxrun.operator.kernel import BackwardRequest, ForwardRequest, Kernel, OpReqType
from mxrun.operator.native_kernel import native_kernel, source, target
from mxrun.operator.operator import BackwardCall, ForwardCall, Operator
from mxrun.operator.property import (
    GradientKind,
    OperatorProperty,
    PartialInference,
    PartialShapes,
    PartialType,
    same_shape,
)
from mxrun.operator.register import AnyProperty, Implementation, implement, register
from mxrun.operator.scalar import without_add_requests
from mxrun.operator.shape import unify
from mxrun.operator.simple_entry import Array
from mxrun.ops.strided import joint_layout
from mxrun.ops.strided_map import served, strided_part

T = TypeVar("T")
Scalar = Any


def chosen(condition: Scalar, x: Scalar, y: Scalar) -> Scalar:
    """Return x where the condition is not 0, else y."""
    return scalar.where(condition != 0, x, y)


def gradients(gradient: Scalar, condition: Scalar) -> tuple[Scalar, Scalar]:
    """Return the gradients of x and y: the gradient where the side was selected, else 0."""
    return chosen(condition, gradient, 0.0), chosen(condition, 0.0, gradient)


_FORWARD, _BACKWARD = scalar.compile(chosen), scalar.compile(gradients)


class WhereParameters(Parameters):
    """Parameters of where: none."""


@register("where", "_sparse_where")
class WhereProperty(OperatorProperty[WhereParameters]):
    """output = x where condition is not 0, else y; NaN counts as not 0.

    x, y and output have one shape. condition has the same shape, or is a vector of x's first size
    that selects entire rows; it has a zero gradient and may have any dtype. The gradients of x and
    y are the output's gradient where the operand was selected, else 0. Backward reads condition and
    the output's gradient.
    """

    type_string = "where"
    family = OperatorFamily.ELEMENTWISE
    reads_only_data = True
    parameter_type = WhereParameters

    def list_arguments(self) -> tuple[str, ...]:
        """condition, x and y."""
        return ("condition", "x", "y")

    def position_axis(self, sequences: SequenceArguments) -> int | None:
        """That of all inputs."""
        return shared_axis(sequences.axes)

    def list_gradients(self) -> tuple[GradientKind, ...]:
        """condition has a zero gradient."""
        return (GradientKind.ZERO, GradientKind.COMPUTES, GradientKind.COMPUTES)

    def infer_shape(self, inputs: PartialShapes, outputs: PartialShapes) -> PartialInference:
        """Unify all shapes; for a condition of one axis, only the first axis."""
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
        """Unify the dtypes of x, y and output; condition has its own.

        Raises UserError if x and y differ; bfloat16 may stand beside float32.
        """
        condition, *sides = inputs
        known = {dtype for dtype in sides if dtype is not None}
        if len(known) > 1 and not known <= {FLOAT32, BFLOAT16}:
            got = " and ".join(map(str, sides))
            raise UserError(Diagnostic("where of several dtypes", None, "one dtype", got))
        common = next((dtype for dtype in (*sides, *outputs) if dtype is not None), None)
        return [condition, *(dtype or common for dtype in sides)], [outputs[0] or common]

    def declare_backward_dependency(
        self, out_grad: Sequence[T], in_data: Sequence[T], out_data: Sequence[T]
    ) -> list[T]:
        """Return out_grad and condition."""
        return [out_grad[0], in_data[0]]

    def forward_inplace_option(
        self, in_data: Sequence[T], out_data: Sequence[T]
    ) -> list[tuple[T, T]]:
        """Pair x or y with the output."""
        return [(in_data[1], out_data[0]), (in_data[2], out_data[0])]

    def backward_inplace_option(
        self,
        out_grad: Sequence[T],
        in_data: Sequence[T],
        out_data: Sequence[T],
        in_grad: Sequence[T],
    ) -> list[tuple[T, T]]:
        """Pair out_grad with x's gradient."""
        return [(out_grad[0], in_grad[1])]

    def create_operator(self) -> Operator:
        """Create the NumPy body."""
        return Where()


def _wide(condition: tuple[int, ...], shape: tuple[int, ...]) -> tuple[int, ...]:
    """Append axes of size 1 to the condition's shape up to the rank of `shape`."""
    return condition + (1,) * (len(shape) - len(condition))


def _beside(condition: Array, shape: tuple[int, ...]) -> Array:
    """Reshape the condition so that it broadcasts to x's shape."""
    return condition.reshape(_wide(condition.shape, shape))


class Where(Operator):
    """NumPy body."""

    def forward(self, call: ForwardCall) -> None:
        """output = x where condition is not 0, else y."""
        condition, x, y = call.inputs
        call.store(output=chosen(_beside(condition, x.shape), x, y))

    def backward(self, call: BackwardCall) -> None:
        """Gradients of x and y: grad where selected, else 0."""
        gradient = call.output_gradients.output
        condition = _beside(call.inputs.condition, gradient.shape)
        x, y = gradients(gradient, condition)
        call.store(x=x.astype(gradient.dtype), y=y.astype(gradient.dtype))


def _layout_of(output: TensorSpec, condition: TensorSpec) -> TensorSpec:
    """Return the common layout: plain if the condition has another shape."""
    same = condition.shape == output.shape
    return joint_layout(output, [output]) if same else output.with_layout(PLAIN)


@implement("where", backend="jit")
class CompiledWhere(Implementation):
    """One pass over float32 tensors, in x's layout if all have one shape."""

    def prepare_forward(self, prop: AnyProperty, request: ForwardRequest) -> Kernel | None:
        """Prepare the selection."""
        if OpReqType.NULL in request.requests or not served(*request.inputs):
            return None
        condition, x, _ = request.inputs
        full = _layout_of(x, condition)
        narrow = condition.with_layout(full.layout)
        wide = TensorSpec(_wide(condition.shape, full.shape), layout=full.layout)
        operands = [(source(0), wide), (source(1), full), (source(2), full)]
        part = strided_part(
            _FORWARD, [target(0)], full, operands, request.device, requests=request.requests
        )
        return native_kernel(
            self.name,
            [part],
            (narrow, full, full),
            (full,),
            without_add_requests(request.requests),
            request.device,
            flops=full.elements,
        )

    def prepare_backward(self, prop: AnyProperty, request: BackwardRequest) -> Kernel | None:
        """Prepare all requested gradients, in one pass."""
        gradient, condition = request.out_grad[0], request.in_data[0]
        assert gradient is not None
        assert condition is not None
        full = _layout_of(gradient, condition)
        wide = TensorSpec(_wide(condition.shape, full.shape), layout=full.layout)
        operands, requests = [(source(0), full), (source(1), wide)], request.requests[1:]
        part = strided_part(
            _BACKWARD, [target(1), target(2)], full, operands, request.device, requests=requests
        )
        return native_kernel(
            self.name,
            [part],
            (full, condition.with_layout(full.layout), None, None, None),
            (None, full, full),
            without_add_requests(request.requests),
            request.device,
            flops=sum(req is not OpReqType.NULL for req in requests) * full.elements,
        )
