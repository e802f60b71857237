"""LRN: local response normalisation across channels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from pydantic import Field

from mxrun.base.params import Float32, Parameters
from mxrun.base.tensor import Shape
from mxrun.codegen.arguments import Arguments, Float32s, Integer, Real
from mxrun.codegen.intrinsics import each
from mxrun.codegen.jit import native
from mxrun.codegen.loops import elements_of_task
from mxrun.operator.family import OperatorFamily
from mxrun.operator.operator import BackwardCall, ForwardCall, Operator
from mxrun.operator.property import OperatorProperty, PartialInference, PartialShapes, same_shape
from mxrun.operator.register import register
from mxrun.operator.shape import ShapeContradiction, show
from mxrun.ops.window import Positive

T = TypeVar("T")
Array = npt.NDArray[Any]

_RANK = 4


class LRNParameters(Parameters):
    """Parameters of LRN (MXNet's names and defaults)."""

    nsize: Positive = Field(
        description="Number of channels in the window; an even number is reduced by 1.",
        examples=[5],
    )
    alpha: Float32 = Field(default=1e-4, description="Factor of the mean square.")
    beta: Float32 = Field(default=0.75, description="Exponent of the norm.")
    knorm: Float32 = Field(default=2.0, description="Constant term of the norm.")

    @property
    def reach(self) -> int:
        """Number of channels in the window on either side of its centre."""
        return (self.nsize - 1) // 2


@register("LRN", foreign={"LRN: {nsize: 5}": "localresponsenorm"})
class LRNProperty(OperatorProperty[LRNParameters]):
    """output[n, c] = data[n, c] * tmp_norm[n, c]^(-beta), with tmp_norm[n, c] = knorm + alpha /
    nsize * the sum of data[n, k]^2 over the channels k with |k - c| <= (nsize - 1) // 2.

    data, output and the hidden tmp_norm have the shape [N, C, H, W]. Backward reads the output's
    gradient g and data. data's gradient is g tmp_norm^(-beta) - 2 alpha beta / nsize * data * the
    sum over the window of g data tmp_norm^(-beta - 1).
    """

    type_string = "LRN"
    family = OperatorFamily.NORMALISATION
    parameter_type = LRNParameters

    def list_outputs(self) -> tuple[str, ...]:
        """output and the hidden tmp_norm."""
        return ("output", "tmp_norm")

    @property
    def num_visible_outputs(self) -> int:
        """1: tmp_norm is hidden."""
        return 1

    def infer_shape(self, inputs: PartialShapes, outputs: PartialShapes) -> PartialInference:
        """Unify data, output and tmp_norm, of rank 4."""
        names = ("data", "output", "tmp_norm")
        shapes = same_shape(names, [*inputs, *outputs], "elementwise")
        data = shapes[0]
        if data is not None and len(data) != _RANK:
            raise ShapeContradiction("data", show(data), "rank 4", "[batch, channel, y, x]")
        return PartialInference(shapes[:1], shapes[1:], [])

    def declare_backward_dependency(
        self, out_grad: Sequence[T], in_data: Sequence[T], out_data: Sequence[T]
    ) -> list[T]:
        """Return out_grad and data."""
        return [out_grad[0], in_data[0]]

    def flops(self, in_shapes: Sequence[Shape], out_shapes: Sequence[Shape]) -> int:
        """Squares and sums of the window, the power and the product, per element."""
        return (2 * self.parameters.nsize + 4) * math.prod(in_shapes[0])

    def create_operator(self) -> Operator:
        """Create the NumPy body."""
        return LRN(self.parameters)


class LRN(Operator):
    """NumPy body: the formulas of the property."""

    def __init__(self, parameters: LRNParameters) -> None:
        self.parameters = parameters

    def forward(self, call: ForwardCall) -> None:
        """tmp_norm = the norm; output = data * tmp_norm^(-beta)."""
        data = call.inputs.data
        norm = self._norm(data)
        call.store(output=data * norm**-self.parameters.beta)
        call.store(tmp_norm=norm)

    def backward(self, call: BackwardCall) -> None:
        """Gradient of data: its direct term, minus its effect on the norms of the window."""
        p, gradient, data = self.parameters, call.output_gradients.output, call.inputs.data
        norm = self._norm(data)
        power = norm**-p.beta
        around = self._window_sum(gradient * data * power / norm)
        factor = 2 * p.alpha * p.beta / p.nsize
        call.store(data=gradient * power - factor * data * around)

    def _norm(self, data: Array) -> Array:
        p = self.parameters
        norm: Array = p.knorm + p.alpha / p.nsize * self._window_sum(np.square(data))
        return norm

    def _window_sum(self, values: Array) -> Array:
        """Sum over the window of channels around each element."""
        total: Array = values.copy()
        for shift in range(1, min(self.parameters.reach, values.shape[1] - 1) + 1):
            total[:, shift:] += values[:, :-shift]
            total[:, :-shift] += values[:, shift:]
        return total


class WindowNorm(Arguments):
    """Arguments of `norm_loop`: data and norm are [rows, channels]."""

    rows: Integer
    channels: Integer
    reach: Integer
    k: Real
    weight: Real
    data: Float32s
    norm: Float32s


@native
def norm_loop(call: WindowNorm) -> None:
    """norm[i, c] = k + weight * sum of data[i, c - reach ... c + reach]^2, for every row i."""
    data, channels, reach = call.data, call.channels, call.reach
    for row in elements_of_task(call.rows):
        first = row * channels
        for c in each(0, channels):
            total = np.float32(0)
            for i in range(max(c - reach, 0), min(c + reach + 1, channels)):
                total += data[first + i] * data[first + i]
            call.norm[first + c] = call.k + call.weight * total
