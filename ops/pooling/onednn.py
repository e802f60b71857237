"""Averages over windows by oneDNN."""

from __future__ import annotations

import math
from dataclasses import replace

from mxrun.base.dtype import FLOAT32
from mxrun.base.tensor import CHANNELS_LAST, Shape
from mxrun.device.cpu.onednn import operations
from mxrun.device.cpu.onednn.kernel_part import PrimitivePart, onednn_serves
from mxrun.device.cpu.onednn.primitive import Argument
from mxrun.operator.constraints import Unsupported
from mxrun.operator.kernel import BackwardRequest, ForwardRequest, Kernel
from mxrun.operator.native_kernel import native_kernel, source, target
from mxrun.operator.register import AnyProperty, Implementation, implement
from mxrun.ops.pooling.operator import PoolingParameters

# Most elements that oneDNN adds one after the other in float32.
_MAX_TERMS = 256


@implement("Pooling", backend="onednn", before="jit")
class OnednnPooling(Implementation):
    """oneDNN's average pooling on channels-last data, float32 or bfloat16.

    Not supported here: averages with windows entirely outside the data (possible with `full` if the
    stride exceeds the kernel), averages that count the padding of a window cut off beyond it, sums,
    maxima, for which oneDNN skips NaN, and float32 averages of large windows.
    """

    def prepare_forward(self, prop: AnyProperty, request: ForwardRequest) -> Kernel | None:
        """Prepare the averages of the windows."""
        (data,), (output,) = request.inputs, request.outputs
        pooling = _pooling(prop.parameters, data.shape, output.shape)
        if pooling is None or not onednn_serves(data, low=True) or data.dtype != output.dtype:
            return None
        if data.dtype == FLOAT32 and math.prod(pooling[1]) > _MAX_TERMS:
            return None
        specs = (data.with_layout(CHANNELS_LAST), output.with_layout(CHANNELS_LAST))
        cut, trains = request.device.cut_for_elements(data.elements), request.has_backward
        try:
            primitive = operations.pooling_forward(*specs, *pooling, cut, is_train=trains)
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
            request.device,
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
        read, written = (
            replace(spec, dtype=dtype, layout=CHANNELS_LAST) for spec in (gradient, data_grad)
        )
        cut = request.device.cut_for_elements(data_grad.elements)
        primitive = operations.pooling_backward(written, read, *pooling, cut)
        slots = {Argument.OUTPUT_GRAD: source(0), Argument.SOURCE_GRAD: target(0)}
        return native_kernel(
            f"onednn:{primitive.implementation}",
            [PrimitivePart(primitive, slots)],
            (read, None, None),
            (written,),
            request.requests,
            request.device,
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
    geometry = operations.SlidingWindow(
        stride=window.stride, dilation=window.dilate, pad_begin=window.pad, pad_end=pad_end
    )
    return kind, window.kernel, geometry
