"""Elementwise arithmetic of a tensor and a number, and clipping between two numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
import numpy.typing as npt
from pydantic import Field

from mxrun.backend.jit import Block, float32s, integer, native, real, share
from mxrun.backend.team import team_for_elements
from mxrun.base.params import Float32, Parameters
from mxrun.base.tensor import TensorSpec, unpacked
from mxrun.operator.kernel import BackwardRequest, ForwardRequest, Kernel, OpReqType
from mxrun.operator.native_kernel import LoopPart, Slot, native_kernel, source, target
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

P = TypeVar("P", bound=Parameters)
T = TypeVar("T")
Array = npt.NDArray[Any]


class ScalarMap(IntEnum):
    """What `scalar_part` computes of x, in gradients also of y, with one or two numbers."""

    PLUS = 0  # x + s
    REVERSED_MINUS = 1  # s - x
    TIMES = 2  # x * s
    OVER = 3  # x / s
    REVERSED_OVER = 4  # s / x
    POWER = 5  # x ^ s
    CLIP = 6  # x within [s, t]
    OVER_SQUARE = 7  # -x * s / y^2
    POWER_GRADIENT = 8  # x * s * y^(s - 1)
    WITHIN = 9  # x where s <= y <= t, else 0


@dataclass(frozen=True)
class UnaryMap:
    """output = formula(x, *numbers) and its gradient(out_grad, x, *numbers).

    reads_data: whether the gradient depends on x. compiled, compiled_gradient: the same, of
    (x) and of (out_grad, x), with the numbers, and the gradient's factor before them. zero: whether
    the gradient is zero everywhere, so that nobody asks for it.
    """

    formula: Callable[..., Array]
    gradient: Callable[..., Array]
    reads_data: bool
    compiled: ScalarMap | MapKernel
    compiled_gradient: ScalarMap | MapKernel
    zero: bool = False


class UnaryProperty(OperatorProperty[P], Generic[P]):
    """output = rule(data), elementwise. Backward reads out_grad and what the rule says."""

    rule: ClassVar[UnaryMap]

    @property
    def numbers(self) -> tuple[float, ...]:
        """The numbers of the map, in order."""
        raise NotImplementedError

    @property
    def gradient_numbers(self) -> tuple[float, ...]:
        """The numbers of the compiled gradient: those of the map unless an operator differs."""
        return self.numbers

    def infer_shape(self, inputs: PartialShapes, outputs: PartialShapes) -> Inferred:
        """data and output have one shape."""
        data, output = same_shape(("data", "output"), [*inputs, *outputs], "elementwise")
        return Inferred([data], [output], [])

    def list_gradients(self) -> tuple[GradientKind, ...]:
        """As the rule says."""
        return (GradientKind.ZERO if self.rule.zero else GradientKind.COMPUTES,)

    def declare_backward_dependency(
        self, out_grad: Sequence[T], in_data: Sequence[T], out_data: Sequence[T]
    ) -> list[T]:
        """out_grad, and data where the gradient depends on it."""
        if self.rule.zero:
            return []
        return [out_grad[0], *(in_data if self.rule.reads_data else ())]

    def forward_inplace_option(
        self, in_data: Sequence[T], out_data: Sequence[T]
    ) -> list[tuple[T, T]]:
        """The output over data."""
        return [(in_data[0], out_data[0])]

    def backward_inplace_option(
        self,
        out_grad: Sequence[T],
        in_data: Sequence[T],
        out_data: Sequence[T],
        in_grad: Sequence[T],
    ) -> list[tuple[T, T]]:
        """data's gradient over the output's."""
        return [] if self.rule.zero else [(out_grad[0], in_grad[0])]

    def create_operator(self) -> Operator:
        """The rule's expressions."""
        return Unary(self.rule, self.numbers)


class Unary(Operator):
    """Two NumPy expressions with numbers in them."""

    def __init__(self, rule: UnaryMap, numbers: tuple[float, ...]) -> None:
        self.rule, self.numbers = rule, numbers

    def forward(
        self,
        context: OpContext,
        in_data: Sequence[Tensor],
        req: Sequence[OpReqType],
        out_data: Sequence[Tensor],
        aux_states: Sequence[Tensor],
    ) -> None:
        """output = rule(data)."""
        data = in_data[0].array
        # As in compiled code, what is not defined gives infinity or NaN without a word.
        with np.errstate(all="ignore"):
            assign(out_data[0], req[0], self.rule.formula(data, *self._typed(data)))

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
        """The rule's gradient."""
        gradient = need(out_grad[0])
        data = need(in_data[0]) if self.rule.reads_data else None
        with np.errstate(all="ignore"):
            assign(in_grad[0], req[0], self.rule.gradient(gradient, data, *self._typed(gradient)))

    def _typed(self, like: Array) -> list[Any]:
        """The numbers in the data's own type, as the compiled loop has them."""
        return [like.dtype.type(number) for number in self.numbers]


class ScalarParameters(Parameters):
    """The number beside the tensor."""

    scalar: Float32 = Field(default=1.0, description="The number.", examples=[0.5])
    is_int: bool = Field(
        default=True,
        description="Accepted for MXNet's models; has no effect on floating-point tensors.",
    )


class ScalarProperty(UnaryProperty[ScalarParameters]):
    """output = rule(data, scalar)."""

    parameter_type = ScalarParameters

    @property
    def numbers(self) -> tuple[float, ...]:
        """The scalar."""
        return (self.parameters.scalar,)


@register("_plus_scalar", "_PlusScalar")
class PlusScalar(ScalarProperty):
    """output = data + scalar. Backward reads the output's gradient only."""

    type_string = "_plus_scalar"
    rule = UnaryMap(lambda x, s: x + s, lambda g, x, s: g, False, ScalarMap.PLUS, ScalarMap.TIMES)

    @property
    def gradient_numbers(self) -> tuple[float, ...]:
        """The gradient as it is."""
        return (1.0,)


@register("_minus_scalar", "_MinusScalar")
class MinusScalar(PlusScalar):
    """output = data - scalar. Backward reads the output's gradient only."""

    type_string = "_minus_scalar"

    @property
    def numbers(self) -> tuple[float, ...]:
        """What is added: the scalar with its sign turned, which changes no bit."""
        return (-self.parameters.scalar,)


@register("_rminus_scalar", "_RMinusScalar")
class ReversedMinusScalar(ScalarProperty):
    """output = scalar - data. Backward reads the output's gradient only."""

    type_string = "_rminus_scalar"
    rule = UnaryMap(
        lambda x, s: s - x,
        lambda g, x, s: -g,
        False,
        ScalarMap.REVERSED_MINUS,
        ScalarMap.TIMES,
    )

    @property
    def gradient_numbers(self) -> tuple[float, ...]:
        """The gradient with its sign turned."""
        return (-1.0,)


@register("_mul_scalar", "_MulScalar")
class MultiplyScalar(ScalarProperty):
    """output = data * scalar. Backward reads the output's gradient only."""

    type_string = "_mul_scalar"
    rule = UnaryMap(
        lambda x, s: x * s, lambda g, x, s: g * s, False, ScalarMap.TIMES, ScalarMap.TIMES
    )


@register("_div_scalar", "_DivScalar")
class DivideScalar(ScalarProperty):
    """output = data / scalar. Backward reads the output's gradient only."""

    type_string = "_div_scalar"
    rule = UnaryMap(
        lambda x, s: x / s, lambda g, x, s: g / s, False, ScalarMap.OVER, ScalarMap.OVER
    )


@register("_rdiv_scalar", "_RDivScalar")
class ReversedDivideScalar(ScalarProperty):
    """output = scalar / data. Backward reads the output's gradient and data."""

    type_string = "_rdiv_scalar"
    rule = UnaryMap(
        lambda x, s: s / x,
        lambda g, x, s: -g * s / np.square(x),
        True,
        ScalarMap.REVERSED_OVER,
        ScalarMap.OVER_SQUARE,
    )


@register("_power_scalar", "_PowerScalar")
class PowerScalar(ScalarProperty):
    """output = data ^ scalar; its gradient is scalar * data ^ (scalar - 1), also at 0.

    Backward reads the output's gradient and data.
    """

    type_string = "_power_scalar"
    rule = UnaryMap(
        np.power,
        lambda g, x, s: g * (s * np.power(x, s - 1)),
        True,
        ScalarMap.POWER,
        ScalarMap.POWER_GRADIENT,
    )


class ClipParameters(Parameters):
    """The bounds of clip."""

    a_min: Float32 = Field(description="The smallest output.", examples=[-1.0])
    a_max: Float32 = Field(description="The largest output.", examples=[1.0])


@register("clip")
class ClipProperty(UnaryProperty[ClipParameters]):
    """output = a_max where data > a_max, else a_min where data < a_min, else data.

    The gradient passes where data lies within the bounds, both included. Backward reads the
    output's gradient and data.
    """

    type_string = "clip"
    parameter_type = ClipParameters
    rule = UnaryMap(
        lambda x, low, high: np.where(x > high, high, np.where(x < low, low, x)),
        lambda g, x, low, high: np.where((x > high) | (x < low), g.dtype.type(0), g),
        True,
        ScalarMap.CLIP,
        ScalarMap.WITHIN,
    )

    @property
    def numbers(self) -> tuple[float, ...]:
        """Both bounds."""
        return self.parameters.a_min, self.parameters.a_max


@native
def scalar_loop(block: Block) -> None:
    """output = map(x, y, s, t), elementwise; it may lie over x.

    Slots: the map, elements, output, x, y, s, t. Maps of x alone are those below 7.
    """
    kind, s, t = integer(block, 0), real(block, 5), real(block, 6)
    output, x, y = float32s(block, 2), float32s(block, 3), float32s(block, 4)
    begin, end = share(block, integer(block, 1))
    if kind == 5 and s == 2:
        for i in range(begin, end):
            output[i] = x[i] * x[i]
    elif kind == 5:
        for i in range(begin, end):
            output[i] = x[i] ** s
    elif kind == 8 and s == 2:
        for i in range(begin, end):
            output[i] = x[i] * (s * y[i])
    elif kind == 8:
        for i in range(begin, end):
            output[i] = x[i] * (s * y[i] ** (s - np.float32(1)))
    elif kind == 7:
        for i in range(begin, end):
            output[i] = -x[i] * s / (y[i] * y[i])
    elif kind == 9:
        for i in range(begin, end):
            output[i] = np.float32(0) if y[i] > t or y[i] < s else x[i]
    else:
        for i in range(begin, end):
            value = x[i]
            if kind == 0:
                output[i] = value + s
            elif kind == 1:
                output[i] = s - value
            elif kind == 2:
                output[i] = value * s
            elif kind == 3:
                output[i] = value / s
            elif kind == 4:
                output[i] = s / value
            else:
                output[i] = t if value > t else (s if value < s else value)


def scalar_part(
    kind: ScalarMap | MapKernel,
    output: tuple[Slot, TensorSpec],
    operands: Sequence[Slot],
    numbers: Sequence[float],
    threads: int,
) -> LoopPart:
    """output = map of one or two operands of its own layout, with one or two numbers."""
    slot, spec = output
    if isinstance(kind, MapKernel):
        return kind.part(slot, operands, spec.elements, numbers, threads=threads)
    absent = (0,) * (2 - len(operands))
    return LoopPart(
        scalar_loop,
        (int(kind), spec.elements, slot, *operands, *absent, *map(float, (*numbers, 0)[:2])),
        team_for_elements(spec.elements, threads),
    )


@implement(
    "_plus_scalar",
    "_minus_scalar",
    "_rminus_scalar",
    "_mul_scalar",
    "_div_scalar",
    "_rdiv_scalar",
    "_power_scalar",
    "clip",
    backend="jit",
)
class CompiledUnary(Implementation):
    """One pass in float32, in whatever layout data come."""

    def prepare_forward(self, prop: AnyProperty, request: ForwardRequest) -> Kernel | None:
        """The rule, in data's layout."""
        assert isinstance(prop, UnaryProperty)
        data = unpacked(request.inputs[0])
        if OpReqType.NULL in request.requests or data.dtype != "float32":
            return None
        place = (target(0), data)
        part = scalar_part(prop.rule.compiled, place, [source(0)], prop.numbers, request.threads)
        return native_kernel(
            self.name,
            [part],
            (data,),
            (data,),
            request.requests,
            request.threads,
            flops=data.elements,
        )

    def prepare_backward(self, prop: AnyProperty, request: BackwardRequest) -> Kernel | None:
        """The rule's gradient, in out_grad's layout."""
        assert isinstance(prop, UnaryProperty)
        (gradient,) = request.out_grad
        assert gradient is not None
        spec = unpacked(gradient)
        part = scalar_part(
            prop.rule.compiled_gradient,
            (target(0), spec),
            [source(0), source(1)] if prop.rule.reads_data else [source(0)],
            prop.gradient_numbers,
            request.threads,
        )
        return native_kernel(
            self.name,
            [part],
            (spec, spec if prop.rule.reads_data else None, None),
            (spec,),
            request.requests,
            request.threads,
            flops=spec.elements,
        )
