"""Elementwise arithmetic of two tensors of one shape, and the table it shares with broadcasting."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

import numpy as np
import numpy.typing as npt

from mxrun.base.params import Parameters
from mxrun.base.tensor import TensorSpec, unpacked
from mxrun.operator.kernel import BackwardRequest, ForwardRequest, Kernel, OpReqType
from mxrun.operator.native_kernel import native_kernel, source, target
from mxrun.operator.operator import OpContext, Operator, assign, need
from mxrun.operator.property import (
    GradientKind,
    Inferred,
    OperatorProperty,
    PartialShapes,
    same_shape,
)
from mxrun.operator.register import AnyProperty, Implementation, implement, register
from mxrun.operator.scalar import MapKernel
from mxrun.operator.tensor import Tensor
from mxrun.ops.strided import Map, joint_layout
from mxrun.ops.strided_map import strided_part

T = TypeVar("T")
Array = npt.NDArray[Any]
# Positions of what backward reads: out_grad, lhs, rhs.
GRADIENT, LHS, RHS = range(3)


@dataclass(frozen=True)
class Pullback:
    """The gradient of one side before any sum over axes along which that side was repeated.

    formula: of (out_grad, lhs, rhs), those not named in `reads` being None. compiled: the same as
    a map over `reads`, with `factor`.
    """

    formula: Callable[[Any, Any, Any], Array]
    compiled: Map | MapKernel
    reads: tuple[int, ...]
    factor: float = 1.0


@dataclass(frozen=True)
class BinaryMap:
    """output = formula(lhs, rhs), and the gradient of either side: none where both are zero
    everywhere.
    """

    formula: Callable[[Array, Array], Array]
    compiled: Map | MapKernel
    pullbacks: tuple[Pullback, ...]

    def reads(self, *sides: int) -> tuple[int, ...]:
        """What the gradients of `sides` read, in order."""
        return tuple(
            sorted({position for side in sides for position in self.pullbacks[side].reads})
        )


_UNCHANGED = Pullback(lambda g, lhs, rhs: g, Map.SCALE, (GRADIENT,))
ADD = BinaryMap(np.add, Map.ADD, (_UNCHANGED, _UNCHANGED))
SUBTRACT = BinaryMap(
    np.subtract,
    Map.SUBTRACT,
    (_UNCHANGED, Pullback(lambda g, lhs, rhs: -g, Map.SCALE, (GRADIENT,), -1.0)),
)
MULTIPLY = BinaryMap(
    np.multiply,
    Map.MULTIPLY,
    (
        Pullback(lambda g, lhs, rhs: g * rhs, Map.MULTIPLY, (GRADIENT, RHS)),
        Pullback(lambda g, lhs, rhs: g * lhs, Map.MULTIPLY, (GRADIENT, LHS)),
    ),
)
DIVIDE = BinaryMap(
    np.divide,
    Map.DIVIDE,
    (
        Pullback(lambda g, lhs, rhs: g / rhs, Map.DIVIDE, (GRADIENT, RHS)),
        Pullback(
            lambda g, lhs, rhs: -g * lhs / np.square(rhs),
            Map.QUOTIENT_GRADIENT,
            (GRADIENT, LHS, RHS),
        ),
    ),
)


class ArithmeticParameters(Parameters):
    """Arithmetic of two tensors has no parameters."""


class ArithmeticProperty(OperatorProperty[ArithmeticParameters]):
    """output = rule(lhs, rhs). Backward reads what the rule's gradients read."""

    parameter_type = ArithmeticParameters
    rule: ClassVar[BinaryMap]

    def list_arguments(self) -> tuple[str, ...]:
        """lhs and rhs."""
        return ("lhs", "rhs")

    def list_gradients(self) -> tuple[GradientKind, ...]:
        """As the rule says."""
        kind = GradientKind.COMPUTES if self.rule.pullbacks else GradientKind.ZERO
        return (kind, kind)

    def declare_backward_dependency(
        self, out_grad: Sequence[T], in_data: Sequence[T], out_data: Sequence[T]
    ) -> list[T]:
        """out_grad; products and quotients also read both sides."""
        if not self.rule.pullbacks:
            return []
        tensors = [out_grad[0], *in_data]
        return [tensors[position] for position in self.rule.reads(0, 1)]

    def create_operator(self) -> Operator:
        """The rule's expressions."""
        return Arithmetic(self.rule)


class Arithmetic(Operator):
    """A binary map with NumPy's broadcasting, whose gradients are summed where it repeated."""

    def __init__(self, rule: BinaryMap) -> None:
        self.rule = rule

    def forward(
        self,
        context: OpContext,
        in_data: Sequence[Tensor],
        req: Sequence[OpReqType],
        out_data: Sequence[Tensor],
        aux_states: Sequence[Tensor],
    ) -> None:
        """output = rule(lhs, rhs)."""
        # As in compiled code, a division by zero gives infinity or NaN without a word.
        with np.errstate(divide="ignore", invalid="ignore"):
            assign(out_data[0], req[0], self.rule.formula(in_data[0].array, in_data[1].array))

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
        """Each side's gradient; lhs comes last, because it may lie over out_grad."""
        tensors = (out_grad[0], *in_data)
        for side in (1, 0):
            gradient = in_grad[side]
            if gradient is None or req[side] is OpReqType.NULL:
                continue
            pullback = self.rule.pullbacks[side]
            values = [
                need(tensor) if position in pullback.reads else None
                for position, tensor in enumerate(tensors)
            ]
            with np.errstate(divide="ignore", invalid="ignore"):
                full = pullback.formula(*values)
            assign(gradient, req[side], summed_to(full, gradient.shape))


def summed_to(full: Array, shape: tuple[int, ...]) -> Array:
    """`full` summed over the axes along which a tensor of `shape` was repeated."""
    missing = full.ndim - len(shape)
    repeated = (axis for axis, size in enumerate(shape, missing) if size == 1)
    total: Array = full.sum(axis=(*range(missing), *repeated)).reshape(shape)
    return total


class ElementwiseProperty(ArithmeticProperty):
    """output = rule(lhs, rhs), all of one shape."""

    def infer_shape(self, inputs: PartialShapes, outputs: PartialShapes) -> Inferred:
        """Both sides and the output have one shape."""
        names = (*self.list_arguments(), "output")
        lhs, rhs, output = same_shape(names, [*inputs, *outputs], "elementwise arithmetic")
        return Inferred([lhs, rhs], [output], [])

    def forward_inplace_option(
        self, in_data: Sequence[T], out_data: Sequence[T]
    ) -> list[tuple[T, T]]:
        """The output over either side."""
        return [(in_data[0], out_data[0]), (in_data[1], out_data[0])]

    def backward_inplace_option(
        self,
        out_grad: Sequence[T],
        in_data: Sequence[T],
        out_data: Sequence[T],
        in_grad: Sequence[T],
    ) -> list[tuple[T, T]]:
        """lhs's gradient, which is computed last, over the output's; either one where all are
        equal.
        """
        if not self.rule.pullbacks:
            return []
        sides = (0, 1) if self.rule is ADD else (0,)
        return [(out_grad[0], in_grad[side]) for side in sides]


@register("elemwise_add", "_plus", "_Plus", "_add")
class ElementwiseAdd(ElementwiseProperty):
    """output = lhs + rhs, all of one shape. Backward reads the output's gradient only."""

    type_string = "elemwise_add"
    rule = ADD


@register("elemwise_sub", "_minus", "_Minus", "_sub")
class ElementwiseSubtract(ElementwiseProperty):
    """output = lhs - rhs, all of one shape. Backward reads the output's gradient only."""

    type_string = "elemwise_sub"
    rule = SUBTRACT


@register("elemwise_mul", "_mul", "_Mul")
class ElementwiseMultiply(ElementwiseProperty):
    """output = lhs * rhs, all of one shape. Backward reads the output's gradient and both sides."""

    type_string = "elemwise_mul"
    rule = MULTIPLY


@register("elemwise_div", "_div", "_Div")
class ElementwiseDivide(ElementwiseProperty):
    """output = lhs / rhs, all of one shape. Backward reads the output's gradient and both sides."""

    type_string = "elemwise_div"
    rule = DIVIDE


@implement("elemwise_add", "elemwise_sub", "elemwise_mul", "elemwise_div", backend="jit")
class CompiledElementwise(Implementation):
    """One pass in float32, in whatever layout both sides share."""

    def prepare_forward(self, prop: AnyProperty, request: ForwardRequest) -> Kernel | None:
        """The rule, in lhs's layout."""
        assert isinstance(prop, ArithmeticProperty)
        if OpReqType.NULL in request.requests or not served(*request.inputs):
            return None
        output = joint_layout(request.outputs[0], request.inputs)
        operands = [(source(side), output) for side in (0, 1)]
        part = strided_part(prop.rule.compiled, (target(0), output), operands, request.threads)
        return native_kernel(
            self.name,
            [part],
            (output, output),
            (output,),
            request.requests,
            request.threads,
            flops=output.elements,
        )

    def prepare_backward(self, prop: AnyProperty, request: BackwardRequest) -> Kernel | None:
        """Each side's gradient in one pass, in out_grad's layout; lhs last."""
        assert isinstance(prop, ArithmeticProperty)
        (gradient,) = request.out_grad
        assert gradient is not None
        spec = unpacked(gradient)
        asked = [side for side in (1, 0) if request.requests[side] is not OpReqType.NULL]
        pullbacks = {side: prop.rule.pullbacks[side] for side in asked}
        parts = [
            strided_part(
                pullback.compiled,
                (target(side), spec),
                [(source(position), spec) for position in pullback.reads],
                request.threads,
                pullback.factor,
            )
            for side, pullback in pullbacks.items()
        ]
        read = prop.rule.reads(*asked)
        return native_kernel(
            self.name,
            parts,
            (*(spec if position in read else None for position in (GRADIENT, LHS, RHS)), None),
            tuple(spec if side in asked else None for side in (0, 1)),
            request.requests,
            request.threads,
            flops=len(asked) * spec.elements,
        )


def served(*specs: TensorSpec) -> bool:
    """Whether the compiled loops take these tensors: float32 throughout."""
    return all(spec.dtype == "float32" for spec in specs)
