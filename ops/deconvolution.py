"""Deconvolution: transposed convolution over one, two or three spatial axes."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from pydantic import Field, model_validator

from mxrun.backend.onednn import operations
from mxrun.backend.onednn.backward_convolution import (
    backward_data,
    backward_weights,
    weight_gradient_is_sound,
)
from mxrun.backend.onednn.descriptor import ANY
from mxrun.backend.onednn.primitive import Argument, Unsupported
from mxrun.backend.team import team_for_flops
from mxrun.base.params import Int32
from mxrun.base.tensor import CHANNELS_LAST, PartialShape, Shape, TensorSpec
from mxrun.operator.kernel import BackwardRequest, ForwardRequest, Kernel, OpReqType
from mxrun.operator.native_kernel import (
    GradientParts,
    KernelPart,
    PrimitivePart,
    native_kernel,
    onednn_serves,
    source,
    target,
)
from mxrun.operator.operator import BackwardCall, ForwardCall, Operator, OperatorCall
from mxrun.operator.register import AnyProperty, Implementation, implement, register
from mxrun.operator.shape import Dimensions, ShapeContradiction, show, unify
from mxrun.ops.copy_part import COPY
from mxrun.ops.strided_map import strided_part
from mxrun.ops.window import NonNegative, Window, WindowProducts
from mxrun.ops.window_product import WindowProductParameters, WindowProductProperty


class DeconvolutionParameters(WindowProductParameters):
    """Parameters of Deconvolution (MXNet's names and defaults).

    kernel, stride, dilate and pad are those of the corresponding convolution.
    """

    adj: tuple[NonNegative, ...] = Field(
        default=(),
        description="Positions added at the end of each axis of the output, fewer than stride; "
        "default 0.",
    )
    target_shape: tuple[NonNegative, ...] = Field(
        default=(),
        description="Sizes of the output, from which pad and adj are then computed; all zeros "
        "mean not given.",
    )
    workspace: Int32 = Field(
        default=512,
        ge=0,
        description="Limit in MiB of the temporary space of a product: an implementation that "
        "needs more is used only if there is no other. Also limits how many images the NumPy "
        "body unfolds at once.",
    )
    no_bias: bool = Field(default=True, description="Omit the bias.")

    @model_validator(mode="after")
    def _sizes_consistent(self) -> DeconvolutionParameters:
        rank = len(self.kernel)
        for name in ("adj", "target_shape"):
            given = len(getattr(self, name))
            if given not in (0, rank):
                raise ValueError(f"{name} has {given} numbers, but kernel has {rank}")
        if any(self.target_shape):
            if not all(self.target_shape):
                raise ValueError("target_shape has a 0 beside other sizes")
            return self
        for adj, stride in zip(self.adj, self.window().stride, strict=False):
            if adj >= stride:
                raise ValueError(f"adj {adj} must be smaller than its stride {stride}")
        return self

    def output_size(self, axis: int, size: int) -> int:
        """Return stride * (size - 1) + extent - 2 * pad + adj, or the size in target_shape."""
        if any(self.target_shape):
            return self.target_shape[axis]
        adj = self.adj[axis] if self.adj else 0
        return self._full_size(axis, size) - 2 * self.window().pad[axis] + adj

    def excess(self, axis: int, size: int) -> int:
        """Return the number of positions that windows write beyond the output: 2 * pad - adj."""
        return self._full_size(axis, size) - self.output_size(axis, size)

    def window_over(self, spatial: Shape) -> Window:
        """Return the geometry for data's spatial axes; pad = ceil(excess / 2) with target_shape."""
        if not any(self.target_shape):
            return self.window()
        pads = tuple((self.excess(axis, size) + 1) // 2 for axis, size in enumerate(spatial))
        return replace(self.window(), pad=pads)

    def _full_size(self, axis: int, size: int) -> int:
        window = self.window()
        return window.stride[axis] * (size - 1) + window.extent(axis)


@register("Deconvolution")
class DeconvolutionProperty(WindowProductProperty[DeconvolutionParameters]):
    """output[n, o, y*stride + k*dilate - pad] = sum of weight[c, o, k] * data[n, c, y] over y, k
    and the channels c of o's group, plus bias[o]. This is the data gradient of a Convolution.

    data [N, C, spatial...], weight [C, num_filter / num_group, kernel...], bias [num_filter],
    output [N, num_filter, stride * (spatial - 1) + dilate * (kernel - 1) + 1 - 2 * pad + adj...].
    With target_shape, 2 * pad - adj has the value that gives this size, and adj (0 or 1) is its
    parity. Backward reads the output's gradient, data and weight.
    """

    type_string = "Deconvolution"
    parameter_type = DeconvolutionParameters
    transposed = True
    rule_of_sizes = "data, kernel, stride, dilate, pad, adj and target_shape"

    def infer_weight(self, data: Dimensions, weight: PartialShape) -> tuple[int | None, Dimensions]:
        """Weight has one kernel per channel of data, over the filters of one group."""
        p = self.parameters
        filters = p.num_filter // p.num_group
        rule = "num_filter / num_group and kernel"
        weight = unify("weight", weight, (None, filters, *p.kernel), rule)
        inferred = (data[1], None, *(None,) * len(p.kernel))
        weight = unify("weight", weight, inferred, "data's channels")
        if weight[0] is not None:
            self.require_groups(data, weight[0])
        return weight[0], weight

    def infer_sizes(
        self, axis: int, data: Dimensions, output: Dimensions
    ) -> tuple[int | None, int | None]:
        """Infer sizes forward, and backward without target_shape."""
        p = self.parameters
        size, given = data[axis + 2], output[axis + 2]
        if size is None:
            if any(p.target_shape):
                return None, p.target_shape[axis]
            return self._size_for(axis, output), given
        positions, excess = p.output_size(axis, size), p.excess(axis, size)
        if positions < 1:
            raise ShapeContradiction("data", show(data), "larger", f"pad {list(p.pad)}")
        if any(p.target_shape):
            rule = f"target_shape {list(p.target_shape)}"
            if excess < 0:
                raise ShapeContradiction("data", show(data), "larger", rule)
            if excess % 2 >= p.window().stride[axis]:
                inferred = f"[..., {positions + excess % 2}, ...]"
                raise ShapeContradiction("output", show(output), inferred, f"{rule} at stride 1")
        return size, positions

    def _size_for(self, axis: int, output: Dimensions) -> int | None:
        """Return data's size for the given output; raises ShapeContradiction if none fits."""
        size = output[axis + 2]
        if size is None:
            return None
        stride, one = self.parameters.window().stride[axis], self.parameters.output_size(axis, 1)
        if size < one or (size - one) % stride:
            rule = "kernel, stride, dilate, pad and adj"
            inferred = f"{one} and a multiple of {stride} along axis {axis + 2}"
            raise ShapeContradiction("output", show(output), inferred, rule)
        return (size - one) // stride + 1

    def images_and_positions(self, data: Shape) -> tuple[Shape, Shape]:
        """Data are the windows."""
        return (data[0], self.parameters.num_filter), data[2:]

    def create_operator(self) -> Operator:
        """Create the NumPy body."""
        return Deconvolution(self.parameters)


class Deconvolution(Operator):
    """NumPy body: Convolution's products with data as the windows and the output as the images."""

    def __init__(self, parameters: DeconvolutionParameters) -> None:
        self.parameters = parameters

    def forward(self, call: ForwardCall) -> None:
        """output = fold(weight^T x data) + bias."""
        inputs, spatial = call.inputs, call.outputs.output.shape[2:]
        products = self._products(call, inputs.data.shape)
        result = products.images(inputs.data, inputs.weight, spatial)
        if "bias" in inputs:
            result += inputs.bias.reshape(-1, *(1,) * len(spatial))
        call.store(output=result)

    def backward(self, call: BackwardCall) -> None:
        """Gradients: data: weight x columns(grad); weight: data x columns(grad)^T; bias: sum of
        grad.
        """
        gradient, data, weight = (
            call.output_gradients.output,
            call.inputs.data,
            call.inputs.weight,
        )
        products = self._products(call, data.shape)
        if call.is_requested("data"):
            call.store(data=products.windows(gradient, weight, data.shape[2:]))
        if call.is_requested("weight"):
            call.store(weight=products.weight(gradient, data))
        if "bias" in call.requests:
            call.store(bias=gradient.sum(axis=(0, *range(2, gradient.ndim))))

    def _products(self, call: OperatorCall, data: Shape) -> WindowProducts:
        p = self.parameters
        return WindowProducts(p.window_over(data[2:]), p.num_group, call.space(0))


@implement("Deconvolution", backend="onednn")
class OnednnDeconvolution(Implementation):
    """oneDNN's convolutions with the roles of data and output exchanged, channels last.

    The weight needs no transposition. oneDNN's own deconvolutions wrap the same code; their only
    advantage is a cheaper bias.
    """

    def prepare_forward(self, prop: AnyProperty, request: ForwardRequest) -> Kernel | None:
        """Prepare the data gradient of the convolution, then the addition of the bias."""
        data, weight, *bias = request.inputs
        if not onednn_serves(*request.inputs):
            return None
        output = request.outputs[0].with_layout(CHANNELS_LAST)
        flops = prop.flops([data.shape, weight.shape], [output.shape])
        window = _geometry(prop.parameters, data.shape)
        if request.is_train and not weight_gradient_is_sound(
            output, weight.shape[2:], data, window
        ):
            return None
        try:
            prepare = partial(
                backward_data,
                output,
                weight.with_layout(ANY),
                data.with_layout(CHANNELS_LAST),
                window,
                team_for_flops(flops, request.threads),
            )
            primitive = request.choices.prepare("output", prepare, prop.parameters.workspace_bytes)
        except Unsupported:
            return None
        if primitive.is_reference:
            return None
        slots = {
            Argument.OUTPUT_GRAD: source(0),
            Argument.WEIGHTS: source(1),
            Argument.SOURCE_GRAD: target(0),
        }
        parts: list[KernelPart] = [PrimitivePart(primitive, slots)]
        if bias:
            channels = output.shape[1]
            rows = TensorSpec((output.elements // channels, channels))
            addend, requests = [(source(2), TensorSpec((channels,)))], [OpReqType.ADD]
            parts.append(
                strided_part(COPY, [target(0)], rows, addend, request.threads, requests=requests)
            )
        specs = primitive.specs
        return native_kernel(
            f"onednn:{primitive.implementation}",
            parts,
            (specs[Argument.OUTPUT_GRAD], specs[Argument.WEIGHTS], *bias),
            (specs[Argument.SOURCE_GRAD],),
            request.requests,
            request.threads,
            flops=flops,
        )

    def prepare_backward(self, prop: AnyProperty, request: BackwardRequest) -> Kernel | None:
        """Prepare the requested gradients.

        data: convolution of grad; weight: the convolution's weight gradient; bias: column sum of
        grad.
        """
        (gradient,), (data, weight, *_) = request.out_grad, request.in_data
        assert gradient is not None
        assert data is not None
        assert weight is not None
        specs = (
            gradient.with_layout(CHANNELS_LAST),
            weight.with_layout(ANY),
            data.with_layout(CHANNELS_LAST),
        )
        window = _geometry(prop.parameters, data.shape)
        team = team_for_flops(request.forward.flops, request.threads)
        limit = prop.parameters.workspace_bytes
        parts = GradientParts(request)
        if parts.is_requested(0):
            slots = {
                Argument.SOURCE: source(0),
                Argument.WEIGHTS: source(2),
                Argument.OUTPUT: target(0),
            }
            forward = partial(operations.convolution_forward, *specs, window, team)
            parts.add_primitive(
                request.choices.prepare(
                    "data_grad", lambda constraints: forward(constraints=constraints), limit
                ),
                slots,
            )
        if parts.is_requested(1):
            slots = {
                Argument.SOURCE: source(0),
                Argument.OUTPUT_GRAD: source(1),
                Argument.WEIGHTS_GRAD: target(1),
            }
            prepare = partial(backward_weights, *specs, window, team)
            parts.add_primitive(request.choices.prepare("weight_grad", prepare, limit), slots)
        if parts.is_requested(2):
            parts.add_column_sum(source(0), CHANNELS_LAST, target(2))
        products = parts.is_requested(0) + parts.is_requested(1)
        return parts.kernel(products * request.forward.flops)


def _geometry(parameters: DeconvolutionParameters, data: Shape) -> operations.SlidingWindow:
    window = parameters.window_over(data[2:])
    return operations.SlidingWindow(
        window.stride, window.dilate, window.pad, window.pad, parameters.num_group
    )
