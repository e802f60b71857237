"""FullyConnected: matrix product with a weight, which is an ordinary input."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
from pydantic import Field

from mxrun.backend.onednn.descriptor import ANY
from mxrun.backend.onednn.primitive import Argument, Unsupported
from mxrun.backend.team import team_for_flops
from mxrun.base.dtype import BFLOAT16
from mxrun.base.params import Int32
from mxrun.base.tensor import PLAIN, PartialShape, Shape, TensorSpec
from mxrun.operator.kernel import BackwardRequest, ForwardRequest, Kernel
from mxrun.operator.native_kernel import (
    PrimitivePart,
    native_kernel,
    onednn_serves,
    source,
    target,
)
from mxrun.operator.operator import BackwardCall, ForwardCall, Operator
from mxrun.operator.property import PartialInference, PartialShapes, Precision
from mxrun.operator.register import AnyProperty, implement, register
from mxrun.operator.shape import product, unify, unify_product
from mxrun.ops.linear import LinearParameters, LinearProperty, OnednnLinear
from mxrun.ops.onednn_product import OnednnProduct, matrix_product

Array = npt.NDArray[Any]

_WEIGHT = 1


class FullyConnectedParameters(LinearParameters):
    """Parameters of FullyConnected (MXNet's names and defaults)."""

    num_hidden: Int32 = Field(ge=1, description="Number of output features.", examples=[10])
    no_bias: bool = Field(default=False, description="Omit the bias.")
    flatten: bool = Field(
        default=True,
        description="Merge all axes after the first; otherwise the product is over the last "
        "axis only.",
    )


@register("FullyConnected")
class FullyConnectedProperty(LinearProperty[FullyConnectedParameters]):
    """output = data x weight^T + bias.

    With flatten: data [N, ...] with K elements per row, output [N, num_hidden]. Otherwise: data
    [..., K], output [..., num_hidden]. weight [num_hidden, K], bias [num_hidden]. Backward reads
    the output's gradient, data and weight.
    """

    type_string = "FullyConnected"
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
            call.store(bias=gradient.sum(axis=0))


def _rows(array: Array, columns: int) -> Array:
    return array.reshape(array.size // columns, columns)


@implement("FullyConnected", backend="onednn")
class OnednnFullyConnected(OnednnLinear):
    """oneDNN's matrix products with the plain weight, or a packed one if the weight is fixed.

    A packed weight makes a product up to three times faster if there are few rows, but the reorder
    costs more than it saves. The same holds in bfloat16: one plain copy serves forward and
    backward.
    """

    layout = PLAIN

    def prepare_forward(self, prop: AnyProperty, request: ForwardRequest) -> Kernel | None:
        """Prepare output = data x weight^T + bias as one primitive, in the output's dtype."""
        if not onednn_serves(*request.inputs, low=True):
            return None
        given, weight, *bias = (spec.with_layout(PLAIN) for spec in request.inputs)
        output = request.outputs[0]
        data, weight = (replace(spec, dtype=output.dtype) for spec in (given, weight))
        hidden, features = weight.shape
        if _WEIGHT in request.fixed:
            weight = weight.with_layout(ANY)
        left, output = _matrix(data, features), _matrix(output, hidden)
        flops = 2 * output.elements * features
        team = team_for_flops(flops, request.threads)
        product = matrix_product(
            (left, source(0)),
            (weight, source(1)),
            (output, target(0)),
            team,
            transposed=(False, True),
            bias=source(2) if bias else None,
        )
        try:
            primitive = product.prepared("output", request.choices)
        except Unsupported:
            return None
        if output.dtype == BFLOAT16 and primitive.is_reference:
            # float32 is faster than the bfloat16 reference.
            return None
        return native_kernel(
            f"onednn:{primitive.implementation}",
            [PrimitivePart(primitive, product.slots)],
            (data, primitive.specs[Argument.WEIGHTS], *bias),
            request.outputs,
            request.requests,
            request.threads,
            flops=flops,
        )

    def gradient_products(
        self,
        prop: AnyProperty,
        request: BackwardRequest,
        gradient: TensorSpec,
        data: TensorSpec,
        weight: TensorSpec,
    ) -> tuple[OnednnProduct, OnednnProduct]:
        """data: grad x weight; weight: grad^T x data."""
        hidden, features = weight.shape
        gradient, data = _matrix(gradient, hidden), _matrix(data, features)
        team = team_for_flops(request.forward.flops, request.threads)
        results = [_matrix(spec, features) for spec in request.in_grad[:2]]
        return (
            matrix_product(
                (gradient, source(0)),
                (weight.with_layout(PLAIN), source(2)),
                (results[0], target(0)),
                team,
            ),
            matrix_product(
                (gradient, source(0)),
                (data, source(1)),
                (results[1], target(1)),
                team,
                transposed=(True, False),
            ),
        )


def _matrix(spec: TensorSpec, columns: int) -> TensorSpec:
    """Return the same plain memory as rows of `columns` elements."""
    return TensorSpec((spec.elements // columns, columns), spec.dtype)
