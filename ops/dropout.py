"""Dropout: zeroes random elements and scales the others to preserve the expectation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Any, Literal, TypeVar

import numpy as np
import numpy.typing as npt
from pydantic import Field

from mxrun.base.device import DeviceDescription
from mxrun.base.params import Parameters
from mxrun.base.tensor import PLAIN, PartialShape, Shape, TensorSpec, unpacked
from mxrun.codegen.arguments import Arguments, Float32s, Int64s, Integer, Real
from mxrun.codegen.intrinsics import random_words, share
from mxrun.codegen.jit import native
from mxrun.operator import scalar
from mxrun.operator.family import OperatorFamily
from mxrun.operator.incremental import SequenceArguments, shared_axis
from mxrun.operator.kernel import BackwardRequest, ForwardRequest, Kernel, OpReqType
from mxrun.operator.native_kernel import KernelPart, LoopPart, Slot, native_kernel, source, target
from mxrun.operator.operator import BackwardCall, ForwardCall, Operator
from mxrun.operator.property import (
    InPlaceProperty,
    PartialInference,
    PartialShapes,
    ResourceKind,
    ResourceRequest,
)
from mxrun.operator.register import AnyProperty, Implementation, implement, register
from mxrun.operator.shape import ShapeContradiction, require_complete, show, unify
from mxrun.ops.chain import ChainPart, between
from mxrun.ops.copy_part import copy_part
from mxrun.ops.strided_map import strided_part

T = TypeVar("T")
Array = npt.NDArray[Any]

PRODUCT = scalar.compile(lambda x, y: x * y)


class DropoutParameters(Parameters):
    """Parameters of Dropout (MXNet's names and defaults; MXNet's p = 1 gives only NaN)."""

    p: Annotated[float, Field(ge=0, lt=1)] = Field(
        default=0.5, description="Probability that an element is set to zero."
    )
    mode: Literal["training", "always"] = Field(
        default="training", description="Apply dropout in training only, or always."
    )
    axes: tuple[int, ...] = Field(
        default=(), description="Axes along which all elements share one mask value; default: none."
    )
    cudnn_off: bool | None = Field(
        default=False, description="Accepted for MXNet's models; has no effect."
    )

    @property
    def limit(self) -> int:
        """Largest 32-bit word for which an element is retained: ceil((1 - p) 2^32) - 1.

        1 - p is computed in double precision; its product with a power of two is exact.
        """
        return math.ceil((1 - self.p) * 2.0**32) - 1

    @property
    def scale(self) -> float:
        """Factor of a retained element: 1 / (1 - p)."""
        return 1 / (1 - self.p)

    def drops(self, is_train: bool) -> bool:
        """Return whether forward applies a mask; otherwise it copies data."""
        return self.p > 0 and (is_train or self.mode == "always")


@register(
    "Dropout",
    foreign={
        "Dropout: {p: 0.5}, which drops single values": "dropout1d dropout2d dropout3d "
        "spatialdropout1d spatialdropout2d",
    },
)
class DropoutProperty(InPlaceProperty[DropoutParameters]):
    """output = data * mask; mask is 1 / (1 - p) with probability 1 - p, else 0.

    data and output have any shape; mask, a hidden output, has data's shape with size 1 along
    `axes`. Element i of the mask, in row-major order, is not zero if and only if the i-th 32-bit
    word of the operator's random stream is below ceil((1 - p) 2^32). In evaluation (unless mode is
    always) and with p = 0, the mask is 1 and the output equals data. Backward reads the output's
    gradient and the mask: data's gradient is their product.
    """

    type_string = "Dropout"
    family = OperatorFamily.RANDOM
    parameter_type = DropoutParameters

    def list_outputs(self) -> tuple[str, ...]:
        """output and the hidden mask."""
        return ("output", "mask")

    @property
    def num_visible_outputs(self) -> int:
        """1: the mask is hidden."""
        return 1

    def infer_shape(self, inputs: PartialShapes, outputs: PartialShapes) -> PartialInference:
        """Unify data and output; mask has data's sizes except along `axes`."""
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

    def position_axis(self, sequences: SequenceArguments) -> int | None:
        """That of data: nothing is dropped in inference."""
        return shared_axis(sequences.axes) if self.parameters.mode == "training" else None

    def declare_backward_dependency(
        self, out_grad: Sequence[T], in_data: Sequence[T], out_data: Sequence[T]
    ) -> list[T]:
        """Return out_grad, and the mask unless p = 0."""
        return [out_grad[0], out_data[1]] if self.parameters.p > 0 else [out_grad[0]]

    def forward_resource(self, inputs: Sequence[TensorSpec]) -> list[ResourceRequest]:
        """Request random numbers unless p = 0."""
        return [ResourceRequest(ResourceKind.RANDOM)] if self.parameters.p > 0 else []

    def flops(self, in_shapes: Sequence[Shape], out_shapes: Sequence[Shape]) -> int:
        """One product per element."""
        return math.prod(in_shapes[0])

    def create_operator(self) -> Operator:
        """Create the NumPy body."""
        return Dropout(self.parameters)


class Dropout(Operator):
    """NumPy body; draws the mask from the random stream of request 0."""

    def __init__(self, parameters: DropoutParameters) -> None:
        self.parameters = parameters

    def forward(self, call: ForwardCall) -> None:
        """output = data * mask."""
        data = call.inputs.data
        if not self.parameters.drops(call.is_train):
            call.store(output=data)
            call.store(mask=np.ones((), data.dtype))
            return
        axes = {axis % data.ndim for axis in self.parameters.axes}
        shape = tuple(1 if axis in axes else size for axis, size in enumerate(data.shape))
        survives = call.random(0).bits(math.prod(shape)) <= self.parameters.limit
        mask = np.where(survives, np.asarray(self.parameters.scale, data.dtype), 0).reshape(shape)
        call.store(output=data * mask)
        call.store(mask=mask)

    def backward(self, call: BackwardCall) -> None:
        """Gradient of data: grad * mask."""
        gradient = call.output_gradients.output
        if self.parameters.p > 0:
            gradient = gradient * call.outputs.mask
        call.store(data=gradient)


class RandomMask(Arguments):
    """Arguments of loops that draw a mask of `count` elements and multiply data by it.

    state: the batch's key and step, and the index of the part of the batch. stream: the node's own
    stream, combined with the key. output: None, or memory that may be data's.
    """

    count: Integer
    state: Int64s
    stream: Integer
    data: Float32s
    output: Float32s
    mask: Float32s


class DropoutMask(RandomMask):
    """Arguments of `dropout_loop`."""

    limit: Integer
    scale: Real


@native
def dropout_loop(call: DropoutMask) -> None:
    """mask[i] = scale where word i <= limit, else 0; output[i] = data[i] * mask[i]."""
    state, mask = call.state, call.mask
    key, step = state[0] ^ call.stream, state[1]
    # Index, among the words of the entire batch, of this part's first word.
    origin = state[2] * call.count
    limit, scale, nothing = np.uint64(call.limit), call.scale, np.float32(0)
    begin, end = share(call.count)
    # Blocks that stay in the L1 cache between the two loops.
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
        if call.output is None:
            continue
        if call.data is call.output:
            for i in range(start, stop):
                call.output[i] *= mask[i]
        else:
            for i in range(start, stop):
                call.output[i] = call.data[i] * mask[i]


@implement("Dropout", backend="jit")
class CompiledDropout(Implementation):
    """Compiled float32 loops in the data's layout; bit-identical to the NumPy body.

    A request for a mask that is 1 everywhere is left to that body; only inspection needs it.
    """

    def prepare_forward(self, prop: AnyProperty, request: ForwardRequest) -> Kernel | None:
        """Prepare the mask and the product; one loop if the mask has data's shape and order."""
        p, data, device = prop.parameters, unpacked(request.inputs[0]), request.device
        output_requested, mask_requested = (req is not OpReqType.NULL for req in request.requests)
        drops = p.drops(request.is_train)
        if data.dtype != "float32" or (mask_requested and not drops):
            return None
        mask = TensorSpec(require_complete(prop.infer_shape([data.shape], [None, None]).outputs[1]))
        parts: list[KernelPart] = []
        if drops:
            # A mask with a null request is computed in scratch space.
            place = target(1) if mask_requested else between(0)
            at_once = output_requested and mask.shape == data.shape and data.layout == PLAIN
            drawn = DropoutMask(
                count=mask.elements,
                state=source(1),
                stream=request.stream,
                data=source(0) if at_once else None,
                output=target(0) if at_once else None,
                mask=place,
                limit=p.limit,
                scale=float(p.scale),
            )
            parts.append(
                LoopPart(dropout_loop, drawn, request.device.tasks_for_elements(mask.elements))
            )
            if output_requested and not at_once:
                parts.append(_product(data, (place, mask), device))
        else:
            parts.append(copy_part(source(0), target(0), data.elements, device))
        return native_kernel(
            self.name,
            [ChainPart(tuple(parts), (mask.nbytes,) if drops and not mask_requested else ())],
            (data, *(spec if drops else None for spec in request.inputs[1:])),
            (data, mask),
            request.requests,
            device,
            flops=data.elements,
        )

    def prepare_backward(self, prop: AnyProperty, request: BackwardRequest) -> Kernel | None:
        """Prepare grad * mask, in the gradient's layout."""
        assert request.out_grad[0] is not None
        gradient, mask, device = (
            unpacked(request.out_grad[0]),
            request.out_data[1],
            request.device,
        )
        if mask is None:
            part: KernelPart = copy_part(source(0), target(0), gradient.elements, device)
        else:
            mask = mask.with_layout(PLAIN)
            part = _product(gradient, (source(4), mask), device)
        return native_kernel(
            self.name,
            [part],
            (gradient, None, None, None, mask),
            (gradient,),
            request.requests,
            device,
            flops=gradient.elements,
        )


def _product(
    data: TensorSpec, mask: tuple[Slot, TensorSpec], device: DeviceDescription
) -> KernelPart:
    """Return output 0 = input 0 * mask."""
    return strided_part(PRODUCT, [target(0)], data, [(source(0), data), mask], device)
