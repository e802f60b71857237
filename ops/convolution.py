"""Convolution over one, two or three spatial axes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Any, Literal, TypeVar

import numpy as np
import numpy.typing as npt
from pydantic import Field, model_validator

from mxrun.backend.onednn import operations
from mxrun.backend.onednn.descriptor import ANY
from mxrun.backend.onednn.primitive import Argument, Unsupported
from mxrun.backend.team import team_for_elements, team_for_flops
from mxrun.base.dtype import item_size
from mxrun.base.params import Int32, Parameters
from mxrun.base.tensor import CHANNELS_LAST, Shape, TensorSpec
from mxrun.operator.kernel import BackwardRequest, ForwardRequest, Kernel, OpReqType
from mxrun.operator.native_kernel import (
    ColumnSumPart,
    Part,
    PrimitivePart,
    native_kernel,
    onednn_serves,
    source,
    target,
)
from mxrun.operator.operator import OpContext, Operator, assign, need
from mxrun.operator.property import (
    Inferred,
    OperatorProperty,
    PartialShapes,
    ResourceKind,
    ResourceRequest,
)
from mxrun.operator.register import AnyProperty, Implementation, implement, register
from mxrun.operator.shape import Dimensions, ShapeContradiction, show, unify
from mxrun.operator.tensor import Tensor
from mxrun.ops.window import NonNegative, Positive, Window

T = TypeVar("T")
Array = npt.NDArray[Any]

MEBIBYTE = 1 << 20
LAYOUTS = {1: "NCW", 2: "NCHW", 3: "NCDHW"}


class ConvolutionParameters(Parameters):
    """Parameters of Convolution (MXNet's names and defaults)."""

    kernel: Annotated[tuple[Positive, ...], Field(min_length=1, max_length=3)] = Field(
        description="Window size: (w,), (h, w) or (d, h, w)."
    )
    num_filter: Int32 = Field(ge=1, description="Number of output channels.")
    stride: tuple[Positive, ...] = Field(
        default=(), description="Distance between windows along each axis; 1 when left out."
    )
    dilate: tuple[Positive, ...] = Field(
        default=(), description="Distance between kernel elements along each axis; 1 when left out."
    )
    pad: tuple[NonNegative, ...] = Field(
        default=(), description="Zeros put at both ends of each axis; none when left out."
    )
    num_group: Int32 = Field(
        default=1, ge=1, description="Channels are split into this many independent convolutions."
    )
    workspace: Int32 = Field(
        default=1024,
        ge=0,
        description="Most temporary space in MiB: sets how many images are unfolded at once "
        "(at least one).",
    )
    no_bias: bool = Field(default=False, description="Leave the bias out.")
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
        """The geometry with MXNet's defaults filled in."""
        rank = len(self.kernel)
        return Window(
            kernel=self.kernel,
            stride=self.stride or (1,) * rank,
            dilate=self.dilate or (1,) * rank,
            pad=self.pad or (0,) * rank,
        )


@register("Convolution")
class ConvolutionProperty(OperatorProperty[ConvolutionParameters]):
    """output[n, o, y] = bias[o] + sum over c, k of weight[o, c, k] * data[n, c, y*stride + k*dilate
    - pad]: y and k are positions along all spatial axes, c runs over the channels of o's group.

    data [N, C, spatial...], weight [num_filter, C / num_group, kernel...], bias [num_filter],
    output [N, num_filter, spatial...]. Backward reads the output's gradient, data and weight.
    """

    type_string = "Convolution"
    parameter_type = ConvolutionParameters

    def list_arguments(self) -> tuple[str, ...]:
        """data, weight and, unless no_bias, bias."""
        return ("data", "weight") if self.parameters.no_bias else ("data", "weight", "bias")

    def infer_shape(self, inputs: PartialShapes, outputs: PartialShapes) -> Inferred:
        """Channels from data or weight; sizes forward always, backward where stride is 1."""
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
        return Inferred([data, weight, *bias], [output], [])

    def _sizes(
        self, axis: int, data: Dimensions, output: Dimensions
    ) -> tuple[int | None, int | None]:
        window = self.parameters.window()
        size, count = data[axis + 2], output[axis + 2]
        if size is not None:
            fitting = window.output_size(axis, size)
            if fitting < 1:
                rule = f"kernel {list(window.kernel)} within the padded input"
                raise ShapeContradiction(
                    "data", show(data), f"at least {window.extent(axis)}", rule
                )
            return size, fitting
        if count is not None and window.stride[axis] == 1:
            size = count - 1 + window.extent(axis) - 2 * window.pad[axis]
        return size, count

    def declare_backward_dependency(
        self, out_grad: Sequence[T], in_data: Sequence[T], out_data: Sequence[T]
    ) -> list[T]:
        """out_grad, data and weight: neither bias nor output."""
        return [out_grad[0], in_data[0], in_data[1]]

    def forward_resource(self, inputs: Sequence[TensorSpec]) -> list[ResourceRequest]:
        """Columns of as many images as `workspace` allows, at least one."""
        data = inputs[0]
        window = self.parameters.window()
        positions = math.prod(
            window.output_size(axis, size) for axis, size in enumerate(data.shape[2:])
        )
        image = data.shape[1] * math.prod(window.kernel) * positions * item_size(data.dtype)
        allowed = self.parameters.workspace * MEBIBYTE // image
        return [
            ResourceRequest(ResourceKind.TEMP_SPACE, image * min(max(1, allowed), data.shape[0]))
        ]

    def backward_resource(self, inputs: Sequence[TensorSpec]) -> list[ResourceRequest]:
        """The same columns, or their gradients."""
        return self.forward_resource(inputs)

    def flops(self, in_shapes: Sequence[Shape], out_shapes: Sequence[Shape]) -> int:
        """Two per multiplication with a weight."""
        return 2 * math.prod(out_shapes[0]) * math.prod(in_shapes[1][1:])

    def create_operator(self) -> Operator:
        """Unfolds windows into columns and multiplies by the weight."""
        return Convolution(self.parameters)


class Convolution(Operator):
    """im2col and a matrix product per image and group."""

    def __init__(self, parameters: ConvolutionParameters) -> None:
        self.groups = parameters.num_group
        self.window = parameters.window()

    def forward(
        self,
        context: OpContext,
        in_data: Sequence[Tensor],
        req: Sequence[OpReqType],
        out_data: Sequence[Tensor],
        aux_states: Sequence[Tensor],
    ) -> None:
        """output = weight x columns(data) + bias."""
        data, weight = in_data[0].array, in_data[1].array
        spatial = out_data[0].shape[2:]
        matrix = self._grouped_weight(weight)
        result = np.empty((data.shape[0], *matrix.shape[:2], math.prod(spatial)), data.dtype)
        for images, columns in self._chunks(context, data, spatial):
            self._unfold(data[images], columns, spatial)
            np.matmul(matrix, self._as_matrices(columns), out=result[images])
        result = result.reshape(out_data[0].shape)
        if len(in_data) == 3:
            result += in_data[2].array.reshape(-1, *(1,) * len(spatial))
        assign(out_data[0], req[0], result)

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
        """data: fold(weight^T x grad); weight: sum of grad x columns^T; bias: sum of grad."""
        gradient, data, weight = need(out_grad[0]), need(in_data[0]), need(in_data[1])
        spatial = gradient.shape[2:]
        grouped = gradient.reshape(gradient.shape[0], self.groups, -1, math.prod(spatial))
        if req[0] is not OpReqType.NULL:
            transposed = self._grouped_weight(weight).swapaxes(-1, -2)
            data_gradient = np.zeros(data.shape, data.dtype)
            for images, columns in self._chunks(context, data, spatial):
                np.matmul(transposed, grouped[images], out=self._as_matrices(columns))
                self._fold(columns, data_gradient[images], spatial)
            assign(in_grad[0], req[0], data_gradient)
        if req[1] is not OpReqType.NULL:
            weight_gradient = np.zeros(self._grouped_weight(weight).shape, weight.dtype)
            for images, columns in self._chunks(context, data, spatial):
                self._unfold(data[images], columns, spatial)
                matrices = self._as_matrices(columns)
                # Image after image, so that the sum does not depend on the workspace.
                for image, unfolded in zip(grouped[images], matrices, strict=True):
                    weight_gradient += np.matmul(image, unfolded.swapaxes(-1, -2))
            assign(in_grad[1], req[1], weight_gradient.reshape(weight.shape))
        if len(req) == 3:
            assign(in_grad[2], req[2], grouped.sum(axis=(0, 3)).reshape(-1))

    def _grouped_weight(self, weight: Array) -> Array:
        return weight.reshape(self.groups, weight.shape[0] // self.groups, -1)

    def _chunks(self, context: OpContext, data: Array, spatial: Shape) -> list[tuple[slice, Array]]:
        """Slices of the batch, each with its columns [images, group, channel, kernel, y...]."""
        batch, channels = data.shape[:2]
        one = (self.groups, channels // self.groups, math.prod(self.window.kernel), *spatial)
        memory = context.requested[0].array.view(data.dtype)
        step = memory.size // math.prod(one)
        columns = memory[: step * math.prod(one)].reshape(step, *one)
        return [
            (slice(start, start + step), columns[: min(step, batch - start)])
            for start in range(0, batch, step)
        ]

    def _as_matrices(self, columns: Array) -> Array:
        images, groups, channels, positions = columns.shape[:4]
        return columns.reshape(images, groups, channels * positions, -1)

    def _unfold(self, data: Array, columns: Array, spatial: Shape) -> None:
        columns[:] = 0
        images = data.reshape(*columns.shape[:3], *data.shape[2:])
        for number, read, written in self.window.regions(data.shape[2:], spatial):
            columns[:, :, :, number][written] = images[read]

    def _fold(self, columns: Array, data_gradient: Array, spatial: Shape) -> None:
        images = data_gradient.reshape(*columns.shape[:3], *data_gradient.shape[2:])
        for number, read, written in self.window.regions(data_gradient.shape[2:], spatial):
            images[read] += columns[:, :, :, number][written]


@implement("Convolution", backend="onednn")
class OnednnConvolution(Implementation):
    """oneDNN's convolutions on channels-last data, with weights in the packing each prefers."""

    def prepare_forward(self, prop: AnyProperty, request: ForwardRequest) -> Kernel | None:
        """float32 over any number of spatial axes."""
        data, weight, *bias = request.inputs
        if not onednn_serves(*request.inputs):
            return None
        flops = prop.flops([data.shape, weight.shape], [request.outputs[0].shape])
        try:
            primitive = operations.convolution_forward(
                data.laid_out(CHANNELS_LAST),
                weight.laid_out(ANY),
                request.outputs[0].laid_out(CHANNELS_LAST),
                _geometry(prop.parameters),
                team_for_flops(flops, request.threads),
                bias=bool(bias),
                is_train=request.is_train,
            )
        except Unsupported:
            return None
        if primitive.is_reference:
            return None
        slots = {
            Argument.SOURCE: source(0),
            Argument.WEIGHTS: source(1),
            Argument.OUTPUT: target(0),
        }
        if bias:
            slots[Argument.BIAS] = source(2)
        specs = primitive.specs
        return native_kernel(
            f"onednn:{primitive.implementation}",
            [PrimitivePart(primitive, slots)],
            (specs[Argument.SOURCE], specs[Argument.WEIGHTS], *bias),
            (specs[Argument.OUTPUT],),
            request.requests,
            request.threads,
            flops=flops,
        )

    def prepare_backward(self, prop: AnyProperty, request: BackwardRequest) -> Kernel | None:
        """The two backward convolutions, each only where asked; the bias by a column sum.

        The gradient of the bias alone is a sum over the positions of the channels-last gradient,
        ten times faster than what the weight primitive adds to its own time for it.
        """
        (gradient,), (data, weight, *_) = request.out_grad, request.in_data
        assert gradient is not None
        assert data is not None
        assert weight is not None
        gradient = gradient.laid_out(CHANNELS_LAST)
        asked = [req is not OpReqType.NULL for req in request.requests]
        window = _geometry(prop.parameters)
        threads = team_for_flops(request.forward.flops, request.threads)
        inputs: list[TensorSpec | None] = [gradient, *([None] * len(request.in_data)), None]
        outputs: list[TensorSpec | None] = [None] * len(request.in_grad)
        parts: list[Part] = []
        names = []
        if asked[0]:
            backward = operations.convolution_backward_data(
                data.laid_out(CHANNELS_LAST), weight.laid_out(ANY), gradient, window, threads
            )
            slots = {
                Argument.OUTPUT_GRAD: source(0),
                Argument.WEIGHTS: source(2),
                Argument.SOURCE_GRAD: target(0),
            }
            parts.append(PrimitivePart(backward, slots))
            inputs[2] = backward.specs[Argument.WEIGHTS]
            outputs[0] = backward.specs[Argument.SOURCE_GRAD]
            names.append(backward.implementation)
        if asked[1]:
            weights = operations.convolution_backward_weights(
                data.laid_out(CHANNELS_LAST), weight.laid_out(ANY), gradient, window, threads
            )
            slots = {
                Argument.OUTPUT_GRAD: source(0),
                Argument.SOURCE: source(1),
                Argument.WEIGHTS_GRAD: target(1),
            }
            parts.append(PrimitivePart(weights, slots))
            inputs[1] = weights.specs[Argument.SOURCE]
            outputs[1] = weights.specs[Argument.WEIGHTS_GRAD]
            names.append(weights.implementation)
        if len(asked) == 3 and asked[2]:
            channels = gradient.shape[1]
            team = team_for_elements(gradient.elements, request.threads)
            total = operations.column_sum(gradient.elements // channels, channels, team)
            parts.append(ColumnSumPart(total, source(0), target(2)))
            outputs[2] = TensorSpec((channels,))
            names.append(total.implementation)
        return native_kernel(
            "onednn:" + "+".join(names),
            parts,
            tuple(inputs),
            tuple(outputs),
            request.requests,
            request.threads,
            flops=sum(asked[:2]) * request.forward.flops,
        )


def _geometry(parameters: ConvolutionParameters) -> operations.Window:
    window = parameters.window()
    return operations.Window(
        window.stride, window.dilate, window.pad, window.pad, parameters.num_group
    )
