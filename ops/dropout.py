"""Dropout: random elements set to zero, the others scaled up to keep the expectation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Any, Literal, TypeVar

import numpy as np
import numpy.typing as npt
from pydantic import Field

from mxrun.backend.jit import (
    Block,
    float32s,
    int64s,
    integer,
    native,
    random_words,
    real,
    share,
)
from mxrun.backend.team import team_for_elements
from mxrun.base.params import Parameters
from mxrun.base.tensor import PLAIN, PartialShape, Shape, TensorSpec, unpacked
from mxrun.operator import scalar
from mxrun.operator.kernel import BackwardRequest, ForwardRequest, Kernel, OpReqType
from mxrun.operator.native_kernel import KernelPart, LoopPart, Slot, native_kernel, source, target
from mxrun.operator.operator import OpContext, Operator, assign, require_array
from mxrun.operator.property import (
    InPlaceProperty,
    PartialInference,
    PartialShapes,
    ResourceKind,
    ResourceRequest,
)
from mxrun.operator.register import AnyProperty, Implementation, implement, register
from mxrun.operator.shape import ShapeContradiction, known, show, unify
from mxrun.operator.tensor import Tensor
from mxrun.ops.chain import ChainPart, between
from mxrun.ops.copy_part import CopyPart
from mxrun.ops.strided_map import strided_part

T = TypeVar("T")
Array = npt.NDArray[Any]

PRODUCT = scalar.compile(lambda x, y: x * y)


class DropoutParameters(Parameters):
    """Parameters of Dropout (MXNet's names and defaults; MXNet's p = 1 gives only NaN)."""

    p: Annotated[float, Field(ge=0, lt=1)] = Field(
        default=0.5, description="Probability of an element to become zero."
    )
    mode: Literal["training", "always"] = Field(
        default="training", description="Whether evaluation drops elements too."
    )
    axes: tuple[int, ...] = Field(
        default=(), description="Axes along which all elements share one fate."
    )
    cudnn_off: bool | None = Field(
        default=False, description="Accepted for MXNet's models; has no effect."
    )

    @property
    def limit(self) -> int:
        """The largest 32-bit word that keeps its element: ceil((1 - p) 2^32) - 1.

        1 - p in double precision; its product with a power of two is exact.
        """
        return math.ceil((1 - self.p) * 2.0**32) - 1

    @property
    def scale(self) -> float:
        """What a kept element is multiplied by: 1 / (1 - p)."""
        return 1 / (1 - self.p)

    def drops(self, is_train: bool) -> bool:
        """Whether forward is anything but a copy."""
        return self.p > 0 and (is_train or self.mode == "always")


@register("Dropout")
class DropoutProperty(InPlaceProperty[DropoutParameters]):
    """output = data * mask; mask is 1 / (1 - p) with probability 1 - p, else 0.

    data and output of any shape; mask, hidden, has data's shape with 1 along `axes`. Element i of
    the mask in row-major order is kept if and only if the i-th 32-bit word of the operator's random
    stream is below ceil((1 - p) 2^32). In evaluation, unless mode is always, and with p = 0 the
    mask is 1 and the output is data. Backward reads the output's gradient and the mask: data's
    gradient is their product.
    """

    type_string = "Dropout"
    parameter_type = DropoutParameters

    def list_outputs(self) -> tuple[str, ...]:
        """The output, and the hidden mask."""
        return ("output", "mask")

    @property
    def num_visible_outputs(self) -> int:
        """The output alone."""
        return 1

    def infer_shape(self, inputs: PartialShapes, outputs: PartialShapes) -> PartialInference:
        """data and output have one shape, mask's other axes are data's."""
        data = unify("data", inputs[0], outputs[0], "output")
        mask = outputs[1]
        if data is None and mask is not None:
            data = (None,) * len(mask)
        if data is not None:
            axes = self._axes(data)
            mask = unify("mask", mask, self._mask(data, axes), "data and axes")
            rest = tuple(None if axis in axes else size for axis, size in enumerate(mask))
            data = unify("data", data, rest, "mask")
        return PartialInference([data], [data, mask], [])

    def _axes(self, data: PartialShape) -> set[int]:
        rank = len(data or ())
        for axis in self.parameters.axes:
            if not -rank <= axis < rank:
                raise ShapeContradiction("data", show(data), f"an axis {axis}", "axes")
        return {axis % rank for axis in self.parameters.axes}

    def _mask(self, data: tuple[int | None, ...], axes: set[int]) -> tuple[int | None, ...]:
        return tuple(1 if axis in axes else size for axis, size in enumerate(data))

    def declare_backward_dependency(
        self, out_grad: Sequence[T], in_data: Sequence[T], out_data: Sequence[T]
    ) -> list[T]:
        """The output's gradient and the mask, unless that is 1 everywhere."""
        return [out_grad[0], out_data[1]] if self.parameters.p > 0 else [out_grad[0]]

    def forward_resource(self, inputs: Sequence[TensorSpec]) -> list[ResourceRequest]:
        """Random numbers, unless nothing is ever dropped."""
        return [ResourceRequest(ResourceKind.RANDOM)] if self.parameters.p > 0 else []

    def flops(self, in_shapes: Sequence[Shape], out_shapes: Sequence[Shape]) -> int:
        """One product an element."""
        return math.prod(in_shapes[0])

    def create_operator(self) -> Operator:
        """A comparison and a product."""
        return Dropout(self.parameters)


class Dropout(Operator):
    """Draws the mask from the stream of the first request."""

    def __init__(self, parameters: DropoutParameters) -> None:
        self.parameters = parameters

    def forward(
        self,
        context: OpContext,
        in_data: Sequence[Tensor],
        req: Sequence[OpReqType],
        out_data: Sequence[Tensor],
        aux_states: Sequence[Tensor],
    ) -> None:
        """output = data * mask."""
        data = in_data[0].array
        if not self.parameters.drops(context.is_train):
            assign(out_data[0], req[0], data)
            assign(out_data[1], req[1], np.ones((), data.dtype))
            return
        axes = {axis % data.ndim for axis in self.parameters.axes}
        shape = tuple(1 if axis in axes else size for axis, size in enumerate(data.shape))
        kept = context.random(0).bits(math.prod(shape)) <= self.parameters.limit
        mask = np.where(kept, np.asarray(self.parameters.scale, data.dtype), 0).reshape(shape)
        assign(out_data[0], req[0], data * mask)
        assign(out_data[1], req[1], mask)

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
        """grad * mask."""
        gradient = require_array(out_grad[0])
        if self.parameters.p > 0:
            gradient = gradient * require_array(out_data[1])
        assign(in_grad[0], req[0], gradient)


@native
def dropout_loop(block: Block) -> None:
    """mask[i] = scale where word i is at most limit, else 0; output[i] = data[i] * mask[i].

    The output may be absent (address 0) or lie over data.
    """
    count, state = integer(block, 0), int64s(block, 1)
    key, step = state[0] ^ integer(block, 2), state[1]
    # Among the words of the whole batch, the first of this part.
    origin = state[2] * count
    limit, scale, nothing = np.uint64(integer(block, 3)), real(block, 4), np.float32(0)
    data, output, mask = float32s(block, 5), float32s(block, 6), float32s(block, 7)
    begin, end = share(block, count)
    # Pieces that stay in the nearest cache between the two loops.
    for start in range(begin, end, 4096):
        stop = min(start + 4096, end)
        fours = stop // 4 if origin % 4 == 0 else start // 4
        for number in range(start // 4, fours):
            first, second, third, fourth = random_words(key, step, origin // 4 + number)
            mask[4 * number] = scale if first <= limit else nothing
            mask[4 * number + 1] = scale if second <= limit else nothing
            mask[4 * number + 2] = scale if third <= limit else nothing
            mask[4 * number + 3] = scale if fourth <= limit else nothing
        for i in range(4 * fours, stop):
            word = random_words(key, step, (origin + i) // 4)[(origin + i) % 4]
            mask[i] = scale if word <= limit else nothing
        if integer(block, 6) == 0:
            continue
        if integer(block, 5) == integer(block, 6):
            for i in range(start, stop):
                output[i] *= mask[i]
        else:
            for i in range(start, stop):
                output[i] = data[i] * mask[i]


@implement("Dropout", backend="jit")
class CompiledDropout(Implementation):
    """Compiled loops in float32 in whatever layout the data come, with the readable body's bits.

    A mask of ones, for which nobody asks but to look at it, is left to that body.
    """

    def prepare_forward(self, prop: AnyProperty, request: ForwardRequest) -> Kernel | None:
        """Draw the mask and multiply, in one loop where the mask has data's shape and order."""
        p, data, threads = prop.parameters, unpacked(request.inputs[0]), request.threads
        output_wanted, mask_wanted = (req is not OpReqType.NULL for req in request.requests)
        drops = p.drops(request.is_train)
        if data.dtype != "float32" or (mask_wanted and not drops):
            return None
        mask = TensorSpec(known(prop.infer_shape([data.shape], [None, None]).outputs[1]))
        parts: list[KernelPart] = []
        if drops:
            # Without a mask to write it lies in scratch.
            place = target(1) if mask_wanted else between(0)
            at_once = output_wanted and mask.shape == data.shape and data.layout == PLAIN
            drawn: tuple[Slot | int | float, ...] = (
                *(mask.elements, source(1), request.stream, p.limit, float(p.scale)),
                *((source(0), target(0)) if at_once else (0, 0)),
                place,
            )
            parts.append(LoopPart(dropout_loop, drawn, team_for_elements(mask.elements, threads)))
            if output_wanted and not at_once:
                parts.append(_product(data, (place, mask), threads))
        else:
            parts.append(_copy(data, threads))
        return native_kernel(
            self.name,
            [ChainPart(tuple(parts), (mask.nbytes,) if drops and not mask_wanted else ())],
            (data, *(spec if drops else None for spec in request.inputs[1:])),
            (data, mask),
            request.requests,
            threads,
            flops=data.elements,
        )

    def prepare_backward(self, prop: AnyProperty, request: BackwardRequest) -> Kernel | None:
        """grad * mask, in the gradient's layout."""
        assert request.out_grad[0] is not None
        gradient, mask, threads = (
            unpacked(request.out_grad[0]),
            request.out_data[1],
            request.threads,
        )
        if mask is None:
            part: KernelPart = _copy(gradient, threads)
        else:
            mask = mask.laid_out(PLAIN)
            part = _product(gradient, (source(4), mask), threads)
        return native_kernel(
            self.name,
            [part],
            (gradient, None, None, None, mask),
            (gradient,),
            request.requests,
            threads,
            flops=gradient.elements,
        )


def _copy(data: TensorSpec, threads: int) -> KernelPart:
    """The first output = the first input; nothing at all in place."""
    team = team_for_elements(data.elements, threads)
    return CopyPart(data.elements, source(0), target(0), team)


def _product(data: TensorSpec, mask: tuple[Slot, TensorSpec], threads: int) -> KernelPart:
    """The first output = the first input * mask."""
    return strided_part(PRODUCT, (target(0), data), [(source(0), data), mask], threads)
