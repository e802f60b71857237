"""Dropout: random elements set to zero, the others scaled up to keep the expectation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
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
from mxrun.backend.onednn.descriptor import strides_of
from mxrun.backend.team import team_for_elements
from mxrun.base.params import Parameters
from mxrun.base.tensor import CHANNELS_LAST, PLAIN, PartialShape, Shape, TensorSpec
from mxrun.operator.kernel import BackwardRequest, ForwardRequest, Kernel, OpReqType
from mxrun.operator.native_kernel import LoopPart, Part, Slot, native_kernel, source, target
from mxrun.operator.operator import OpContext, Operator, assign, need
from mxrun.operator.property import (
    Inferred,
    OperatorProperty,
    PartialShapes,
    ResourceKind,
    ResourceRequest,
)
from mxrun.operator.register import AnyProperty, Implementation, implement, register
from mxrun.operator.shape import ShapeContradiction, show, unify
from mxrun.operator.tensor import Tensor
from mxrun.ops.optimizer_update import CopyPart

T = TypeVar("T")
Array = npt.NDArray[Any]

# The most axes that the strided loop walks over.
_LOOP_AXES = 5


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
class DropoutProperty(OperatorProperty[DropoutParameters]):
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

    def infer_shape(self, inputs: PartialShapes, outputs: PartialShapes) -> Inferred:
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
        return Inferred([data], [data, mask], [])

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

    def forward_inplace_option(
        self, in_data: Sequence[T], out_data: Sequence[T]
    ) -> list[tuple[T, T]]:
        """The output over data."""
        return [(in_data[0], out_data[0])]

    def backward_inplace_option(
        self,
        out_grad: Sequence[T],
        in_data: Sequence[T],
        out_data: Sequence[T],
        in_grad: Sequence[T],
    ) -> list[tuple[T, T]]:
        """data's gradient over the output's."""
        return [(out_grad[0], in_grad[0])]

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
        gradient = need(out_grad[0])
        if self.parameters.p > 0:
            gradient = gradient * need(out_data[1])
        assign(in_grad[0], req[0], gradient)


@native
def dropout_loop(block: Block) -> None:
    """mask[i] = scale where word i is at most limit, else 0; output[i] = data[i] * mask[i].

    The output may be absent (address 0) or lie over data.
    """
    count, state = integer(block, 0), int64s(block, 1)
    key, step = state[0] ^ integer(block, 2), state[1]
    limit, scale, nothing = np.uint64(integer(block, 3)), real(block, 4), np.float32(0)
    data, output, mask = float32s(block, 5), float32s(block, 6), float32s(block, 7)
    begin, end = share(block, count)
    # Pieces that stay in the nearest cache between the two loops.
    for start in range(begin, end, 4096):
        stop = min(start + 4096, end)
        for number in range(start // 4, stop // 4):
            first, second, third, fourth = random_words(key, step, number)
            mask[4 * number] = scale if first <= limit else nothing
            mask[4 * number + 1] = scale if second <= limit else nothing
            mask[4 * number + 2] = scale if third <= limit else nothing
            mask[4 * number + 3] = scale if fourth <= limit else nothing
        for i in range(stop // 4 * 4, stop):
            word = random_words(key, step, i // 4)[i % 4]
            mask[i] = scale if word <= limit else nothing
        if integer(block, 6) == 0:
            continue
        if integer(block, 5) == integer(block, 6):
            for i in range(start, stop):
                output[i] *= mask[i]
        else:
            for i in range(start, stop):
                output[i] = data[i] * mask[i]


@native
def product_loop(block: Block) -> None:
    """output[i] = data[i] * mask[i]; the output may lie over data."""
    data, output, mask = float32s(block, 1), float32s(block, 2), float32s(block, 3)
    begin, end = share(block, integer(block, 0))
    if integer(block, 1) == integer(block, 2):
        for i in range(begin, end):
            output[i] *= mask[i]
    else:
        for i in range(begin, end):
            output[i] = data[i] * mask[i]


@native
def masked_loop(block: Block) -> None:
    """output = data * mask: five axes in data's order in memory, the mask by its strides.

    The output may lie over data.
    """
    data, output, mask = float32s(block, 0), float32s(block, 1), float32s(block, 12)
    second, third, fourth = integer(block, 3), integer(block, 4), integer(block, 5)
    length, stride = integer(block, 6), integer(block, 11)
    begin, end = share(block, integer(block, 2) * second * third * fourth)
    for row in range(begin, end):
        place = row // (second * third * fourth) * integer(block, 7)
        place += row // (third * fourth) % second * integer(block, 8)
        place += row // fourth % third * integer(block, 9) + row % fourth * integer(block, 10)
        start = row * length
        # Working on the output alone keeps the loops free of aliases.
        if integer(block, 0) != integer(block, 1):
            for i in range(start, start + length):
                output[i] = data[i]
        if stride == 0:
            factor = mask[place]
            for i in range(start, start + length):
                output[i] *= factor
        elif stride == 1:
            for i in range(length):
                output[start + i] *= mask[place + i]
        else:
            for i in range(length):
                output[start + i] *= mask[place + i * stride]


@native
def ones_loop(block: Block) -> None:
    """target[i] = 1."""
    target = float32s(block, 1)
    begin, end = share(block, integer(block, 0))
    for i in range(begin, end):
        target[i] = 1


@implement("Dropout", backend="jit")
class CompiledDropout(Implementation):
    """Compiled loops in float32 in whatever layout the data come, with the readable body's bits.

    Data of more than five axes are left to that body.
    """

    def prepare_forward(self, prop: AnyProperty, request: ForwardRequest) -> Kernel | None:
        """Draw the mask and multiply, in one loop where the mask has data's shape and order."""
        p, data = prop.parameters, _laid_out(request.inputs[0])
        if data.dtype != "float32" or len(data.shape) > _LOOP_AXES:
            return None
        if not p.drops(request.is_train):
            return self._identity(request, data)
        axes = {axis % len(data.shape) for axis in p.axes}
        shape = tuple(1 if axis in axes else size for axis, size in enumerate(data.shape))
        mask, walk = TensorSpec(shape), _walk(data, shape)
        output_wanted, mask_wanted = (req is not OpReqType.NULL for req in request.requests)
        at_once = output_wanted and walk.strides == (1,)
        count = mask.elements
        drawn: tuple[Slot | int | float, ...] = (
            *(count, source(1), request.stream, p.limit, float(p.scale)),
            *((source(0), target(0)) if at_once else (0, 0)),
        )
        # Without a mask to write it lies in scratch, whose address is a loop's last argument.
        place, scratch = ((target(1),), 0) if mask_wanted else ((), mask.nbytes)
        threads = team_for_elements(count, request.threads)
        parts = [LoopPart(dropout_loop, (*drawn, *place), threads, scratch)]
        if output_wanted and not at_once:
            threads = team_for_elements(data.elements, request.threads)
            places = (source(0), target(0))
            arguments = (*places, *walk.arguments, *place)
            parts.append(LoopPart(masked_loop, arguments, threads, scratch))
        return native_kernel(
            self.name,
            parts,
            (data, request.inputs[1]),
            (data, mask),
            request.requests,
            request.threads,
            flops=data.elements,
        )

    def _identity(self, request: ForwardRequest, data: TensorSpec) -> Kernel:
        """A copy, which is nothing at all in place; a mask of ones for those who ask for it."""
        output_wanted, mask_wanted = (req is not OpReqType.NULL for req in request.requests)
        threads = team_for_elements(data.elements, request.threads)
        parts: list[Part] = []
        if output_wanted:
            parts.append(CopyPart(data.elements, source(0), target(0), threads))
        mask = request.outputs[1].laid_out(PLAIN)
        if mask_wanted:
            parts.append(LoopPart(ones_loop, (mask.elements, target(1)), threads))
        return native_kernel(
            self.name,
            parts,
            (data, *(None for _ in request.inputs[1:])),
            (data, mask),
            request.requests,
            request.threads,
        )

    def prepare_backward(self, prop: AnyProperty, request: BackwardRequest) -> Kernel | None:
        """grad * mask, in the gradient's layout."""
        assert request.out_grad[0] is not None
        gradient, mask = _laid_out(request.out_grad[0]), request.out_data[1]
        threads = team_for_elements(gradient.elements, request.threads)
        part: Part = CopyPart(gradient.elements, source(0), target(0), threads)
        if prop.parameters.p > 0:
            assert mask is not None
            walk = _walk(gradient, mask.shape)
            if walk.strides == (1,):
                plain = (gradient.elements, source(0), target(0), source(4))
                part = LoopPart(product_loop, plain, threads)
            else:
                places = (source(0), target(0))
                part = LoopPart(masked_loop, (*places, *walk.arguments, source(4)), threads)
        return native_kernel(
            self.name,
            [part],
            (gradient, None, None, None, None if mask is None else mask.laid_out(PLAIN)),
            (gradient,),
            request.requests,
            request.threads,
            flops=gradient.elements,
        )


@dataclass(frozen=True)
class Walk:
    """Groups of neighbouring axes in data's order in memory.

    sizes: elements of each group; strides: how far the mask's element moves with one step of the
    group, 0 where all share one.
    """

    sizes: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def arguments(self) -> tuple[int, ...]:
        """Five sizes and five strides, for the loop."""
        missing = _LOOP_AXES - len(self.sizes)
        return (*(1,) * missing, *self.sizes, *(0,) * missing, *self.strides)


def _walk(data: TensorSpec, mask: Shape) -> Walk:
    """How to go through data and mask together, in as few groups as it can be."""
    steps = strides_of(mask, PLAIN)
    order = list(range(len(mask)))
    if data.layout == CHANNELS_LAST:
        order = [0, *order[2:], 1]
    groups: list[tuple[int, int]] = []
    for axis in order:
        size, stride = data.shape[axis], steps[axis] if mask[axis] > 1 else 0
        if size == 1:
            continue
        if groups and groups[-1][1] == size * stride:
            size *= groups.pop()[0]
        groups.append((size, stride))
    sizes, strides = zip(*(groups or [(1, 1)]), strict=True)
    return Walk(sizes, strides)


def _laid_out(data: TensorSpec) -> TensorSpec:
    """data as it comes, but plain where its layout is a kernel's own."""
    return data if data.layout == CHANNELS_LAST else data.laid_out(PLAIN)
