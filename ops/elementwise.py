"""Elementwise operators of two tensors of one shape."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from mxrun.backend.jit import Block, float32s, integer, native, share
from mxrun.backend.team import team_for_elements
from mxrun.base.params import Parameters
from mxrun.operator.kernel import BackwardRequest, ForwardRequest, Kernel, OpReqType
from mxrun.operator.native_kernel import LoopPart, native_kernel, source, target
from mxrun.operator.operator import OpContext, Operator, assign, need
from mxrun.operator.property import Inferred, OperatorProperty, PartialShapes, same_shape
from mxrun.operator.register import AnyProperty, Implementation, implement, register
from mxrun.operator.tensor import Tensor

T = TypeVar("T")


class ElementwiseParameters(Parameters):
    """Elementwise addition has no parameters."""


@register("elemwise_add", "_plus", "_Plus", "_add")
class ElementwiseAddProperty(OperatorProperty[ElementwiseParameters]):
    """output = lhs + rhs, all of one shape. Backward reads the output's gradient only."""

    type_string = "elemwise_add"
    parameter_type = ElementwiseParameters

    def list_arguments(self) -> tuple[str, ...]:
        """lhs and rhs."""
        return ("lhs", "rhs")

    def infer_shape(self, inputs: PartialShapes, outputs: PartialShapes) -> Inferred:
        """Both sides and the output have one shape."""
        lhs, rhs, output = same_shape(
            ("lhs", "rhs", "output"), [*inputs, *outputs], "elementwise addition"
        )
        return Inferred([lhs, rhs], [output], [])

    def declare_backward_dependency(
        self, out_grad: Sequence[T], in_data: Sequence[T], out_data: Sequence[T]
    ) -> list[T]:
        """out_grad."""
        return [out_grad[0]]

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
        """Either side's gradient over the output's."""
        return [(out_grad[0], in_grad[0]), (out_grad[0], in_grad[1])]

    def create_operator(self) -> Operator:
        """One addition."""
        return ElementwiseAdd()


class ElementwiseAdd(Operator):
    """The sum; its gradient goes to both sides."""

    def forward(
        self,
        context: OpContext,
        in_data: Sequence[Tensor],
        req: Sequence[OpReqType],
        out_data: Sequence[Tensor],
        aux_states: Sequence[Tensor],
    ) -> None:
        """output = lhs + rhs."""
        assign(out_data[0], req[0], in_data[0].array + in_data[1].array)

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
        """lhs and rhs: grad."""
        gradient = need(out_grad[0])
        assign(in_grad[0], req[0], gradient)
        assign(in_grad[1], req[1], gradient)


@native
def addition_loop(block: Block) -> None:
    """output[i] = lhs[i] + rhs[i]; the output may lie over either side."""
    lhs, rhs, output = float32s(block, 1), float32s(block, 2), float32s(block, 3)
    begin, end = share(block, integer(block, 0))
    # One loop per case of overlap: each is free of aliases, so that it becomes vector code.
    if integer(block, 1) == integer(block, 3):
        for i in range(begin, end):
            output[i] += rhs[i]
    elif integer(block, 2) == integer(block, 3):
        for i in range(begin, end):
            output[i] += lhs[i]
    else:
        for i in range(begin, end):
            output[i] = lhs[i] + rhs[i]


@native
def copy_loop(block: Block) -> None:
    """output[i] = input[i], unless they are the same memory."""
    data, output = float32s(block, 1), float32s(block, 2)
    begin, end = share(block, integer(block, 0))
    if integer(block, 1) != integer(block, 2):
        for i in range(begin, end):
            output[i] = data[i]


@implement("elemwise_add", backend="jit")
class CompiledElementwiseAdd(Implementation):
    """One loop in float32, in whatever layout both sides share."""

    def prepare_forward(self, prop: AnyProperty, request: ForwardRequest) -> Kernel | None:
        """The sum, in lhs's layout."""
        lhs, rhs = request.inputs
        if lhs.dtype != "float32" or rhs.dtype != "float32" or OpReqType.NULL in request.requests:
            return None
        count = lhs.nbytes // 4
        threads = team_for_elements(count, request.threads)
        part = LoopPart(addition_loop, (count, source(0), source(1), target(0)), threads)
        return native_kernel(
            self.name,
            [part],
            (lhs, rhs.laid_out(lhs.layout)),
            (request.outputs[0].laid_out(lhs.layout),),
            request.requests,
            request.threads,
            flops=lhs.elements,
        )

    def prepare_backward(self, prop: AnyProperty, request: BackwardRequest) -> Kernel | None:
        """Copies of the gradient, in its layout."""
        (gradient,) = request.out_grad
        assert gradient is not None
        count = gradient.nbytes // 4
        threads = team_for_elements(count, request.threads)
        asked = [index for index, req in enumerate(request.requests) if req is not OpReqType.NULL]
        return native_kernel(
            self.name,
            [LoopPart(copy_loop, (count, source(0), target(index)), threads) for index in asked],
            (gradient, None, None, None),
            tuple(gradient if index in asked else None for index in range(2)),
            request.requests,
            request.threads,
        )
