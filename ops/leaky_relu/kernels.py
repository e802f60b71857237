"""LeakyReLU in maps and compiled loops, in float32."""

from __future__ import annotations

import math

import numpy as np

from mxrun.backend.jit import (
    Block,
    float32s,
    int64s,
    integer,
    native,
    random_words,
    real,
    share,
)
from mxrun.backend.team import team_for_elements
from mxrun.base.tensor import CHANNELS_LAST, PLAIN, TensorSpec, unpacked
from mxrun.operator import scalar
from mxrun.operator.kernel import BackwardRequest, ForwardRequest, Kernel, OpReqType
from mxrun.operator.native_kernel import LoopPart, Slot, native_kernel, source, target
from mxrun.operator.register import AnyProperty, implement
from mxrun.operator.simple import MapImplementation
from mxrun.ops.dropout import PRODUCT
from mxrun.ops.leaky_relu.operator import LeakyReLUParameters, leaky

LEAKY = scalar.compile(leaky, parameters=("slope",))


@native
def rrelu_loop(block: Block) -> None:
    """output = data * mask; mask[i] = 1 where data[i] > 0, else lower + width * u.

    u is the upper 24 bits of word i, times 2^-24. The output may be absent (address 0) or have the
    same address as data.
    """
    count, state = integer(block, 0), int64s(block, 1)
    key, step = state[0] ^ integer(block, 2), state[1]
    # Index, among the words of the entire batch, of this part's first word.
    origin = state[2] * count
    lower, width, one = real(block, 3), real(block, 4), np.float32(1)
    data, output, mask = float32s(block, 5), float32s(block, 6), float32s(block, 7)
    unit, low = np.float32(2.0**-24), np.uint64(8)
    begin, end = share(block, count)
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
        if integer(block, 6) == 0:
            continue
        if integer(block, 5) == integer(block, 6):
            for i in range(start, stop):
                output[i] *= mask[i]
        else:
            for i in range(start, stop):
                output[i] = data[i] * mask[i]


@native
def prelu_loop(block: Block) -> None:
    """output = values * (1 where data > 0, else gamma), as [rows, channels, inner].

    The values are data in forward and the gradient in backward. The output may overwrite the
    values.
    """
    rows, channels, inner = integer(block, 0), integer(block, 1), integer(block, 2)
    values, data, gamma = float32s(block, 3), float32s(block, 4), float32s(block, 5)
    output, one = float32s(block, 6), np.float32(1)
    begin, end = share(block, rows * channels if inner > 1 else rows)
    for row in range(begin, end):
        if inner > 1:
            slope = gamma[row % channels]
            for i in range(row * inner, (row + 1) * inner):
                output[i] = values[i] * (one if data[i] > 0 else slope)
        else:
            first = row * channels
            for c in range(channels):
                output[first + c] = values[first + c] * (one if data[first + c] > 0 else gamma[c])


@native
def prelu_gamma_loop(block: Block) -> None:
    """gamma_grad[c] = sum of grad * data where data <= 0, in memory order.

    Each thread has channels of its own, so that no result depends on the team size.
    """
    rows, channels, inner = integer(block, 0), integer(block, 1), integer(block, 2)
    grad, data, gamma_grad = float32s(block, 3), float32s(block, 4), float32s(block, 5)
    nothing = np.float32(0)
    begin, end = share(block, channels)
    for c in range(begin, end):
        gamma_grad[c] = nothing
    if inner > 1:
        for c in range(begin, end):
            total = 0.0
            for row in range(rows):
                first = (row * channels + c) * inner
                stop = first + inner
                # Four independent sums, because the additions to one sum depend on each other.
                sum0, sum1, sum2, sum3 = nothing, nothing, nothing, nothing
                for i in range(first, stop - 3, 4):
                    sum0 += grad[i] * (nothing if data[i] > 0 else data[i])
                    sum1 += grad[i + 1] * (nothing if data[i + 1] > 0 else data[i + 1])
                    sum2 += grad[i + 2] * (nothing if data[i + 2] > 0 else data[i + 2])
                    sum3 += grad[i + 3] * (nothing if data[i + 3] > 0 else data[i + 3])
                for i in range(first + inner // 4 * 4, stop):
                    sum0 += grad[i] * (nothing if data[i] > 0 else data[i])
                total += (sum0 + sum1) + (sum2 + sum3)
            gamma_grad[c] = total
    else:
        for row in range(rows):
            first = row * channels
            for c in range(begin, end):
                negative_part = nothing if data[first + c] > 0 else data[first + c]
                gamma_grad[c] += grad[first + c] * negative_part


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
    # The address of scratch space is a loop's last argument.
    place, scratch = ((target(1),), 0) if mask_requested else ((), data.nbytes)
    arguments: tuple[Slot | int | float, ...] = (
        *(data.elements, source(1), request.stream),
        *(float(p.lower_bound), float(p.upper_bound - p.lower_bound)),
        *(source(0), target(0) if output_requested else 0, *place),
    )
    team = team_for_elements(data.elements, request.threads)
    return native_kernel(
        "jit",
        [LoopPart(rrelu_loop, arguments, team, scratch)],
        (data, request.inputs[1]),
        (data, data),
        request.requests,
        request.threads,
        flops=2 * data.elements,
    )


def _rrelu_evaluated(request: ForwardRequest, p: LeakyReLUParameters) -> Kernel | None:
    """Return leaky; a request for the mask (inspection only) is left to the NumPy body."""
    data, threads, req = unpacked(request.inputs[0]), request.threads, request.requests[0]
    if request.requests[1] is not OpReqType.NULL:
        return None
    slopes, count = [p.mean_slope], data.elements
    part = LEAKY.part(target(0), [source(0)], count, slopes, threads=threads, request=req)
    return native_kernel(
        "jit",
        [part],
        (data, None),
        (data, None),
        scalar.without_add_requests(request.requests),
        threads,
        flops=2 * count,
    )


def _rrelu_backward(request: BackwardRequest) -> Kernel:
    """Return grad * mask."""
    gradient, (req,) = request.in_grad[0].with_layout(PLAIN), request.requests
    operands, count, threads = [source(0), source(4)], gradient.elements, request.threads
    part = PRODUCT.part(target(0), operands, count, threads=threads, request=req)
    return native_kernel(
        "jit",
        [part],
        (gradient, None, None, None, gradient),
        (gradient,),
        scalar.without_add_requests(request.requests),
        threads,
        flops=count,
    )


def _prelu_forward(request: ForwardRequest) -> Kernel:
    """Return data times its channel's slope, in data's layout."""
    data, gamma = unpacked(request.inputs[0]), request.inputs[1].with_layout(PLAIN)
    places = (source(0), source(0), source(1), target(0))
    team = team_for_elements(data.elements, request.threads)
    return native_kernel(
        "jit",
        [LoopPart(prelu_loop, (*_geometry(data, gamma), *places), team)],
        (data, gamma),
        (data,),
        request.requests,
        request.threads,
        flops=2 * data.elements,
    )


def _prelu_backward(request: BackwardRequest) -> Kernel:
    """Return the requested gradients, in data's layout."""
    data, gamma = request.in_data
    assert data is not None
    assert gamma is not None
    data, gamma = unpacked(data), gamma.with_layout(PLAIN)
    geometry = _geometry(data, gamma)
    team = team_for_elements(data.elements, request.threads)
    data_grad = (*geometry, source(0), source(1), source(2), target(0))
    gamma_grad = (*geometry, source(0), source(1), target(1))
    loops = (LoopPart(prelu_loop, data_grad, team), LoopPart(prelu_gamma_loop, gamma_grad, team))
    requested = (req is not OpReqType.NULL for req in request.requests)
    return native_kernel(
        "jit",
        [loop for loop, is_requested in zip(loops, requested, strict=True) if is_requested],
        (data, data, gamma, None),
        (data, gamma),
        request.requests,
        request.threads,
        flops=4 * data.elements,
    )


def _geometry(data: TensorSpec, gamma: TensorSpec) -> tuple[int, int, int]:
    """Return data in its layout as [rows, channels, inner]; one channel if all share a slope."""
    shape = data.shape
    if gamma.elements == 1:
        return (1, 1, shape[0]) if len(shape) == 1 else (shape[0], 1, math.prod(shape[1:]))
    if data.layout == CHANNELS_LAST:
        return data.elements // shape[1], shape[1], 1
    return shape[0], shape[1], math.prod(shape[2:])
