"""_basic_index: a part of a tensor, with ranges on its axes; indexing of arrays records it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, TypeVar

import numpy as np
from pydantic import Field

from mxrun.base.params import Parameters
from mxrun.operator.operator import BackwardCall, ForwardCall, Operator
from mxrun.operator.property import OperatorProperty, PartialInference, PartialShapes
from mxrun.operator.register import register
from mxrun.operator.shape import unify

T = TypeVar("T")
Size = Annotated[int, Field(ge=0)]


class BasicIndexParameters(Parameters):
    """Parameters of _basic_index: one range for each axis, and the output's shape."""

    starts: tuple[Size, ...] = Field(description="First index on each axis.", examples=[(0,)])
    steps: tuple[int, ...] = Field(description="Step on each axis.", examples=[(1,)])
    counts: tuple[Size, ...] = Field(description="Number of indices on each axis.", examples=[(1,)])
    shape: tuple[Size, ...] = Field(description="Shape of the output.", examples=[(1,)])


@register("_basic_index")
class BasicIndexProperty(OperatorProperty[BasicIndexParameters]):
    """output = the elements of data in the ranges, in row-major order, in another shape.

    Backward reads the output's gradient; the gradient of data is zero outside of the ranges.
    """

    type_string = "_basic_index"
    parameter_type = BasicIndexParameters
    is_internal = True
    reads_only_data = True

    def infer_shape(self, inputs: PartialShapes, outputs: PartialShapes) -> PartialInference:
        """The output's shape is a parameter, and data has an axis for each range."""
        axes: tuple[int | None, ...] = (None,) * len(self.parameters.starts)
        data = unify("data", inputs[0], axes, "one range for each axis")
        output = unify("output", outputs[0], self.parameters.shape, "the index")
        return PartialInference([data], [output], [])

    def declare_backward_dependency(
        self, out_grad: Sequence[T], in_data: Sequence[T], out_data: Sequence[T]
    ) -> list[T]:
        """Return out_grad."""
        return [out_grad[0]]

    def create_operator(self) -> Operator:
        """Create the NumPy body."""
        return BasicIndex(self.parameters)


class BasicIndex(Operator):
    """NumPy body: a slice of NumPy's."""

    def __init__(self, parameters: BasicIndexParameters) -> None:
        ranges = zip(parameters.starts, parameters.steps, parameters.counts, strict=True)
        self.key = tuple(_slice(*each) for each in ranges)
        self.counts, self.shape = parameters.counts, parameters.shape

    def forward(self, call: ForwardCall) -> None:
        """output = data[key]."""
        call.store(output=call.inputs.data[self.key].reshape(self.shape))

    def backward(self, call: BackwardCall) -> None:
        """Scatter the gradient to zeros."""
        gradient = np.zeros_like(call.input_gradients.data)
        gradient[self.key] = call.output_gradients.output.reshape(self.counts)
        call.store(data=gradient)


def _slice(start: int, step: int, count: int) -> slice:
    """Return the slice of `count` indices; a stop below 0 would count from the end."""
    stop = start + step * count
    return slice(start, stop if stop >= 0 else None, step)
