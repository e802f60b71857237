"""Views: operators that only change the shape."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from mxrun.base.params import Parameters
from mxrun.base.tensor import Shape
from mxrun.operator.kernel import OpReqType
from mxrun.operator.operator import OpContext, Operator, assign, require_array
from mxrun.operator.property import InPlaceProperty
from mxrun.operator.tensor import Tensor

P = TypeVar("P", bound=Parameters)
T = TypeVar("T")


class ViewProperty(InPlaceProperty[P]):
    """output = data in row-major order under the output's shape.

    Nothing is computed, and the data are copied only if the planner cannot share the memory.
    Backward reads only the output's gradient.
    """

    is_view = True

    def declare_backward_dependency(
        self, out_grad: Sequence[T], in_data: Sequence[T], out_data: Sequence[T]
    ) -> list[T]:
        """Return out_grad."""
        return [out_grad[0]]

    def flops(self, in_shapes: Sequence[Shape], out_shapes: Sequence[Shape]) -> int:
        """Return 0: nothing is computed."""
        return 0

    def create_operator(self) -> Operator:
        """Create the NumPy body."""
        return Reshaping()


class Reshaping(Operator):
    """NumPy body: a copy; not run if the plan makes the output a view."""

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
        """Gradient of data: grad, reshaped."""
        if in_grad[0] is not None:
            assign(in_grad[0], req[0], require_array(out_grad[0]).reshape(in_grad[0].shape))
