"""Views: operators that only change the shape."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from mxrun.base.params import Parameters
from mxrun.base.tensor import Shape
from mxrun.operator.family import OperatorFamily
from mxrun.operator.operator import BackwardCall, ForwardCall, Operator
from mxrun.operator.property import InPlaceProperty

P = TypeVar("P", bound=Parameters)
T = TypeVar("T")


class ViewProperty(InPlaceProperty[P]):
    """output = data in row-major order under the output's shape.

    Nothing is computed, and the data are copied only if the planner cannot share the memory.
    Backward reads only the output's gradient.
    """

    family = OperatorFamily.SHAPE
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

    def forward(self, call: ForwardCall) -> None:
        """output = data, reshaped."""
        call.store(output=call.inputs.data.reshape(call.outputs.output.shape))

    def backward(self, call: BackwardCall) -> None:
        """Gradient of data: grad, reshaped."""
        call.store(data=call.output_gradients.output.reshape(call.input_gradients.data.shape))
