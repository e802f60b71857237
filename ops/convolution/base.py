"""Base of Convolution and Deconvolution: products of a weight with sliding windows."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal, TypeVar

from pydantic import Field, model_validator

from mxrun.base.description import PerAxis
from mxrun.base.params import Int32
from mxrun.base.tensor import PartialShape, Shape, TensorSpec
from mxrun.operator.family import OperatorFamily
from mxrun.operator.operator import BackwardCall, ForwardCall, Operator, OperatorCall
from mxrun.operator.property import (
    PartialInference,
    PartialShapes,
    ResourceKind,
    ResourceRequest,
)
from mxrun.operator.shape import Dimensions, ShapeContradiction, require_complete, show, unify
from mxrun.ops.convolution.im2col import Array, WindowProducts, columns_space
from mxrun.ops.linear import LinearParameters, LinearProperty
from mxrun.ops.sums import sum_over
from mxrun.ops.window import AxisOrder, NonNegative, Positive, Window, require_axes, require_layout

MEBIBYTE = 1 << 20


class WindowProductParameters(LinearParameters):
    """Parameters of Convolution, and of Deconvolution with other defaults (both are MXNet's)."""

    kernel: Annotated[tuple[Positive, ...], PerAxis(), Field(min_length=1, max_length=3)] = Field(
        description="Window size: (w,), (h, w) or (d, h, w).", examples=[(3, 3)]
    )
    num_filter: Int32 = Field(ge=1, description="Number of output channels.", examples=[8])
    stride: Annotated[tuple[Positive, ...], PerAxis()] = Field(
        default=(), description="Distance between windows along each axis; default: 1."
    )
    dilate: Annotated[tuple[Positive, ...], PerAxis()] = Field(
        default=(), description="Distance between kernel elements along each axis; default: 1."
    )
    pad: Annotated[tuple[NonNegative, ...], PerAxis()] = Field(
        default=(), description="Zeros added at both ends of each axis; default: 0."
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
        default=None, description="Accepted for MXNet's models; has no effect; default: none."
    )
    cudnn_off: bool = Field(
        default=False, description="Accepted for MXNet's models; has no effect."
    )
    layout: AxisOrder | None = Field(
        default=None,
        description="Axis order; channels follow the batch; default: by the number of axes.",
    )

    @model_validator(mode="after")
    def _consistent(self) -> WindowProductParameters:
        rank = len(self.kernel)
        require_axes(rank, stride=self.stride, dilate=self.dilate, pad=self.pad)
        if self.num_filter % self.num_group:
            raise ValueError(
                f"num_filter {self.num_filter} is not divisible by num_group {self.num_group}"
            )
        require_layout(self.layout, rank)
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

    def window_over(self, spatial: Shape) -> Window:
        """Return the window geometry for data's spatial axes."""
        return self.window()

    @property
    def workspace_bytes(self) -> int:
        """The parameter workspace in bytes."""
        return self.workspace * MEBIBYTE


P = TypeVar("P", bound=WindowProductParameters)


class WindowProductProperty(LinearProperty[P]):
    """One of the products of images [N, C, spatial...], a weight and windows [N, O, positions...].

    data [N, channels, spatial...], weight [of the windows' channels, of the images' channels in a
    group, kernel...], bias [num_filter], output [N, num_filter, spatial...].
    """

    family = OperatorFamily.CONVOLUTION

    # Whether data are the windows and the output the images, as in a convolution's data gradient.
    transposed: ClassVar[bool]
    # What the output's sizes follow from, in messages.
    rule_of_sizes: ClassVar[str]

    def infer_shape(self, inputs: PartialShapes, outputs: PartialShapes) -> PartialInference:
        """Infer channels from data or weight, and sizes in both directions where they follow."""
        p = self.parameters
        rank = len(p.kernel)
        axes = f"[batch, channel] and the {rank} axes of kernel {list(p.kernel)}"
        data = unify("data", inputs[0], (None,) * (rank + 2), axes)
        output = unify("output", outputs[0], (None, p.num_filter, *(None,) * rank), "num_filter")
        channels, weight = self.infer_weight(data, inputs[1])
        batch = data[0] if data[0] is not None else output[0]
        sizes = [self.infer_sizes(axis, data, output) for axis in range(rank)]
        data = unify("data", data, (batch, channels, *(size for size, _ in sizes)), "output")
        spatial = (size for _, size in sizes)
        output = unify("output", output, (batch, None, *spatial), self.rule_of_sizes)
        bias = [unify("bias", shape, (p.num_filter,), "num_filter") for shape in inputs[2:]]
        return PartialInference([data, weight, *bias], [output], [])

    @abstractmethod
    def infer_weight(self, data: Dimensions, weight: PartialShape) -> tuple[int | None, Dimensions]:
        """Return data's channels and weight's shape."""

    def require_groups(self, data: Dimensions, channels: int) -> None:
        """Raise ShapeContradiction if data's channels are no multiple of num_group."""
        groups = self.parameters.num_group
        if channels % groups:
            rule = f"a multiple of num_group {groups} channels"
            raise ShapeContradiction("data", show(data), f"{channels} channels", rule)

    @abstractmethod
    def infer_sizes(
        self, axis: int, data: Dimensions, output: Dimensions
    ) -> tuple[int | None, int | None]:
        """Return the sizes of data and output along a spatial axis."""

    def forward_resource(self, inputs: Sequence[TensorSpec]) -> list[ResourceRequest]:
        """Request columns for as many images as `workspace` allows, at least one."""
        p, data = self.parameters, inputs[0].shape
        unknown = [None] * (len(self.list_arguments()) - 1)
        output = require_complete(self.infer_shape([data, *unknown], [None]).outputs[0])
        images, windows = (output, data) if self.transposed else (data, output)
        limit = p.workspace_bytes
        space = columns_space(images, inputs[0].dtype, p.window(), windows[2:], limit)
        return [ResourceRequest(ResourceKind.TEMP_SPACE, space)]

    def backward_resource(self, inputs: Sequence[TensorSpec]) -> list[ResourceRequest]:
        """Request the same space, for the columns or their gradients."""
        return self.forward_resource(inputs)

    def flops(self, in_shapes: Sequence[Shape], out_shapes: Sequence[Shape]) -> int:
        """Two per multiply-add."""
        (windows,) = in_shapes[:1] if self.transposed else out_shapes
        return 2 * math.prod(windows) * math.prod(in_shapes[1][1:])

    def create_operator(self) -> Operator:
        """Create the NumPy body."""
        return WindowProduct(self.parameters, self.transposed)


class WindowProduct(Operator):
    """NumPy body: im2col and one matrix product per image and group.

    A transposed product exchanges images and windows: data are the windows, the output the images.
    """

    def __init__(self, parameters: WindowProductParameters, transposed: bool) -> None:
        self.parameters, self.transposed = parameters, transposed

    def forward(self, call: ForwardCall) -> None:
        """output = weight x columns(data) + bias; transposed: fold(weight^T x data) + bias."""
        call.store(output=self.output(call))

    def output(self, call: ForwardCall) -> Array:
        """Return the product of data and weight, plus bias."""
        inputs, spatial = call.inputs, call.outputs.output.shape[2:]
        products = self._products(call)
        product = products.images if self.transposed else products.windows
        result = product(inputs.data, inputs.weight, spatial)
        if "bias" in inputs:
            result += inputs.bias.reshape(-1, *(1,) * len(spatial))
        return result

    def backward(self, call: BackwardCall) -> None:
        """Gradients: data: fold(weight^T x grad), transposed: weight x columns(grad); weight:
        windows x columns(images)^T; bias: sum of grad.
        """
        gradient, data = call.output_gradients.output, call.inputs.data
        products = self._products(call)
        if call.is_requested("data"):
            product = products.windows if self.transposed else products.images
            call.store(data=product(gradient, call.inputs.weight, data.shape[2:]))
        if call.is_requested("weight"):
            images, windows = (gradient, data) if self.transposed else (data, gradient)
            call.store(weight=products.weight(images, windows))
        if "bias" in call.requests:
            call.store(bias=sum_over(gradient, (0, *range(2, gradient.ndim))))

    def _products(self, call: OperatorCall) -> WindowProducts:
        p = self.parameters
        window = p.window_over(call.inputs.data.shape[2:])
        return WindowProducts(window, p.num_group, call.space(0))
