"""Pooling by compiled loops."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from mxrun.base.dtype import BFLOAT16, FLOAT32
from mxrun.base.tensor import CHANNELS_LAST, TensorSpec
from mxrun.codegen.arguments import Arguments
from mxrun.codegen.jit import NativeCode
from mxrun.operator import scalar
from mxrun.operator.kernel import BackwardRequest, ForwardRequest, Kernel, OpReqType, adding
from mxrun.operator.native_kernel import LoopPart, extra, native_kernel, source, target
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
        types = (FLOAT32, BFLOAT16) if parameters.pool_type == "max" else (FLOAT32,)
        if parameters.pool_type == "lp" or data.dtype not in types or not data.elements:
            return None
        # Only kernels of a library, for some instruction set, reorder to the channels-last layout.
        if data.dtype != output.dtype or not request.device.instruction_set:
            return None
        winners: tuple[TensorSpec, ...] = ()
        if parameters.pool_type == "max":
            window = parameters.window(data.shape[2:])
            code: NativeCode = maximum_code(data, output, window)
            size = winner_bytes(window) if request.has_backward else 0
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
        tasks = request.device.tasks_for_elements(data.elements)
        return native_kernel(
            self.name,
            [LoopPart(code, arguments, tasks)],
            (data.with_layout(CHANNELS_LAST),),
            (output.with_layout(CHANNELS_LAST),),
            request.requests,
            request.device,
            extra_outputs=winners,
            flops=prop.flops([data.shape], [output.shape]),
        )

    def prepare_backward(self, prop: AnyProperty, request: BackwardRequest) -> Kernel | None:
        """Prepare the gradient, passed to the winners or in equal shares."""
        (gradient,), (data_grad,) = request.out_grad, request.in_grad
        assert gradient is not None
        tasks = request.device.tasks_for_elements(data_grad.elements)
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
            [LoopPart(code, arguments, tasks)],
            (_pooled(gradient, data_grad.dtype), None, None, *winners),
            (_pooled(data_grad, data_grad.dtype),),
            scalar.without_add_requests(request.requests) if winners else request.requests,
            request.device,
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
