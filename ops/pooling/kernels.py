"""Pooling with oneDNN and compiled loops."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from mxrun.backend.arguments import Arguments
from mxrun.backend.jit import NativeCode
from mxrun.backend.onednn import operations
from mxrun.backend.onednn.primitive import Argument, Unsupported
from mxrun.backend.team import team_for_elements
from mxrun.base.dtype import FLOAT32
from mxrun.base.tensor import CHANNELS_LAST, Shape, TensorSpec
from mxrun.operator import scalar
from mxrun.operator.kernel import BackwardRequest, ForwardRequest, Kernel, OpReqType, adding
from mxrun.operator.native_kernel import (
    LoopPart,
    PrimitivePart,
    extra,
    native_kernel,
    onednn_serves,
    source,
    target,
)
from mxrun.operator.register import AnyProperty, Implementation, implement
from mxrun.ops.pooling.maximum import Maximum, maximum_code, winner_bytes, winners_at
from mxrun.ops.pooling.maximum_gradient import MaximumGradient, maximum_gradient_code
from mxrun.ops.pooling.operator import PoolingParameters
from mxrun.ops.pooling.sum import (
    WindowSum,
    WindowSumGradient,
    averaged_windows_of,
    window_sum_gradient_loop,
    window_sum_loop,
    windows_of,
)


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
        winners: tuple[TensorSpec, ...] = ()
        if parameters.pool_type == "max":
            window = parameters.window(data.shape[2:])
            code: NativeCode = maximum_code(data, output, window)
            size = winner_bytes(window) if request.is_train else 0
            if size:
                winners = (TensorSpec(output.shape, _WINNERS[size], CHANNELS_LAST),)
            arguments: Arguments = Maximum(
                **windows_of(data.shape, output.shape, window),
                **winners_at(extra(0), size),
                data=source(0),
                output=target(0),
            )
        else:
            code, windows = window_sum_loop, _averaged_windows(parameters, data, output)
            arguments = WindowSum(**windows, data=source(0), output=target(0))
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
        winners = request.forward.extra_outputs
        if winners:
            window = prop.parameters.window(data_grad.shape[2:])
            adds = request.requests[0] is OpReqType.ADD
            code: NativeCode = maximum_gradient_code(data_grad, gradient, window, adds)
            arguments: Arguments = MaximumGradient(
                **windows_of(data_grad.shape, gradient.shape, window),
                **winners_at(source(3), winner_bytes(window)),
                out_grad=source(0),
                gradient=target(0),
            )
        else:
            code = window_sum_gradient_loop
            windows = _averaged_windows(prop.parameters, data_grad, gradient)
            arguments = WindowSumGradient(**windows, out_grad=source(0), gradient=target(0))
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


def _averaged_windows(
    parameters: PoolingParameters, data: TensorSpec, output: TensorSpec
) -> dict[str, int]:
    window = parameters.window(data.shape[2:])
    margin, is_average = parameters.margin(window), parameters.pool_type == "avg"
    return averaged_windows_of(data.shape, output.shape, window, margin, is_average)
