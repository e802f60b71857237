"""Pooling over one, two or three spatial axes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Annotated, Any, Literal, TypeVar

import numpy as np
import numpy.typing as npt
from pydantic import Field, model_validator

from mxrun.backend.jit import NativeCode
from mxrun.backend.onednn import operations
from mxrun.backend.onednn.primitive import Argument, Unsupported
from mxrun.backend.team import team_for_elements
from mxrun.base.dtype import FLOAT32
from mxrun.base.params import Parameters
from mxrun.base.tensor import CHANNELS_LAST, PartialShape, Shape, TensorSpec
from mxrun.operator import scalar
from mxrun.operator.kernel import BackwardRequest, ForwardRequest, Kernel, OpReqType, adding
from mxrun.operator.native_kernel import (
    LoopPart,
    PrimitivePart,
    Slot,
    extra,
    native_kernel,
    onednn_serves,
    source,
    target,
)
from mxrun.operator.operator import OpContext, Operator, assign, require_array
from mxrun.operator.property import OperatorProperty, PartialInference, PartialShapes, Precision
from mxrun.operator.register import AnyProperty, Implementation, implement, register
from mxrun.operator.shape import Dimensions, ShapeContradiction, show, unify
from mxrun.operator.tensor import Tensor
from mxrun.ops.pooling.maximum import maximum_code, winner_bytes
from mxrun.ops.pooling.maximum_gradient import maximum_gradient_code
from mxrun.ops.pooling.sum import window_arguments, window_sum_gradient_loop, window_sum_loop
from mxrun.ops.window import NonNegative, Positive, Window

T = TypeVar("T")
Array = npt.NDArray[Any]

LAYOUTS = {1: "NCW", 2: "NCHW", 3: "NCDHW"}


class PoolingParameters(Parameters):
    """Parameters of Pooling (MXNet's names and defaults)."""

    kernel: Annotated[tuple[Positive, ...], Field(max_length=3)] = Field(
        default=(),
        description="Window size: (w,), (h, w) or (d, h, w); not needed by global_pool.",
        examples=[(2, 2)],
    )
    pool_type: Literal["max", "avg", "sum", "lp"] = Field(
        default="max", description="Reduction applied to each window."
    )
    global_pool: bool = Field(
        default=False,
        description="One window over all positions; kernel, stride and pad have no effect.",
    )
    cudnn_off: bool = Field(
        default=False, description="Accepted for MXNet's models; has no effect."
    )
    pooling_convention: Literal["valid", "full", "same"] = Field(
        default="valid",
        description="Rounds the output size down (valid) or up (full); same gives size / "
        "stride, rounded up, for one axis without pad.",
    )
    stride: tuple[Positive, ...] = Field(
        default=(), description="Distance between windows along each axis; default 1."
    )
    pad: tuple[NonNegative, ...] = Field(
        default=(),
        description="Positions added at both ends of each axis; default 0. For max and avg it "
        "must be smaller than the kernel.",
    )
    p_value: Annotated[int, Field(ge=1, le=3)] | None = Field(
        default=None, description="Exponent p of lp pooling; required for lp."
    )
    count_include_pad: bool | None = Field(
        default=None, description="Count padding in avg; default true."
    )
    layout: Literal["NCW", "NCHW", "NCDHW"] | None = Field(
        default=None, description="Logical axis order; channels always follow the batch."
    )

    @model_validator(mode="after")
    def _consistent(self) -> PoolingParameters:
        if self.pool_type == "lp" and self.p_value is None:
            raise ValueError("pool_type lp needs p_value")
        if self.global_pool:
            return self
        rank = len(self.kernel)
        if rank == 0:
            raise ValueError("kernel is needed unless global_pool is true")
        for name in ("stride", "pad"):
            given = len(getattr(self, name))
            if given not in (0, rank):
                raise ValueError(f"{name} has {given} numbers, but kernel has {rank}")
        # As in MXNet: a window of padding only has neither a maximum nor an average.
        if self.pool_type in ("max", "avg"):
            for pad, size in zip(self.pad, self.kernel, strict=False):
                if pad >= size:
                    rule = f"for pool_type {self.pool_type} (sum and lp take any)"
                    raise ValueError(f"pad {pad} must be smaller than its kernel {size} {rule}")
        if self.pooling_convention == "same" and (rank != 1 or any(self.pad)):
            raise ValueError("pooling_convention same is for one axis without pad")
        if self.layout not in (None, LAYOUTS[rank]):
            raise ValueError(
                f"layout {self.layout} does not fit {rank} kernel axes; use {LAYOUTS[rank]}"
            )
        return self

    def window(self, spatial: Shape) -> Window:
        """Return the window geometry for data's spatial axes, with MXNet's defaults."""
        ones, zeros = (1,) * len(spatial), (0,) * len(spatial)
        if self.global_pool:
            return Window(kernel=spatial, stride=ones, dilate=ones, pad=zeros)
        return Window(self.kernel, self.stride or ones, ones, self.pad or zeros)

    def margin(self, window: Window) -> Shape:
        """Return the number of positions beyond the data, per axis, that avg counts."""
        return tuple(pad if self.count_include_pad is not False else 0 for pad in window.pad)


@register("Pooling")
class PoolingProperty(OperatorProperty[PoolingParameters]):
    """output[n, c, y] = max, average, sum or p-norm (sum of x^p)^(1/p) of data's window at y.

    data [N, C, spatial...], output [N, C, windows...]. Padding is never a maximum and adds zero to
    a sum. If several elements equal the maximum, the first in row-major order receives the
    gradient.

    The maximum of a window with NaN is NaN, and infinities are maxima like other numbers. MXNet
    1.9.1 skips NaN, and its maxima are not below the lowest finite number, which is also the
    maximum of a window entirely outside the data.

    Backward reads the output's gradient, data and output (for avg and sum only the gradient).

    Fast float32 implementations: oneDNN for avg; compiled loops for max, sum and the averages that
    oneDNN lacks. lp has only the NumPy body. bfloat16: max, and avg where oneDNN supports it.
    """

    type_string = "Pooling"
    parameter_type = PoolingParameters
    precision = Precision.INHERIT

    def infer_shape(self, inputs: PartialShapes, outputs: PartialShapes) -> PartialInference:
        """Infer batch and channels in both directions; sizes forward, backward for stride 1."""
        data, output = self._ranked(inputs[0], outputs[0])
        if data is None or output is None:
            return PartialInference([data], [output], [])
        rank = len(data) - 2
        data = unify("data", data, (*output[:2], *(None,) * rank), "output")
        sizes = [self._sizes(axis, data, output) for axis in range(rank)]
        data = unify("data", data, (None, None, *(size for size, _ in sizes)), "output")
        output = unify(
            "output",
            output,
            (*data[:2], *(count for _, count in sizes)),
            "data, kernel, stride, pad and pooling_convention",
        )
        return PartialInference([data], [output], [])

    def _ranked(
        self, data: PartialShape, output: PartialShape
    ) -> tuple[PartialShape, PartialShape]:
        rank = len(self.parameters.kernel) + 2
        if self.parameters.kernel:
            rule = f"[batch, channel] and the {rank - 2} axes of the kernel"
            data = unify("data", data, (None,) * rank, rule)
        if data is None and output is None:
            return None, None
        rank = len(data or output or ())
        if not 3 <= rank <= 5:
            raise ShapeContradiction(
                "data", show(data or output), "rank 3 to 5", "[batch, channel] and spatial axes"
            )
        unknown: PartialShape = (None,) * rank
        return unify("data", data, unknown, "output"), unify("output", output, unknown, "data")

    def _sizes(
        self, axis: int, data: Dimensions, output: Dimensions
    ) -> tuple[int | None, int | None]:
        if self.parameters.global_pool:
            return data[axis + 2], 1
        convention = self.parameters.pooling_convention
        window = self.parameters.window((1,) * (len(data) - 2))
        size, count = data[axis + 2], output[axis + 2]
        if size is not None:
            windows = window.output_size(axis, size, round_up=convention == "full")
            if windows < 1:
                rule = f"kernel {list(window.kernel)} within the padded input"
                raise ShapeContradiction(
                    "data", show(data), f"at least {window.kernel[axis]}", rule
                )
            if convention == "same":
                windows = -(-size // window.stride[axis])
            return size, windows
        if count is not None and window.stride[axis] == 1:
            gain = 0 if convention == "same" else window.kernel[axis] - 1 - 2 * window.pad[axis]
            size = count + gain
            if size < 1:
                rule = f"kernel {list(window.kernel)} and pad {list(window.pad)}"
                raise ShapeContradiction("output", show(output), f"at least {1 - gain}", rule)
        return size, count

    @property
    def is_max_selection(self) -> bool:
        """True for max, unless a window can be entirely outside the data."""
        return self.parameters.pool_type == "max" and self.parameters.pooling_convention != "full"

    def declare_backward_dependency(
        self, out_grad: Sequence[T], in_data: Sequence[T], out_data: Sequence[T]
    ) -> list[T]:
        """Return out_grad; for max and lp also data and output."""
        if self.parameters.pool_type in ("avg", "sum"):
            return [out_grad[0]]
        return [out_grad[0], in_data[0], out_data[0]]

    def flops(self, in_shapes: Sequence[Shape], out_shapes: Sequence[Shape]) -> int:
        """One per element of every window."""
        window = self.parameters.window(in_shapes[0][2:])
        return math.prod(out_shapes[0]) * math.prod(window.kernel)

    def create_operator(self) -> Operator:
        """Create the NumPy body."""
        return Pooling(self.parameters)


class Pooling(Operator):
    """NumPy body: one pass over all windows per kernel position."""

    def __init__(self, parameters: PoolingParameters) -> None:
        self.parameters = parameters

    def forward(
        self,
        context: OpContext,
        in_data: Sequence[Tensor],
        req: Sequence[OpReqType],
        out_data: Sequence[Tensor],
        aux_states: Sequence[Tensor],
    ) -> None:
        """output = maxima, averages, sums or norms of the windows."""
        data, shape = in_data[0].array, out_data[0].shape
        window = self.parameters.window(data.shape[2:])
        kind, power = self.parameters.pool_type, self.parameters.p_value or 1
        result = np.full(shape, -np.inf if kind == "max" else 0, data.dtype)
        empty = np.ones(shape[2:], bool)
        for _, read, written in window.regions(data.shape[2:], shape[2:]):
            empty[written] = False
            if kind == "max":
                np.maximum(result[written], data[read], out=result[written])
            else:
                result[written] += data[read] ** power if kind == "lp" else data[read]
        if kind == "max":
            result[..., empty] = np.finfo(data.dtype).min
        if kind == "avg":
            result /= self._counts(window, data.shape[2:], shape[2:], data.dtype)
        if kind == "lp":
            result = _root(result, power)
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
        """Gradient of data: max: grad at the first maximum; avg: grad / count; sum: grad; lp: grad
        * (x / output)^(p - 1).
        """
        gradient, target = require_array(out_grad[0]), in_grad[0]
        if target is None:
            return
        spatial, windows = target.shape[2:], gradient.shape[2:]
        window = self.parameters.window(spatial)
        result = np.zeros(target.shape, gradient.dtype)
        regions = window.regions(spatial, windows)
        if self.parameters.pool_type in ("avg", "sum"):
            if self.parameters.pool_type == "avg":
                gradient = gradient / self._counts(window, spatial, windows, gradient.dtype)
            for _, read, written in regions:
                result[read] += gradient[written]
        elif self.parameters.pool_type == "max":
            data, output = require_array(in_data[0]), require_array(out_data[0])
            waiting = np.ones(gradient.shape, bool)
            for _, read, written in regions:
                equal = (data[read] == output[written]) | np.isnan(data[read])
                chosen = equal & waiting[written]
                result[read] += np.where(chosen, gradient[written], 0)
                waiting[written] &= ~chosen
        else:
            data, output = require_array(in_data[0]), require_array(out_data[0])
            power = self.parameters.p_value or 1
            # A window of zeros has output 0 and, as in MXNet, zero gradient for p > 1.
            safe = np.where(output == 0, 1, output)
            for _, read, written in regions:
                slope = (data[read] / safe[written]) ** (power - 1)
                result[read] += gradient[written] * slope
        assign(target, req[0], result)

    def _counts(self, window: Window, spatial: Shape, windows: Shape, dtype: Any) -> Array:
        """Return the divisors of avg: each window's elements within the (padded) input."""
        counts = np.ones((), dtype)
        margins = self.parameters.margin(window)
        for axis, (size, number, margin) in enumerate(zip(spatial, windows, margins, strict=True)):
            start = np.arange(number) * window.stride[axis] - window.pad[axis]
            length = np.minimum(start + window.kernel[axis], size + margin) - np.maximum(
                start, -margin
            )
            # A window beyond the end (possible with `full`) is empty, and its sum is zero.
            counts = counts[..., None] * np.maximum(length, 1).astype(dtype)
        return counts


def _root(value: Array, power: int) -> Array:
    if power == 1:
        return value
    root: Array = np.sqrt(value) if power == 2 else np.cbrt(value)
    return root


@implement("Pooling", backend="onednn")
class OnednnPooling(Implementation):
    """oneDNN's average pooling on channels-last data, float32 or bfloat16.

    Not supported here: averages with windows entirely outside the data (possible with `full` if the
    stride exceeds the kernel), averages that count the padding of a window cut off beyond it, sums,
    and maxima, for which oneDNN skips NaN.
    """

    def prepare_forward(self, prop: AnyProperty, request: ForwardRequest) -> Kernel | None:
        """Prepare the averages of the windows."""
        (data,), (output,) = request.inputs, request.outputs
        pooling = _pooling(prop.parameters, data.shape, output.shape)
        if pooling is None or not onednn_serves(data, low=True) or data.dtype != output.dtype:
            return None
        specs = (data.with_layout(CHANNELS_LAST), output.with_layout(CHANNELS_LAST))
        team, is_train = team_for_elements(data.elements, request.threads), request.is_train
        try:
            primitive = operations.pooling_forward(*specs, *pooling, team, is_train=is_train)
        except Unsupported:
            # bfloat16 on a processor whose vectors are too short for oneDNN's implementation.
            return None
        slots = {Argument.SOURCE: source(0), Argument.OUTPUT: target(0)}
        return native_kernel(
            f"onednn:{primitive.implementation}",
            [PrimitivePart(primitive, slots)],
            specs[:1],
            specs[1:],
            request.requests,
            request.threads,
            flops=prop.flops([data.shape], [output.shape]),
        )

    def prepare_backward(self, prop: AnyProperty, request: BackwardRequest) -> Kernel | None:
        """Prepare the gradient, in equal shares per window."""
        (gradient,), (data_grad,) = request.out_grad, request.in_grad
        assert gradient is not None
        pooling = _pooling(prop.parameters, data_grad.shape, gradient.shape)
        assert pooling is not None
        window = prop.parameters.window(data_grad.shape[2:])
        axes = zip(gradient.shape[2:], window.kernel, window.stride, strict=True)
        overlap = any(count > 1 and kernel > stride for count, kernel, stride in axes)
        # Where windows overlap, oneDNN would round to bfloat16 at every addition.
        dtype = FLOAT32 if overlap else data_grad.dtype
        specs = (_pooled(data_grad, dtype), _pooled(gradient, dtype))
        team = team_for_elements(data_grad.elements, request.threads)
        primitive = operations.pooling_backward(*specs, *pooling, team)
        slots = {Argument.OUTPUT_GRAD: source(0), Argument.SOURCE_GRAD: target(0)}
        return native_kernel(
            f"onednn:{primitive.implementation}",
            [PrimitivePart(primitive, slots)],
            (specs[1], None, None),
            specs[:1],
            request.requests,
            request.threads,
            flops=request.forward.flops,
        )


def _pooling(
    parameters: PoolingParameters, data: Shape, output: Shape
) -> tuple[operations.PoolType, Shape, operations.SlidingWindow] | None:
    """Return kind, kernel and geometry in oneDNN's terms, or None if it is not supported."""
    if parameters.pool_type != "avg":
        return None
    window = parameters.window(data[2:])
    axes = range(len(window.kernel))
    starts = [(output[axis + 2] - 1) * window.stride[axis] - window.pad[axis] for axis in axes]
    beyond = [starts[axis] + window.kernel[axis] - data[axis + 2] for axis in axes]
    if any(starts[axis] >= data[axis + 2] for axis in axes):
        return None
    kind = operations.PoolType.AVERAGE_WITH_PADDING
    cut_off = any(beyond[axis] > window.pad[axis] for axis in axes)
    if cut_off or parameters.count_include_pad is False:
        kind = operations.PoolType.AVERAGE_WITHOUT_PADDING
    if cut_off and any(window.pad) and parameters.count_include_pad is not False:
        return None
    pad_end = tuple(max(window.pad[axis], beyond[axis]) for axis in axes)
    geometry = operations.SlidingWindow(window.stride, window.dilate, window.pad, pad_end)
    return kind, window.kernel, geometry


@implement("Pooling", backend="jit")
class CompiledPooling(Implementation):
    """Maxima, sums and averages on channels-last data; bfloat16 for maxima only.

    In training, max also writes the winner of each window, one byte per output (four if a window
    has more than 256 elements), so that backward needs neither data nor output.
    """

    def prepare_forward(self, prop: AnyProperty, request: ForwardRequest) -> Kernel | None:
        """Prepare the maxima, sums or averages of the windows."""
        (data,), (output,) = request.inputs, request.outputs
        parameters = prop.parameters
        # oneDNN is required for the reorders to the channels-last layout.
        low = parameters.pool_type == "max"
        if parameters.pool_type == "lp" or not onednn_serves(data, low=low):
            return None
        if data.dtype != output.dtype:
            return None
        tensors: tuple[Slot | int, ...] = (source(0), target(0))
        winners: tuple[TensorSpec, ...] = ()
        code: NativeCode = window_sum_loop
        if parameters.pool_type == "max":
            window = parameters.window(data.shape[2:])
            code = maximum_code(data, output, window)
            size = winner_bytes(window) if request.is_train else 0
            if size:
                winners = (TensorSpec(output.shape, _WINNERS[size], CHANNELS_LAST),)
            tensors += (extra(0) if size else 0, size)
        arguments = (*_window_arguments(parameters, data, output), *tensors)
        team = team_for_elements(data.elements, request.threads)
        return native_kernel(
            self.name,
            [LoopPart(code, arguments, team)],
            (data.with_layout(CHANNELS_LAST),),
            (output.with_layout(CHANNELS_LAST),),
            request.requests,
            request.threads,
            extra_outputs=winners,
            flops=prop.flops([data.shape], [output.shape]),
        )

    def prepare_backward(self, prop: AnyProperty, request: BackwardRequest) -> Kernel | None:
        """Prepare the gradient, passed to the winners or in equal shares."""
        (gradient,), (data_grad,) = request.out_grad, request.in_grad
        assert gradient is not None
        team = team_for_elements(data_grad.elements, request.threads)
        tensors: tuple[Slot | int, ...] = (source(0), target(0))
        winners = request.forward.extra_outputs
        code: NativeCode = window_sum_gradient_loop
        if winners:
            window = prop.parameters.window(data_grad.shape[2:])
            adds = request.requests[0] is OpReqType.ADD
            code = maximum_gradient_code(data_grad, gradient, window, adds)
            tensors += (source(3), winner_bytes(window))
        arguments = (*_window_arguments(prop.parameters, data_grad, gradient), *tensors)
        return native_kernel(
            self.name,
            [LoopPart(code, arguments, team)],
            (_pooled(gradient, data_grad.dtype), None, None, *winners),
            (_pooled(data_grad, data_grad.dtype),),
            scalar.without_add_requests(request.requests) if winners else request.requests,
            request.threads,
            flops=request.forward.flops,
            adding=adding(partial(self.prepare_backward, prop), request, (0,) if winners else ()),
        )


# dtypes of winners by their size in bytes.
_WINNERS = {1: "uint8", 4: "int32"}


def _pooled(spec: TensorSpec, dtype: str) -> TensorSpec:
    """Return the spec as channels-last with the given dtype, which all kernels here require."""
    return replace(spec, dtype=dtype, layout=CHANNELS_LAST)


def _window_arguments(
    parameters: PoolingParameters, data: TensorSpec, output: TensorSpec
) -> tuple[int, ...]:
    window = parameters.window(data.shape[2:])
    margin = parameters.margin(window)
    average = parameters.pool_type == "avg"
    return window_arguments(data.shape, output.shape, window, margin, average)
