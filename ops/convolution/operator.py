"""Convolution over one, two or three spatial axes."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy.typing as npt

from mxrun.backend.constraints import ImplementationConstraints
from mxrun.backend.onednn import operations
from mxrun.backend.onednn.backward_convolution import (
    backward_data,
    backward_weights,
    weight_gradient_is_sound,
)
from mxrun.backend.onednn.descriptor import ANY
from mxrun.backend.onednn.primitive import Argument, PostOperation, Primitive, Sum, Unsupported
from mxrun.backend.team import team_for_flops
from mxrun.base.dtype import BFLOAT16, FLOAT32
from mxrun.base.tensor import CHANNELS_LAST, PartialShape, Shape, TensorSpec
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
    Precision,
)
from mxrun.operator.register import AnyProperty, Implementation, implement, register
from mxrun.operator.shape import Dimensions, ShapeContradiction, show, unify
from mxrun.ops.copy_part import copy_part
from mxrun.ops.window import WindowProducts
from mxrun.ops.window_product import WindowProductParameters, WindowProductProperty

Array = npt.NDArray[Any]


@register("Convolution")
class ConvolutionProperty(WindowProductProperty[WindowProductParameters]):
    """output[n, o, y] = bias[o] + sum over c, k of weight[o, c, k] * data[n, c, y*stride + k*dilate
    - pad]. The positions y and k have one coordinate per spatial axis; c runs over the channels of
    o's group.

    data [N, C, spatial...], weight [num_filter, C / num_group, kernel...], bias [num_filter],
    output [N, num_filter, spatial...]. Backward reads the output's gradient, data and weight.
    """

    type_string = "Convolution"
    parameter_type = WindowProductParameters
    precision = Precision.BFLOAT16
    transposed = False
    rule_of_sizes = "data, kernel, stride, dilate and pad"

    def infer_weight(self, data: Dimensions, weight: PartialShape) -> tuple[int | None, Dimensions]:
        """Weight has num_filter kernels over the channels of one group."""
        p = self.parameters
        weight = unify("weight", weight, (p.num_filter, None, *p.kernel), "num_filter and kernel")
        channels = data[1]
        if channels is None and weight[1] is not None:
            channels = weight[1] * p.num_group
        if channels is not None:
            self.require_groups(data, channels)
            inferred = (None, channels // p.num_group, *(None,) * len(p.kernel))
            weight = unify("weight", weight, inferred, "data's channels / num_group")
        return channels, weight

    def infer_sizes(
        self, axis: int, data: Dimensions, output: Dimensions
    ) -> tuple[int | None, int | None]:
        """Infer sizes forward, and backward if the stride is 1."""
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

    def images_and_positions(self, data: Shape) -> tuple[Shape, Shape]:
        """Data are the images."""
        window = self.parameters.window()
        return data, tuple(window.output_size(axis, size) for axis, size in enumerate(data[2:]))

    def create_operator(self) -> Operator:
        """Create the NumPy body."""
        return Convolution(self.parameters)


class Convolution(Operator):
    """NumPy body: im2col and one matrix product per image and group."""

    def __init__(self, parameters: WindowProductParameters) -> None:
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
            words = -(-output.nbytes // 4)
            parts.insert(0, copy_part(source(residual), target(0), words, request.threads))
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
        limit = prop.parameters.workspace_bytes
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
        limit = prop.parameters.workspace_bytes
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


def geometry(parameters: WindowProductParameters) -> operations.SlidingWindow:
    """Return the window in oneDNN's terms."""
    window = parameters.window()
    return operations.SlidingWindow(
        window.stride, window.dilate, window.pad, window.pad, parameters.num_group
    )
