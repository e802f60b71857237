"""softmax and log_softmax along one axis."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar, TypeVar

import numpy as np
import numpy.typing as npt
from pydantic import Field, field_validator

from mxrun.base.params import Float32, Parameters
from mxrun.base.tensor import Shape
from mxrun.operator.family import OperatorFamily
from mxrun.operator.incremental import SequenceArguments, shared_axis
from mxrun.operator.operator import BackwardCall, ForwardCall, Operator
from mxrun.operator.property import InPlaceProperty, PartialInference, PartialShapes, same_shape
from mxrun.operator.register import register
from mxrun.operator.shape import ShapeContradiction, show

T = TypeVar("T")
Array = npt.NDArray[Any]


class SoftmaxParameters(Parameters):
    """Parameters of softmax and log_softmax (MXNet's)."""

    axis: int = Field(default=-1, description="Axis of the classes; negative from the end.")
    temperature: Float32 | None = Field(
        default=None, description="Divisor of data before the softmax; default: 1."
    )

    @field_validator("temperature")
    @classmethod
    def _not_zero(cls, value: float | None) -> float | None:
        if value == 0:
            raise ValueError("temperature is a divisor and cannot be 0")
        return value


class SoftmaxProperty(InPlaceProperty[SoftmaxParameters]):
    """Common part of softmax and log_softmax. Backward reads the output and its gradient."""

    family = OperatorFamily.ACTIVATION
    parameter_type = SoftmaxParameters
    is_floating = True
    logarithm: ClassVar[bool]

    def infer_shape(self, inputs: PartialShapes, outputs: PartialShapes) -> PartialInference:
        """Unify data and output, and check that `axis` exists."""
        data, output = same_shape(("data", "output"), [*inputs, *outputs], "softmax")
        axis = self.parameters.axis
        if data is not None and not -len(data) <= axis < len(data):
            raise ShapeContradiction("data", show(data), "a shape with that axis", f"axis {axis}")
        return PartialInference([data], [output], [])

    def position_axis(self, sequences: SequenceArguments) -> int | None:
        """That of data, unless probabilities are over positions."""
        return shared_axis(sequences.axes, self.parameters.axis % len(sequences.shapes[0]))

    def declare_backward_dependency(
        self, out_grad: Sequence[T], in_data: Sequence[T], out_data: Sequence[T]
    ) -> list[T]:
        """Return out_grad and output."""
        return [out_grad[0], out_data[0]]

    def flops(self, in_shapes: Sequence[Shape], out_shapes: Sequence[Shape]) -> int:
        """Five per element: maximum, subtraction, exponential, sum and division."""
        return 5 * math.prod(in_shapes[0])

    def create_operator(self) -> Operator:
        """Create the NumPy body."""
        return Softmax(self.parameters, self.logarithm)


@register("softmax")
class PlainSoftmax(SoftmaxProperty):
    """output = exp(x - max x) / sum of exp(x - max x) along the axis, x = data / temperature.

    The gradient of data is output * (grad - sum of grad * output) / temperature. Backward reads the
    output and its gradient.
    """

    type_string = "softmax"
    logarithm = False


@register("log_softmax")
class LogSoftmax(SoftmaxProperty):
    """output = x - max x - log(sum of exp(x - max x)) along the axis, x = data / temperature.

    The gradient of data is (grad - exp(output) * sum of grad) / temperature. Backward reads the
    output and its gradient.
    """

    type_string = "log_softmax"
    logarithm = True


class Softmax(Operator):
    """NumPy body: numerically stable softmax or its logarithm."""

    def __init__(self, parameters: SoftmaxParameters, logarithm: bool) -> None:
        self.axis, self.temperature = parameters.axis, parameters.temperature or 1.0
        self.logarithm = logarithm

    def forward(self, call: ForwardCall) -> None:
        """output = softmax of data / temperature, or its logarithm."""
        data = call.inputs.data
        # A difference of -inf correctly gives probability 0; inf - inf gives NaN.
        with np.errstate(over="ignore", invalid="ignore"):
            scaled = data / data.dtype.type(self.temperature)
            scaled -= scaled.max(axis=self.axis, keepdims=True, initial=-np.inf)
            exponential = np.exp(scaled)
        total = exponential.sum(axis=self.axis, keepdims=True)
        result = scaled - np.log(total) if self.logarithm else exponential / total
        call.store(output=result)

    def backward(self, call: BackwardCall) -> None:
        """Gradient of data, as given in the property."""
        gradient, output = call.output_gradients.output, call.outputs.output
        if self.logarithm:
            result = gradient - np.exp(output) * gradient.sum(axis=self.axis, keepdims=True)
        else:
            inner = (gradient * output).sum(axis=self.axis, keepdims=True)
            result = output * (gradient - inner)
        call.store(data=result / output.dtype.type(self.temperature))
