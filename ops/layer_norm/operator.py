"""LayerNorm and RMSNorm: normalise each row of a tensor along one axis."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar, TypeVar

import numpy as np
import numpy.typing as npt
from pydantic import Field

from mxrun.base.params import NotNegative, Parameters
from mxrun.base.tensor import Shape
from mxrun.operator.family import OperatorFamily
from mxrun.operator.incremental import SequenceArguments, unscaled_axis
from mxrun.operator.operator import BackwardCall, ForwardCall, Operator
from mxrun.operator.property import InPlaceProperty, PartialInference, PartialShapes, Precision
from mxrun.operator.register import register
from mxrun.operator.shape import Dimensions, ShapeContradiction, show, unify
from mxrun.ops.sums import sum_over

T = TypeVar("T")
Array = npt.NDArray[Any]

# Indices of arguments.
DATA, GAMMA, BETA = range(3)
# Index of the first output with one number per row.
STATISTICS = 1


class RMSNormParameters(Parameters):
    """Parameters of RMSNorm."""

    axis: int = Field(default=-1, description="Axis to normalize; negative from the end.")
    eps: NotNegative = Field(default=1e-5, description="Added to the mean square.")


class LayerNormParameters(RMSNormParameters):
    """Parameters of LayerNorm (MXNet's names and defaults)."""

    eps: NotNegative = Field(default=1e-5, description="Added to the variance.")
    output_mean_var: bool = Field(
        default=False, description="Make the outputs mean and std visible to the network."
    )


class RowNormProperty(InPlaceProperty[RMSNormParameters]):
    """Common part of LayerNorm and RMSNorm: outputs after the first have one number per row."""

    family = OperatorFamily.NORMALISATION
    precision = Precision.INHERIT
    is_floating = True
    is_centered: ClassVar[bool]

    def infer_shape(self, inputs: PartialShapes, outputs: PartialShapes) -> PartialInference:
        """Unify data and output; gamma and beta are [C], and statistics have size 1 on the axis."""
        data = unify("data", inputs[DATA], outputs[0], "output")
        for name, shape in zip(self.list_outputs()[1:], outputs[1:], strict=True):
            if shape is not None:
                axis = self._axis(name, shape)
                unify(name, (shape[axis],), (1,), "one number per row")
                data = unify("data", data, (*shape[:axis], None, *shape[axis + 1 :]), name)
        columns: int | None = None if data is None else data[self._axis("data", data)]
        for name, shape in zip(self.list_arguments()[1:], inputs[1:], strict=True):
            (columns,) = unify(name, shape, (columns,), "data's size on the axis")
        statistics: Dimensions | None = None
        if data is not None:
            axis = self._axis("data", data)
            data = (*data[:axis], columns, *data[axis + 1 :])
            statistics = (*data[:axis], 1, *data[axis + 1 :])
        each: Dimensions = (columns,)
        return PartialInference(
            [data, *[each] * (len(inputs) - 1)], [data, *[statistics] * (len(outputs) - 1)], []
        )

    def _axis(self, name: str, shape: Dimensions) -> int:
        axis, rank = self.parameters.axis, len(shape)
        if not -rank <= axis < rank:
            raise ShapeContradiction(name, show(shape), f"an axis {axis}", "axis")
        return axis % rank

    def position_axis(self, sequences: SequenceArguments) -> int | None:
        """That of data, unless it is normalised along it."""
        return unscaled_axis(sequences, self.parameters.axis)

    def declare_backward_dependency(
        self, out_grad: Sequence[T], in_data: Sequence[T], out_data: Sequence[T]
    ) -> list[T]:
        """Return out_grad, data, gamma and the statistics."""
        return [out_grad[0], in_data[DATA], in_data[GAMMA], *out_data[STATISTICS:]]

    def create_operator(self) -> Operator:
        """Create the NumPy body."""
        return RowNorm(self.parameters, self.is_centered)


@register("LayerNorm", foreign={"LayerNorm": "layernormalization"})
class LayerNormProperty(RowNormProperty):
    """output = gamma * (data - mean) / std + beta, std = sqrt(var + eps), along `axis`.

    data and output of any shape; gamma and beta [C], for C elements on the axis; mean and std have
    data's shape with size 1 on the axis, and are float32 beside bfloat16 data. The variance is
    biased (divided by C).

    Backward reads the output's gradient, data, gamma, mean and std. As in MXNet, the outputs mean
    and std pass no gradient back. With x = (data - mean) / std, the output's gradient g and means
    along the axis: data's gradient is (g gamma - mean(g gamma) - x mean(g gamma x)) / std, gamma's
    is the sum of g x and beta's the sum of g over the other axes.
    """

    type_string = "LayerNorm"
    parameter_type = LayerNormParameters
    is_centered = True

    def list_arguments(self) -> tuple[str, ...]:
        """data, the scale gamma and the shift beta."""
        return ("data", "gamma", "beta")

    def list_outputs(self) -> tuple[str, ...]:
        """The output and the statistics used to normalise it."""
        return ("output", "mean", "std")

    @property
    def num_visible_outputs(self) -> int:
        """3 with output_mean_var, else 1."""
        parameters = self.parameters
        assert isinstance(parameters, LayerNormParameters)
        return 3 if parameters.output_mean_var else 1

    def flops(self, in_shapes: Sequence[Shape], out_shapes: Sequence[Shape]) -> int:
        """Eight per element: mean (one), variance (three), normalisation and affine map (four)."""
        return 8 * math.prod(in_shapes[DATA])


@register("RMSNorm", foreign={"RMSNorm": "rmsnormalization"})
class RMSNormProperty(RowNormProperty):
    """output = gamma * data / rms, rms = sqrt(mean of data^2 + eps), along `axis`.

    data and output of any shape; gamma [C], for C elements on the axis; rms, hidden, has data's
    shape with size 1 on the axis, and is float32 beside bfloat16 data.

    Backward reads the output's gradient, data, gamma and rms. With x = data / rms, the output's
    gradient g and means along the axis: data's gradient is (g gamma - x mean(g gamma x)) / rms, and
    gamma's is the sum of g x over the other axes.
    """

    type_string = "RMSNorm"
    parameter_type = RMSNormParameters
    is_centered = False

    def list_arguments(self) -> tuple[str, ...]:
        """data and the scale gamma."""
        return ("data", "gamma")

    def list_outputs(self) -> tuple[str, ...]:
        """The output and the root of the mean square."""
        return ("output", "rms")

    @property
    def num_visible_outputs(self) -> int:
        """1: rms is hidden."""
        return 1

    def flops(self, in_shapes: Sequence[Shape], out_shapes: Sequence[Shape]) -> int:
        """Four per element: mean square (two), normalisation and scale (two)."""
        return 4 * math.prod(in_shapes[DATA])


class RowNorm(Operator):
    """NumPy body: the formulas of the properties."""

    def __init__(self, parameters: RMSNormParameters, is_centered: bool) -> None:
        self.axis, self.eps, self.is_centered = parameters.axis, parameters.eps, is_centered

    def forward(self, call: ForwardCall) -> None:
        """output and statistics."""
        output, *statistics = self.results(*call.inputs)
        call.store(output, *statistics)

    def backward(self, call: BackwardCall) -> None:
        """Gradients of data, gamma and beta."""
        statistics = [call.outputs[index] for index in range(STATISTICS, len(call.outputs))]
        gradient, gamma = call.output_gradients.output, call.inputs.gamma
        call.store(**self.gradients(call.inputs.data, gradient, gamma, *statistics))

    def results(self, data: Array, gamma: Array, *beta: Array) -> list[Array]:
        """Return the output and the statistics."""
        mean = self._mean(data)
        if self.is_centered:
            data = data - mean
        deviation = np.sqrt(self._mean(np.square(data)) + np.asarray(self.eps, data.dtype))
        output = data / deviation * self._along(data, gamma)
        if beta:
            output = output + self._along(data, beta[0])
        return [output, mean, deviation] if self.is_centered else [output, deviation]

    def gradients(
        self, data: Array, gradient: Array, gamma: Array, *statistics: Array
    ) -> dict[str, Array]:
        """Return the gradients by argument, from the output's."""
        if self.is_centered:
            data = data - statistics[0]
        deviation = statistics[-1]
        normal = data / deviation
        axis = self.axis % data.ndim
        others = tuple(other for other in range(data.ndim) if other != axis)
        scaled = gradient * self._along(data, gamma)
        data_grad = scaled - normal * self._mean(scaled * normal)
        results = {"gamma": sum_over(gradient * normal, others)}
        if self.is_centered:
            data_grad = data_grad - self._mean(scaled)
            results["beta"] = sum_over(gradient, others)
        return {"data": data_grad / deviation, **results}

    def _mean(self, data: Array) -> Array:
        """Return the mean along the axis, which has size 1 then; 0 of no elements."""
        total: Array = data.sum(axis=self.axis, keepdims=True)
        mean: Array = total / total.dtype.type(max(data.shape[self.axis], 1))
        return mean

    def _along(self, data: Array, columns: Array) -> Array:
        """Reshape [C] so that it broadcasts along data's axis."""
        shape = [1] * data.ndim
        shape[self.axis] = -1
        return columns.reshape(shape)
