"""Views: operators that only change the shape."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeVar

from mxrun.base.params import Parameters
from mxrun.base.tensor import Shape
from mxrun.operator.family import OperatorFamily
from mxrun.operator.incremental import SequenceArguments
from mxrun.operator.operator import BackwardCall, ForwardCall, Operator
from mxrun.operator.property import InPlaceProperty
from mxrun.operator.shape import require_complete

P = TypeVar("P", bound=Parameters)
T = TypeVar("T")


class ViewProperty(InPlaceProperty[P]):
    """output = data in row-major order under the output's shape.

    Nothing is computed, and the data are copied only if the planner cannot share the memory.
    Backward reads only the output's gradient.
    """

    family = OperatorFamily.SHAPE
    is_view = True

    def position_axis(self, sequences: SequenceArguments) -> int | None:
        """That of the output's axis that holds the elements of data's."""
        (shape,), (axis,) = sequences.shapes, sequences.axes
        output = self.infer_shape([shape], [None]).outputs[0]
        if axis is None or output is None:
            return None
        return moved_axis(shape, axis, require_complete(output), sequences.positions)

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


def moved_axis(shape: Shape, axis: int, output: Shape, positions: int) -> int | None:
    """Return the axis of a view that holds an axis of data, or a part of it of all positions.

    None if several axes of the view share it.
    """
    begin = math.prod(shape[axis + 1 :])
    end = begin * shape[axis]
    found = []
    for candidate, size in enumerate(output):
        lower = math.prod(output[candidate + 1 :])
        if max(lower, begin) < min(lower * size, end):
            found.append(candidate)
    if len(found) > 1:
        found = [candidate for candidate in found if output[candidate] % positions == 0]
    return found[0] if len(found) == 1 else None


class Reshaping(Operator):
    """NumPy body: a copy; not run if the plan makes the output a view."""

    def forward(self, call: ForwardCall) -> None:
        """output = data, reshaped."""
        call.store(output=call.inputs.data.reshape(call.outputs.output.shape))

    def backward(self, call: BackwardCall) -> None:
        """Gradient of data: grad, reshaped."""
        call.store(data=call.output_gradients.output.reshape(call.input_gradients.data.shape))
