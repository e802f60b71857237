"""Flatten: all axes after the first joined into one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from mxrun.base.params import Parameters
from mxrun.base.tensor import Shape
from mxrun.operator.kernel import OpReqType
from mxrun.operator.operator import OpContext, Operator, assign, need
from mxrun.operator.property import Inferred, OperatorProperty, PartialShapes
from mxrun.operator.register import register
from mxrun.operator.shape import unify, unify_product
from mxrun.operator.tensor import Tensor

T = TypeVar("T")


class FlattenParameters(Parameters):
    """Flatten has no parameters."""


@register("Flatten", "flatten")
class FlattenProperty(OperatorProperty[FlattenParameters]):
    """output[n, :] = data[n] in row-major order: data [N, ...], output [N, product of the rest].

    Backward reads the output's gradient only.
    """

    type_string = "Flatten"
    is_view = True
    parameter_type = FlattenParameters

    def infer_shape(self, inputs: PartialShapes, outputs: PartialShapes) -> Inferred:
        """The product forward; backward, one unknown axis of data from the product."""
        data = inputs[0]
        output = unify("output", outputs[0], (None, None), "flattening to rows")
        if data is not None:
            data = unify("data", data, (output[0], *(None,) * (len(data) - 1)), "output's rows")
            row, elements = unify_product("data", data[1:], output[1], "output's columns")
            data = (data[0], *row)
            output = unify("output", output, (data[0], elements), "data")
        return Inferred([data], [output], [])

    def declare_backward_dependency(
        self, out_grad: Sequence[T], in_data: Sequence[T], out_data: Sequence[T]
    ) -> list[T]:
        """out_grad."""
        return [out_grad[0]]

    def forward_inplace_option(
        self, in_data: Sequence[T], out_data: Sequence[T]
    ) -> list[tuple[T, T]]:
        """The same bytes under another shape."""
        return [(in_data[0], out_data[0])]

    def backward_inplace_option(
        self,
        out_grad: Sequence[T],
        in_data: Sequence[T],
        out_data: Sequence[T],
        in_grad: Sequence[T],
    ) -> list[tuple[T, T]]:
        """The same bytes under another shape."""
        return [(out_grad[0], in_grad[0])]

    def flops(self, in_shapes: Sequence[Shape], out_shapes: Sequence[Shape]) -> int:
        """None: nothing is computed."""
        return 0

    def create_operator(self) -> Operator:
        """A copy."""
        return Flatten()


class Flatten(Operator):
    """Copies; the planner's in-place hint makes even that superfluous."""

    def forward(
        self,
        context: OpContext,
        in_data: Sequence[Tensor],
        req: Sequence[OpReqType],
        out_data: Sequence[Tensor],
        aux_states: Sequence[Tensor],
    ) -> None:
        """output = data, reshaped."""
        assign(out_data[0], req[0], in_data[0].array.reshape(out_data[0].shape))

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
        """data's gradient = the output's, reshaped."""
        if in_grad[0] is not None:
            assign(in_grad[0], req[0], need(out_grad[0]).reshape(in_grad[0].shape))
