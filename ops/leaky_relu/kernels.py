"""LeakyReLU in maps and compiled loops, in float32."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from mxrun.base.tensor import CHANNELS_LAST, PLAIN, TensorSpec, unpacked
from mxrun.codegen.arguments import Arguments, Float32s, Float64s, Integer, Real
from mxrun.codegen.intrinsics import each, random_words, share
from mxrun.codegen.jit import compact, inlined, native
from mxrun.codegen.loops import elements_of_task
from mxrun.codegen.vectors import (
    LANES,
    above,
    add_lanes,
    choose,
    lanes,
    load_lanes,
    multiply_lanes,
    store_lanes,
)
from mxrun.operator import scalar
from mxrun.operator.kernel import BackwardRequest, ForwardRequest, Kernel, OpReqType
from mxrun.operator.native_kernel import LoopPart, Scratch, native_kernel, source, target
from mxrun.operator.register import AnyProperty, implement
from mxrun.operator.simple import MapImplementation
from mxrun.ops.column_sum import clear_sums
from mxrun.ops.dropout import PRODUCT, RandomMask
from mxrun.ops.leaky_relu.operator import LeakyReLUParameters, leaky
from mxrun.ops.row_reduction import row_sum

# Rows that the hardware prefetcher can follow.
_NEAR_ROWS = 8
LEAKY = scalar.compile(leaky, parameters=("slope",))


class RandomSlopes(RandomMask):
    """Arguments of `rrelu_loop`; slopes are drawn between `lower` and `lower + width`."""

    lower: Real
    width: Real


@native
def rrelu_loop(call: RandomSlopes) -> None:
    """output = data * mask; mask[i] = 1 where data[i] > 0, else lower + width * u.

    u is the upper 24 bits of word i, times 2^-24.
    """
    state, data, mask, lower, width = call.state, call.data, call.mask, call.lower, call.width
    key, step = state[0] ^ call.stream, state[1]
    # Index, among the words of the entire batch, of this part's first word.
    origin = state[2] * call.count
    one, unit, low = np.float32(1), np.float32(2.0**-24), np.uint64(8)
    begin, end = share(call.count)
    for start in range(begin, end, 4096):
        stop = min(start + 4096, end)
        fours = stop // 4 if origin % 4 == 0 else start // 4
        for number in range(start // 4, fours):
            first, second, third, fourth = random_words(key, step, origin // 4 + number)
            mask[4 * number] = lower + np.float32(np.int32(first >> low)) * unit * width
            mask[4 * number + 1] = lower + np.float32(np.int32(second >> low)) * unit * width
            mask[4 * number + 2] = lower + np.float32(np.int32(third >> low)) * unit * width
            mask[4 * number + 3] = lower + np.float32(np.int32(fourth >> low)) * unit * width
        for i in range(4 * fours, stop):
            word = random_words(key, step, (origin + i) // 4)[(origin + i) % 4]
            mask[i] = lower + np.float32(np.int32(word >> low)) * unit * width
        for i in range(start, stop):
            mask[i] = one if data[i] > 0 else mask[i]
        if call.output is None:
            continue
        if data is call.output:
            for i in range(start, stop):
                call.output[i] *= mask[i]
        else:
            for i in range(start, stop):
                call.output[i] = data[i] * mask[i]


class Channels(Arguments):
    """Data as [rows, channels, inner] in memory."""

    rows: Integer
    channels: Integer
    inner: Integer
    data: Float32s


class SlopeProduct(Channels):
    """Arguments of `prelu_loop`.

    values: data in forward, the gradient in backward. output: may overwrite the values.
    """

    values: Float32s
    gamma: Float32s
    output: Float32s


@compact
def prelu_loop(call: SlopeProduct) -> None:
    """output = values * (1 where data > 0, else gamma[channel])."""
    channels, inner, one = call.channels, call.inner, np.float32(1)
    values, data, gamma, output = call.values, call.data, call.gamma, call.output
    for row in elements_of_task(call.rows * channels if inner > 1 else call.rows):
        if inner > 1:
            slope = gamma[row % channels]
            for i in each(row * inner, (row + 1) * inner):
                output[i] = values[i] * (one if data[i] > 0 else slope)
        else:
            first = row * channels
            for c in each(0, channels):
                output[first + c] = values[first + c] * (one if data[first + c] > 0 else gamma[c])


class GammaGradient(Channels):
    """Arguments of `prelu_gamma_loop`; sums: of each channel, scratch."""

    grad: Float32s
    gamma_grad: Float32s
    sums: Float64s


@inlined
def negative_terms(call: GammaGradient, at: int, count: int) -> Any:
    """Return a vector of grad * data where data <= 0, else 0."""
    value, nothing = load_lanes(call.data, at, count), lanes(0.0)
    negative = choose(above(value, nothing), nothing, value)
    return multiply_lanes(load_lanes(call.grad, at, count), negative)


@native
def prelu_gamma_loop(call: GammaGradient) -> None:
    """gamma_grad[c] = sum of grad * data where data <= 0, in memory order.

    Each task has channels of its own, so that no sum is divided.
    """
    rows, channels, inner, sums = call.rows, call.channels, call.inner, call.sums
    begin, end = share(channels)
    if inner > 1:
        for c in range(begin, end):
            total = 0.0
            for row in range(rows):
                at = (row * channels + c) * inner
                total += row_sum(at, at + inner, lambda j, count: negative_terms(call, j, count))
            sums[c] = total
    else:
        clear_sums(sums, begin, end - begin)
        for first in range(0, rows, _NEAR_ROWS):
            for c in range(begin, end, LANES):
                count, running = end - c, load_lanes(sums, c, end - c)
                for row in range(first, min(first + _NEAR_ROWS, rows)):
                    at = row * channels + c
                    running = add_lanes(running, negative_terms(call, at, count))
                store_lanes(sums, c, running, count)
    for c in range(begin, end):
        call.gamma_grad[c] = sums[c]


@implement("LeakyReLU", backend="jit")
class CompiledLeakyReLU(MapImplementation):
    """Maps; loops for prelu and for rrelu, whose mask is bit-identical to the NumPy body's.

    prelu supports plain and channels-last layouts, rrelu plain ones.
    """

    def prepare_forward(self, prop: AnyProperty, request: ForwardRequest) -> Kernel | None:
        """Prepare the output, in one pass."""
        p, tensors = prop.parameters, request.inputs[: len(prop.list_arguments())]
        if p.act_type not in ("prelu", "rrelu"):
            return super().prepare_forward(prop, request)
        if any(spec.dtype != "float32" for spec in tensors):
            return None
        if p.act_type == "prelu":
            return _prelu_forward(request)
        return _rrelu_forward(request, p) if request.is_train else _rrelu_evaluated(request, p)

    def prepare_backward(self, prop: AnyProperty, request: BackwardRequest) -> Kernel | None:
        """Prepare data's gradient, in one pass, and for prelu a second pass for gamma's."""
        if prop.parameters.act_type == "prelu":
            return _prelu_backward(request)
        if prop.parameters.act_type == "rrelu":
            return _rrelu_backward(request)
        return super().prepare_backward(prop, request)


def _rrelu_forward(request: ForwardRequest, p: LeakyReLUParameters) -> Kernel:
    """Draw the slopes into the mask, or into scratch space if the mask has a null request."""
    data = request.inputs[0].with_layout(PLAIN)
    output_requested, mask_requested = (req is not OpReqType.NULL for req in request.requests)
    scratch_bytes = 0 if mask_requested else data.nbytes
    arguments = RandomSlopes(
        count=data.elements,
        state=source(1),
        stream=request.stream,
        data=source(0),
        output=target(0) if output_requested else None,
        mask=target(1) if mask_requested else Scratch(),
        lower=float(p.lower_bound),
        width=float(p.upper_bound - p.lower_bound),
    )
    tasks = request.device.tasks_for_elements(data.elements)
    return native_kernel(
        "jit",
        [LoopPart(rrelu_loop, arguments, tasks, scratch_bytes)],
        (data, request.inputs[1]),
        (data, data),
        request.requests,
        request.device,
        flops=2 * data.elements,
    )


def _rrelu_evaluated(request: ForwardRequest, p: LeakyReLUParameters) -> Kernel | None:
    """Return leaky; a request for the mask (inspection only) is left to the NumPy body."""
    data, device, req = unpacked(request.inputs[0]), request.device, request.requests[0]
    if request.requests[1] is not OpReqType.NULL:
        return None
    slopes, count = [p.mean_slope], data.elements
    part = LEAKY.part(target(0), [source(0)], count, slopes, device=device, request=req)
    return native_kernel(
        "jit",
        [part],
        (data, None),
        (data, None),
        scalar.without_add_requests(request.requests),
        device,
        flops=2 * count,
    )


def _rrelu_backward(request: BackwardRequest) -> Kernel:
    """Return grad * mask."""
    gradient, (req,) = request.in_grad[0].with_layout(PLAIN), request.requests
    operands, count, device = [source(0), source(4)], gradient.elements, request.device
    part = PRODUCT.part(target(0), operands, count, device=device, request=req)
    return native_kernel(
        "jit",
        [part],
        (gradient, None, None, None, gradient),
        (gradient,),
        scalar.without_add_requests(request.requests),
        device,
        flops=count,
    )


def _prelu_forward(request: ForwardRequest) -> Kernel:
    """Return data times its channel's slope, in data's layout."""
    data, gamma = unpacked(request.inputs[0]), request.inputs[1].with_layout(PLAIN)
    product = SlopeProduct(
        **_geometry(data, gamma),
        values=source(0),
        data=source(0),
        gamma=source(1),
        output=target(0),
    )
    tasks = request.device.tasks_for_elements(data.elements)
    return native_kernel(
        "jit",
        [LoopPart(prelu_loop, product, tasks)],
        (data, gamma),
        (data,),
        request.requests,
        request.device,
        flops=2 * data.elements,
    )


def _prelu_backward(request: BackwardRequest) -> Kernel:
    """Return the requested gradients, in data's layout."""
    data, gamma = request.in_data
    assert data is not None
    assert gamma is not None
    data, gamma = unpacked(data), gamma.with_layout(PLAIN)
    geometry = _geometry(data, gamma)
    tasks = request.device.tasks_for_elements(data.elements)
    data_grad = SlopeProduct(
        **geometry, values=source(0), data=source(1), gamma=source(2), output=target(0)
    )
    gamma_grad = GammaGradient(
        **geometry, grad=source(0), data=source(1), gamma_grad=target(1), sums=Scratch()
    )
    loops = (
        LoopPart(prelu_loop, data_grad, tasks),
        LoopPart(prelu_gamma_loop, gamma_grad, tasks, 8 * geometry["channels"]),
    )
    requested = (req is not OpReqType.NULL for req in request.requests)
    return native_kernel(
        "jit",
        [loop for loop, is_requested in zip(loops, requested, strict=True) if is_requested],
        (data, data, gamma, None),
        (data, gamma),
        request.requests,
        request.device,
        flops=4 * data.elements,
    )


def _geometry(data: TensorSpec, gamma: TensorSpec) -> dict[str, int]:
    """Return data in its layout as [rows, channels, inner]; one channel if all share a slope."""
    rows, channels, inner = data.shape[0], 1, math.prod(data.shape[1:])
    if gamma.elements == 1:
        if len(data.shape) == 1:
            rows, inner = 1, data.shape[0]
    elif data.layout == CHANNELS_LAST:
        rows, channels, inner = data.elements // data.shape[1], data.shape[1], 1
    else:
        channels, inner = data.shape[1], math.prod(data.shape[2:])
    return {"rows": rows, "channels": channels, "inner": inner}
