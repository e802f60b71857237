"""Running sums along an axis: cumsum."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from pydantic import Field

from mxrun.backend.jit import Block, float32s, integer, native, share
from mxrun.backend.team import team_for_elements
from mxrun.base.params import Parameters
from mxrun.base.tensor import PLAIN, Shape, TensorSpec
from mxrun.operator.kernel import BackwardRequest, ForwardRequest, Kernel, OpReqType
from mxrun.operator.native_kernel import LoopPart, native_kernel, source, target
from mxrun.operator.operator import OpContext, Operator, assign, need
from mxrun.operator.property import Inferred, OperatorProperty, PartialShapes
from mxrun.operator.register import AnyProperty, Implementation, implement, register
from mxrun.operator.shape import ShapeContradiction, is_known, known, unify
from mxrun.operator.tensor import Tensor

T = TypeVar("T")
Array = npt.NDArray[Any]


class CumsumParameters(Parameters):
    """Parameters of cumsum (MXNet's, but dtype: the sums have the type of what is summed)."""

    axis: int | None = Field(
        default=None,
        ge=0,
        description="The axis to sum along; all elements as one row where left out.",
    )

    def views(self, shape: Shape) -> tuple[int, int, int]:
        """Sizes before the axis, of it, and behind it; raises ShapeContradiction."""
        if self.axis is None:
            return 1, math.prod(shape), 1
        self.check(len(shape))
        return math.prod(shape[: self.axis]), shape[self.axis], math.prod(shape[self.axis + 1 :])

    def check(self, rank: int) -> None:
        """Raise ShapeContradiction where data of this rank has no such axis."""
        if self.axis is not None and self.axis >= rank:
            raise ShapeContradiction("a", f"axis {self.axis}", f"an axis of {rank}", "axis")


@register("cumsum")
class CumsumProperty(OperatorProperty[CumsumParameters]):
    """output[.., i, ..] = sum of a[.., j, ..] over j <= i along the axis; without an axis, output
    is one row. Backward, the sum over i >= j, reads the output's gradient only.
    """

    type_string = "cumsum"
    parameter_type = CumsumParameters

    def list_arguments(self) -> tuple[str, ...]:
        """MXNet's name."""
        return ("a",)

    def infer_shape(self, inputs: PartialShapes, outputs: PartialShapes) -> Inferred:
        """Both of one shape along an axis; else the output is as long as all of a."""
        data, output = inputs[0], outputs[0]
        if self.parameters.axis is not None:
            shape = unify("output", output, data, "a")
            if shape is not None:
                self.parameters.check(len(shape))
            return Inferred([shape], [shape], [])
        total = math.prod(known(data)) if is_known(data) else None
        return Inferred([data], [unify("output", output, (total,), "a without an axis")], [])

    def declare_backward_dependency(
        self, out_grad: Sequence[T], in_data: Sequence[T], out_data: Sequence[T]
    ) -> list[T]:
        """out_grad."""
        return [out_grad[0]]

    def forward_inplace_option(
        self, in_data: Sequence[T], out_data: Sequence[T]
    ) -> list[tuple[T, T]]:
        """Over a."""
        return [(in_data[0], out_data[0])]

    def backward_inplace_option(
        self,
        out_grad: Sequence[T],
        in_data: Sequence[T],
        out_data: Sequence[T],
        in_grad: Sequence[T],
    ) -> list[tuple[T, T]]:
        """Over the output's gradient."""
        return [(out_grad[0], in_grad[0])]

    def create_operator(self) -> Operator:
        """NumPy's sum, in float64."""
        return Cumsum(self.parameters)


class Cumsum(Operator):
    """NumPy's sum, in float64."""

    def __init__(self, parameters: CumsumParameters) -> None:
        self.parameters = parameters

    def forward(
        self,
        context: OpContext,
        in_data: Sequence[Tensor],
        req: Sequence[OpReqType],
        out_data: Sequence[Tensor],
        aux_states: Sequence[Tensor],
    ) -> None:
        """output = the sums so far."""
        data = in_data[0].array
        sums = np.cumsum(data.reshape(self.parameters.views(data.shape)), axis=1, dtype=np.float64)
        assign(out_data[0], req[0], sums.reshape(out_data[0].shape).astype(data.dtype))

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
        """The sums of out_grad from here on."""
        if in_grad[0] is None:
            return
        gradient, shape = need(out_grad[0]), in_grad[0].shape
        backwards = gradient.reshape(self.parameters.views(shape))[:, ::-1]
        sums = np.cumsum(backwards, axis=1, dtype=np.float64)[:, ::-1]
        assign(in_grad[0], req[0], sums.reshape(shape).astype(gradient.dtype))


@native
def cumsum_loop(block: Block) -> None:
    """output[o, r, k] = sum of data[o, s, k] over s up to r, or from r on; in float64.

    The sums of eight neighbours k advance together. Slots: rows o * k, sizes of the axis and behind
    it, output, data, whether from r on.
    """
    size, behind = integer(block, 1), integer(block, 2)
    output, data = float32s(block, 3), float32s(block, 4)
    first, step = 0, behind
    if integer(block, 5):
        first, step = (size - 1) * behind, -behind
    k, end = share(block, integer(block, 0))
    while k < end:
        before = k // behind
        within = k - before * behind
        at = before * size * behind + within + first
        if min(end - k, behind - within) < 8:
            total = 0.0
            for _ in range(size):
                total += data[at]
                output[at] = total
                at += step
            k += 1
            continue
        s0, s1, s2, s3, s4, s5, s6, s7 = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
        for _ in range(size):
            s0, s1, s2 = s0 + data[at], s1 + data[at + 1], s2 + data[at + 2]
            s3, s4, s5 = s3 + data[at + 3], s4 + data[at + 4], s5 + data[at + 5]
            s6, s7 = s6 + data[at + 6], s7 + data[at + 7]
            output[at], output[at + 1], output[at + 2], output[at + 3] = s0, s1, s2, s3
            output[at + 4], output[at + 5], output[at + 6], output[at + 7] = s4, s5, s6, s7
            at += step
        k += 8


@implement("cumsum", backend="jit")
class CompiledCumsum(Implementation):
    """One pass in float32, each sum by one thread."""

    def prepare_forward(self, prop: AnyProperty, request: ForwardRequest) -> Kernel | None:
        """The sums so far."""
        assert isinstance(prop, CumsumProperty)
        (data,), (output,) = request.inputs, request.outputs
        if data.dtype != "float32" or not data.elements:
            return None
        return native_kernel(
            self.name,
            [_part(prop.parameters, data.shape, False, request.threads)],
            (data.laid_out(PLAIN),),
            (output.laid_out(PLAIN),),
            request.requests,
            request.threads,
            flops=data.elements,
        )

    def prepare_backward(self, prop: AnyProperty, request: BackwardRequest) -> Kernel | None:
        """The sums of out_grad from here on."""
        assert isinstance(prop, CumsumProperty)
        (gradient,), (data,) = request.out_grad, request.in_grad
        assert isinstance(gradient, TensorSpec)
        return native_kernel(
            self.name,
            [_part(prop.parameters, data.shape, True, request.threads)],
            (gradient.laid_out(PLAIN), None, None),
            (data.laid_out(PLAIN),),
            request.requests,
            request.threads,
            flops=data.elements,
        )


def _part(parameters: CumsumParameters, shape: Shape, onward: bool, threads: int) -> LoopPart:
    before, size, behind = parameters.views(shape)
    rows = before * behind
    arguments = (rows, size, behind, target(0), source(0), int(onward))
    team = team_for_elements(rows * size, threads) if rows > 1 else 1
    return LoopPart(cumsum_loop, arguments, team)
