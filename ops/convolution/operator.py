"""Convolution over one, two or three spatial axes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Annotated, Any, Literal

import numpy.typing as npt
from pydantic import Field, model_validator

from mxrun.backend.constraints import ImplementationConstraints
from mxrun.backend.onednn import operations
from mxrun.backend.onednn.backward_convolution import (
    backward_data,
    backward_weights,
    weight_gradient_is_sound,
)
from mxrun.backend.onednn.descriptor import ANY
from mxrun.backend.onednn.primitive import Argument, PostOperation, Primitive, Sum, Unsupported
from mxrun.backend.team import team_for_elements, team_for_flops
from mxrun.base.dtype import BFLOAT16, FLOAT32
from mxrun.base.params import Int32, Parameters
from mxrun.base.tensor import CHANNELS_LAST, Shape, TensorSpec
from mxrun.operator.kernel import BackwardRequest, ForwardRequest, Kernel
from mxrun.operator.native_kernel import (
    GradientParts,
    KernelPart,
    PrimitivePart,
    Slot,
    native_kernel,
    onednn_serves,
    source,
    target,
)
from mxrun.operator.operator import BackwardCall, ForwardCall, Operator, OperatorCall
from mxrun.operator.property import (
    PartialInference,
    PartialShapes,
    Precision,
    ResourceKind,
    ResourceRequest,
)
from mxrun.operator.register import AnyProperty, Implementation, implement, register
from mxrun.operator.shape import Dimensions, ShapeContradiction, show, unify
from mxrun.ops.copy_part import InPlaceCopyPart
from mxrun.ops.linear import LinearProperty
from mxrun.ops.window import NonNegative, Positive, Window, WindowProducts, columns_space

Array = npt.NDArray[Any]

MEBIBYTE = 1 << 20
LAYOUTS = {1: "NCW", 2: "NCHW", 3: "NCDHW"}


class ConvolutionParameters(Parameters):
    """Parameters of Convolution (MXNet's names and defaults)."""

    kernel: Annotated[tuple[Positive, ...], Field(min_length=1, max_length=3)] = Field(
        description="Window size: (w,), (h, w) or (d, h, w).", examples=[(3, 3)]
    )
    num_filter: Int32 = Field(ge=1, description="Number of output channels.", examples=[8])
    stride: tuple[Positive, ...] = Field(
        default=(), description="Distance between windows along each axis; default 1."
    )
    dilate: tuple[Positive, ...] = Field(
        default=(), description="Distance between kernel elements along each axis; default 1."
    )
    pad: tuple[NonNegative, ...] = Field(
        default=(), description="Zeros added at both ends of each axis; default 0."
    )
    num_group: Int32 = Field(
        default=1,
        ge=1,
        description="Number of groups of channels that are convolved independently.",
    )
    workspace: Int32 = Field(
        default=1024,
        ge=0,
        description="Limit in MiB of the temporary space of a product: an implementation that "
        "needs more is used only if there is no other. Also limits how many images the NumPy "
        "body unfolds at once.",
    )
    no_bias: bool = Field(default=False, description="Omit the bias.")
    cudnn_tune: Literal["off", "limited_workspace", "fastest"] | None = Field(
        default=None, description="Accepted for MXNet's models; has no effect."
    )
    cudnn_off: bool = Field(
        default=False, description="Accepted for MXNet's models; has no effect."
    )
    layout: Literal["NCW", "NCHW", "NCDHW"] | None = Field(
        default=None, description="Logical axis order; channels always follow the batch."
    )

    @model_validator(mode="after")
    def _consistent(self) -> ConvolutionParameters:
        rank = len(self.kernel)
        for name in ("stride", "dilate", "pad"):
            given = len(getattr(self, name))
            if given not in (0, rank):
                raise ValueError(f"{name} has {given} numbers, but kernel has {rank}")
        if self.num_filter % self.num_group:
            raise ValueError(
                f"num_filter {self.num_filter} is not divisible by num_group {self.num_group}"
            )
        if self.layout not in (None, LAYOUTS[rank]):
            raise ValueError(
                f"layout {self.layout} does not fit {rank} kernel axes; use {LAYOUTS[rank]}"
            )
        return self

    def window(self) -> Window:
        """Return the window geometry, with MXNet's defaults."""
        rank = len(self.kernel)
        return Window(
            kernel=self.kernel,
            stride=self.stride or (1,) * rank,
            dilate=self.dilate or (1,) * rank,
            pad=self.pad or (0,) * rank,
        )


@register("Convolution")
class ConvolutionProperty(LinearProperty[ConvolutionParameters]):
    """output[n, o, y] = bias[o] + sum over c, k of weight[o, c, k] * data[n, c, y*stride + k*dilate
    - pad]. The positions y and k have one coordinate per spatial axis; c runs over the channels of
    o's group.

    data [N, C, spatial...], weight [num_filter, C / num_group, kernel...], bias [num_filter],
    output [N, num_filter, spatial...]. Backward reads the output's gradient, data and weight.
    """

    type_string = "Convolution"
    parameter_type = ConvolutionParameters
    precision = Precision.BFLOAT16

    def list_arguments(self) -> tuple[str, ...]:
        """data, weight and, unless no_bias, bias."""
        return ("data", "weight") if self.parameters.no_bias else ("data", "weight", "bias")

    def infer_shape(self, inputs: PartialShapes, outputs: PartialShapes) -> PartialInference:
        """Infer channels from data or weight; sizes forward, and backward if the stride is 1."""
        p = self.parameters
        rank = len(p.kernel)
        axes = f"[batch, channel] and the {rank} axes of kernel {list(p.kernel)}"
        data = unify("data", inputs[0], (None,) * (rank + 2), axes)
        output = unify("output", outputs[0], (None, p.num_filter, *(None,) * rank), "num_filter")
        weight = unify(
            "weight", inputs[1], (p.num_filter, None, *p.kernel), "num_filter and kernel"
        )
        channels = data[1]
        if channels is None and weight[1] is not None:
            channels = weight[1] * p.num_group
        if channels is not None:
            if channels % p.num_group:
                rule = f"a multiple of num_group {p.num_group} channels"
                raise ShapeContradiction("data", show(data), f"{channels} channels", rule)
            share = channels // p.num_group
            weight = unify(
                "weight", weight, (None, share, *(None,) * rank), "data's channels / num_group"
            )
        batch = data[0] if data[0] is not None else output[0]
        sizes = [self._sizes(axis, data, output) for axis in range(rank)]
        data = unify("data", data, (batch, channels, *(size for size, _ in sizes)), "output")
        output = unify(
            "output",
            output,
            (batch, None, *(size for _, size in sizes)),
            "data, kernel, stride, dilate and pad",
        )
        bias = [unify("bias", shape, (p.num_filter,), "num_filter") for shape in inputs[2:]]
        return PartialInference([data, weight, *bias], [output], [])

    def _sizes(
        self, axis: int, data: Dimensions, output: Dimensions
    ) -> tuple[int | None, int | None]:
        window = self.parameters.window()
        size, count = data[axis + 2], output[axis + 2]
        if size is not None:
            windows = window.output_size(axis, size)
            if windows < 1:
                rule = f"kernel {list(window.kernel)} within the padded input"
                raise ShapeContradiction(
                    "data", show(data), f"at least {window.extent(axis)}", rule
                )
            return size, windows
        if count is not None and window.stride[axis] == 1:
            size = count - 1 + window.extent(axis) - 2 * window.pad[axis]
        return size, count

    def forward_resource(self, inputs: Sequence[TensorSpec]) -> list[ResourceRequest]:
        """Request columns for as many images as `workspace` allows, at least one."""
        data, window = inputs[0], self.parameters.window()
        positions = tuple(
            window.output_size(axis, size) for axis, size in enumerate(data.shape[2:])
        )
        limit = self.parameters.workspace * MEBIBYTE
        space = columns_space(data.shape, data.dtype, window, positions, limit)
        return [ResourceRequest(ResourceKind.TEMP_SPACE, space)]

    def backward_resource(self, inputs: Sequence[TensorSpec]) -> list[ResourceRequest]:
        """Request the same space, for the columns or their gradients."""
        return self.forward_resource(inputs)

    def flops(self, in_shapes: Sequence[Shape], out_shapes: Sequence[Shape]) -> int:
        """Two per multiply-add."""
        return 2 * math.prod(out_shapes[0]) * math.prod(in_shapes[1][1:])

    def create_operator(self) -> Operator:
        """Create the NumPy body."""
        return Convolution(self.parameters)


class Convolution(Operator):
    """NumPy body: im2col and one matrix product per image and group."""

    def __init__(self, parameters: ConvolutionParameters) -> None:
        self.groups = parameters.num_group
        self.window = parameters.window()

    def forward(self, call: ForwardCall) -> None:
        """output = weight x columns(data) + bias."""
        call.store(output=self.output(call))

    def output(self, call: ForwardCall) -> Array:
        """Return weight x columns(data) + bias."""
        inputs, spatial = call.inputs, call.outputs.output.shape[2:]
        result = self._products(call).windows(inputs.data, inputs.weight, spatial)
        if "bias" in inputs:
            result += inputs.bias.reshape(-1, *(1,) * len(spatial))
        return result

    def backward(self, call: BackwardCall) -> None:
        """Gradients: data: fold(weight^T x grad); weight: grad x columns^T; bias: sum of grad."""
        gradient, data, weight = (
            call.output_gradients.output,
            call.inputs.data,
            call.inputs.weight,
        )
        products = self._products(call)
        if call.is_requested("data"):
            call.store(data=products.images(gradient, weight, data.shape[2:]))
        if call.is_requested("weight"):
            call.store(weight=products.weight(data, gradient))
        if "bias" in call.requests:
            call.store(bias=gradient.sum(axis=(0, *range(2, gradient.ndim))))

    def _products(self, call: OperatorCall) -> WindowProducts:
        return WindowProducts(self.window, self.groups, call.space(0))


def _forward_slots(*, bias: bool) -> dict[Argument, Slot]:
    """Return the slots of the primitive's arguments."""
    slots = {
        Argument.SOURCE: source(0),
        Argument.WEIGHTS: source(1),
        Argument.OUTPUT: target(0),
    }
    if bias:
        slots[Argument.BIAS] = source(2)
    return slots


@implement("Convolution", backend="onednn")
class OnednnConvolution(Implementation):
    """oneDNN's convolutions on channels-last data, each with the weight layout it prefers."""

    def prepare_forward(self, prop: AnyProperty, request: ForwardRequest) -> Kernel | None:
        """Prepare the convolution in the output's dtype, float32 or bfloat16."""
        return self.prepare_with(prop, request)

    def prepare_with(
        self,
        prop: AnyProperty,
        request: ForwardRequest,
        residual: int | None = None,
        after: tuple[PostOperation, ...] = (),
    ) -> Kernel | None:
        """Prepare the forward kernel, then the addition of input `residual`, then `after`."""
        data, weight, *bias = request.inputs[:residual]
        if not onednn_serves(*request.inputs, low=True):
            return None
        adds = residual is not None
        result = request.outputs[0].with_layout(CHANNELS_LAST)
        data = replace(data, dtype=result.dtype, layout=CHANNELS_LAST)
        weight = replace(weight, dtype=result.dtype, layout=ANY)
        flops = prop.flops([data.shape, weight.shape], [result.shape])
        team = team_for_flops(flops, request.threads)
        steps = (*((Sum(),) if adds else ()), *after)
        primitive = _product(prop, request, (data, weight, result), team, bool(bias), steps)
        if primitive is None:
            return None
        specs = primitive.specs
        output = specs[Argument.OUTPUT]
        parts: list[KernelPart] = [PrimitivePart(primitive, _forward_slots(bias=bool(bias)))]
        if residual is not None:
            # The primitive adds to the content of the output's memory.
            team = team_for_elements(output.elements, request.threads)
            words = -(-output.nbytes // 4)
            parts.insert(0, InPlaceCopyPart(words, source(residual), target(0), team))
        return native_kernel(
            f"onednn:{primitive.implementation}",
            parts,
            (specs[Argument.SOURCE], specs[Argument.WEIGHTS], *bias, *((output,) if adds else ())),
            (output,),
            request.requests,
            request.threads,
            flops=flops,
        )

    def prepare_backward(self, prop: AnyProperty, request: BackwardRequest) -> Kernel | None:
        """Prepare the requested backward convolutions, and a column sum for the bias.

        The bias's gradient is the sum over all positions of the channels-last gradient. This is ten
        times faster than the additional time of the weight primitive for it.
        """
        (gradient,), (data, weight, *_) = request.out_grad, request.in_data
        assert gradient is not None
        assert data is not None
        assert weight is not None
        read = request.forward.inputs[0]
        assert read is not None
        data = replace(data, dtype=read.dtype, layout=CHANNELS_LAST)
        weight = replace(weight, dtype=read.dtype, layout=ANY)
        gradient = replace(gradient, dtype=read.dtype, layout=CHANNELS_LAST)
        window = geometry(prop.parameters)
        team = team_for_flops(request.forward.flops, request.threads)
        limit = prop.parameters.workspace * MEBIBYTE
        parts = GradientParts(request)
        if parts.is_requested(0):
            slots = {
                Argument.OUTPUT_GRAD: source(0),
                Argument.WEIGHTS: source(2),
                Argument.SOURCE_GRAD: target(0),
            }
            prepare = partial(backward_data, data, weight, gradient, window, team)
            parts.add_primitive(request.choices.prepare("data_grad", prepare, limit), slots)
        if parts.is_requested(1):
            slots = {
                Argument.OUTPUT_GRAD: source(0),
                Argument.SOURCE: source(1),
                Argument.WEIGHTS_GRAD: target(1),
            }
            product = request.in_grad[1].with_layout(ANY)
            prepare_product = partial(backward_weights, data, product, gradient, window, team)
            parts.add_primitive(
                request.choices.prepare("weight_grad", prepare_product, limit), slots
            )
        if parts.is_requested(2):
            parts.add_column_sum(source(0), CHANNELS_LAST, target(2))
        products = parts.is_requested(0) + parts.is_requested(1)
        return parts.kernel(products * request.forward.flops)


def _product(
    prop: AnyProperty,
    request: ForwardRequest,
    specs: tuple[TensorSpec, TensorSpec, TensorSpec],
    team: int,
    bias: bool,
    after: tuple[PostOperation, ...],
) -> Primitive | None:
    """Return the requested forward primitive, or None if oneDNN has no fast one."""
    window = geometry(prop.parameters)

    def prepare(constraints: ImplementationConstraints) -> Primitive:
        return operations.convolution_forward(
            *specs, window, team, bias, request.is_train, after, constraints
        )

    try:
        limit = prop.parameters.workspace * MEBIBYTE
        primitive = request.choices.prepare("output", prepare, limit)
        if primitive.is_reference or (
            request.is_train and not _has_gradients(*specs, window, team)
        ):
            return None
    except Unsupported:
        return None
    return primitive


def _has_gradients(
    data: TensorSpec,
    weight: TensorSpec,
    output: TensorSpec,
    window: operations.SlidingWindow,
    team: int,
) -> bool:
    """Return whether oneDNN computes the gradients correctly, in bfloat16 without reference code.

    float32 is faster than bfloat16 reference code.
    """
    if not weight_gradient_is_sound(data, weight.shape[2:], output, window):
        return False
    if output.dtype != BFLOAT16:
        return True
    product = replace(weight, dtype=FLOAT32)
    return not (
        backward_data(data, weight, output, window, team).is_reference
        or backward_weights(data, product, output, window, team).is_reference
    )


def geometry(parameters: ConvolutionParameters) -> operations.SlidingWindow:
    """Return the window in oneDNN's terms."""
    window = parameters.window()
    return operations.SlidingWindow(
        window.stride, window.dilate, window.pad, window.pad, parameters.num_group
    )
