"""FullyConnected: matrix product with a weight, which is an ordinary input."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from pydantic import Field

from mxrun.base.params import Int32
from mxrun.base.tensor import PartialShape, Shape
from mxrun.operator.family import OperatorFamily
from mxrun.operator.incremental import SequenceArguments
from mxrun.operator.operator import BackwardCall, ForwardCall, Operator
from mxrun.operator.property import PartialInference, PartialShapes, Precision
from mxrun.operator.register import register
from mxrun.operator.shape import product, unify, unify_product
from mxrun.ops.linear import LinearParameters, LinearProperty
from mxrun.ops.sums import sum_over

Array = npt.NDArray[Any]


class FullyConnectedParameters(LinearParameters):
    """Parameters of FullyConnected (MXNet's names and defaults)."""

    num_hidden: Int32 = Field(ge=1, description="Number of output features.", examples=[10])
    no_bias: bool = Field(default=False, description="Omit the bias.")
    flatten: bool = Field(
        default=True,
        description="Merge all axes after the first; otherwise the product is over the last "
        "axis only.",
    )


@register(
    "FullyConnected",
    foreign={"FullyConnected: {num_hidden: 10}": "linear lazylinear dense innerproduct fc gemm"},
)
class FullyConnectedProperty(LinearProperty[FullyConnectedParameters]):
    """output = data x weight^T + bias.

    With flatten: data [N, ...] with K elements per row, output [N, num_hidden]. Otherwise: data
    [..., K], output [..., num_hidden]. weight [num_hidden, K], bias [num_hidden]. Backward reads
    the output's gradient, data and weight.
    """

    type_string = "FullyConnected"
    family = OperatorFamily.DENSE
    parameter_type = FullyConnectedParameters
    precision = Precision.BFLOAT16

    def infer_shape(self, inputs: PartialShapes, outputs: PartialShapes) -> PartialInference:
        """Infer K from data or weight, and the other axes from data or output."""
        hidden = self.parameters.num_hidden
        weight = unify("weight", inputs[1], (hidden, None), "num_hidden")
        bias = [unify("bias", shape, (hidden,), "num_hidden") for shape in inputs[2:]]
        if self.parameters.flatten:
            data, output, features = self._flattened(inputs[0], outputs[0], weight[1])
        else:
            data, output, features = self._last_axis(inputs[0], outputs[0], weight[1])
        weight = unify("weight", weight, (None, features), "the elements that data has to a row")
        return PartialInference([data, weight, *bias], [output], [])

    def _flattened(
        self, data: PartialShape, output: PartialShape, features: int | None
    ) -> tuple[PartialShape, PartialShape, int | None]:
        output = unify("output", output, (None, self.parameters.num_hidden), "num_hidden")
        if data is not None:
            data = unify("data", data, (output[0], *(None,) * (len(data) - 1)), "output's rows")
            if None in data[1:]:
                row, features = unify_product("data", data[1:], features, "weight's columns")
                data = (data[0], *row)
            else:
                features = product(data[1:])
            output = unify("output", output, (data[0], None), "data's rows")
        return data, output, features

    def _last_axis(
        self, data: PartialShape, output: PartialShape, features: int | None
    ) -> tuple[PartialShape, PartialShape, int | None]:
        hidden = self.parameters.num_hidden
        if data is None and output is not None:
            data = (None,) * len(output)
        if data is None:
            return None, None, features
        output = unify("output", output, (*data[:-1], hidden), "data and num_hidden")
        data = unify("data", data, (*output[:-1], None), "output")
        features = features if data[-1] is None else data[-1]
        return (*data[:-1], features), output, features

    def position_axis(self, sequences: SequenceArguments) -> int | None:
        """That of data, whose rows are multiplied one by one; None if the positions are columns."""
        axis, *others = sequences.axes
        is_row = axis == 0 if self.parameters.flatten else axis != len(sequences.shapes[0]) - 1
        return axis if is_row and others == [None] * len(others) else None

    def flops(self, in_shapes: Sequence[Shape], out_shapes: Sequence[Shape]) -> int:
        """Two per multiply-add."""
        return 2 * math.prod(out_shapes[0]) * in_shapes[1][1]

    def create_operator(self) -> Operator:
        """Create the NumPy body."""
        return FullyConnected()


class FullyConnected(Operator):
    """NumPy body on matrices: data and output are reshaped to rows, with or without flatten."""

    def forward(self, call: ForwardCall) -> None:
        """output = data x weight^T + bias."""
        weight = call.inputs.weight
        result = np.matmul(_rows(call.inputs.data, weight.shape[1]), weight.T)
        if "bias" in call.inputs:
            result += call.inputs.bias
        call.store(output=result.reshape(call.outputs.output.shape))

    def backward(self, call: BackwardCall) -> None:
        """Gradients: data: grad x weight; weight: grad^T x data; bias: sum of grad over rows."""
        data, weight = call.inputs.data, call.inputs.weight
        gradient = _rows(call.output_gradients.output, weight.shape[0])
        if call.is_requested("data"):
            call.store(data=np.matmul(gradient, weight).reshape(data.shape))
        if call.is_requested("weight"):
            call.store(weight=np.matmul(gradient.T, _rows(data, weight.shape[1])))
        if "bias" in call.requests:
            call.store(bias=sum_over(gradient, 0))


def _rows(array: Array, columns: int) -> Array:
    return array.reshape(array.size // columns, columns)
