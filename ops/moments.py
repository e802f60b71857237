"""Mean and variance over axes: moments."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Any, TypeVar

import numpy as np
import numpy.typing as npt
from pydantic import BeforeValidator, Field, WithJsonSchema

from mxrun.base.params import Parameters
from mxrun.base.tensor import Shape
from mxrun.operator.kernel import OpReqType
from mxrun.operator.operator import OpContext, Operator, assign, need
from mxrun.operator.property import Inferred, OperatorProperty, PartialShapes
from mxrun.operator.register import register
from mxrun.operator.shape import unify
from mxrun.operator.tensor import Tensor
from mxrun.ops.reduce import AXES_SCHEMA, as_axes, chosen_axes, count_of

T = TypeVar("T")
Array = npt.NDArray[Any]


class MomentsParameters(Parameters):
    """Parameters of moments (MXNet's)."""

    axes: Annotated[
        tuple[int, ...] | None, BeforeValidator(as_axes), WithJsonSchema(AXES_SCHEMA)
    ] = Field(
        default=None,
        description="The axes to reduce, counted from the end where negative; all where left out "
        "or empty (which MXNet refuses).",
    )
    keepdims: bool = Field(
        default=False, description="Keep the reduced axes, with one element each."
    )

    def reduced(self, rank: int) -> tuple[int, ...]:
        """The axes to reduce of data with `rank` axes; raises ShapeContradiction."""
        return chosen_axes(self.axes, rank, "axes") if self.axes else tuple(range(rank))


@register("moments")
class MomentsProperty(OperatorProperty[MomentsParameters]):
    """mean = mean of data over the n elements along the axes, var = mean of (data - mean)^2.

    gradient = (mean's gradient + 2 * var's gradient * (data - mean)) / n. Backward reads both
    gradients and data.
    """

    type_string = "moments"
    parameter_type = MomentsParameters

    def list_outputs(self) -> tuple[str, ...]:
        """Both are visible."""
        return ("mean", "var")

    def infer_shape(self, inputs: PartialShapes, outputs: PartialShapes) -> Inferred:
        """The outputs, of one shape, from data; of data, the kept axes from the outputs."""
        data = inputs[0]
        output = unify("var", outputs[1], outputs[0], "mean")
        if data is None:
            return Inferred([data], [output, output], [])
        rank, keepdims = len(data), self.parameters.keepdims
        reduced = self.parameters.reduced(rank)
        kept = [axis for axis in range(rank) if keepdims or axis not in reduced]
        shape = tuple(1 if axis in reduced else data[axis] for axis in kept) or (1,)
        output = unify("mean", output, shape, "data and axes")
        sizes: list[int | None] = [None] * rank
        for axis, size in zip(kept, output, strict=False):
            sizes[axis] = None if axis in reduced else size
        data = unify("data", data, tuple(sizes), "mean")
        return Inferred([data], [output, output], [])

    def declare_backward_dependency(
        self, out_grad: Sequence[T], in_data: Sequence[T], out_data: Sequence[T]
    ) -> list[T]:
        """Both gradients and data."""
        return [*out_grad, *in_data]

    def flops(self, in_shapes: Sequence[Shape], out_shapes: Sequence[Shape]) -> int:
        """An addition for the mean, three operations for the variance."""
        return 4 * math.prod(in_shapes[0])

    def create_operator(self) -> Operator:
        """NumPy's moments."""
        return Moments(self.parameters)


class Moments(Operator):
    """NumPy's moments, in two passes and in float64."""

    def __init__(self, parameters: MomentsParameters) -> None:
        self.parameters = parameters

    def forward(
        self,
        context: OpContext,
        in_data: Sequence[Tensor],
        req: Sequence[OpReqType],
        out_data: Sequence[Tensor],
        aux_states: Sequence[Tensor],
    ) -> None:
        """mean and var."""
        data = in_data[0].array
        axes = self.parameters.reduced(data.ndim)
        mean = np.mean(data, axis=axes, keepdims=True, dtype=np.float64)
        var = np.mean(np.square(data - mean), axis=axes)
        for output, request, value in zip(out_data, req, (mean, var), strict=True):
            if request is not OpReqType.NULL:
                assign(output, request, value.reshape(output.shape).astype(data.dtype))

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
        """What both outputs' gradients say; that of an output nobody reads is absent."""
        if in_grad[0] is None:
            return
        data = need(in_data[0])
        axes = self.parameters.reduced(data.ndim)
        kept = tuple(1 if axis in axes else size for axis, size in enumerate(data.shape))
        gradient: Array = np.zeros(data.shape, np.float64)
        if out_grad[0] is not None:
            gradient += out_grad[0].array.reshape(kept)
        if out_grad[1] is not None:
            mean = np.mean(data, axis=axes, keepdims=True, dtype=np.float64)
            gradient += 2 * (data - mean) * out_grad[1].array.reshape(kept)
        gradient /= count_of(data.shape, axes)
        assign(in_grad[0], req[0], gradient.astype(data.dtype))
