"""LeakyReLU in oneDNN and compiled loops, in float32."""

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
from mxrun.backend.onednn.primitive import Argument
from mxrun.backend.onednn.rectifier import Rectifier, rectifier_backward, rectifier_forward
from mxrun.backend.team import team_for_elements
from mxrun.base.tensor import CHANNELS_LAST, PLAIN, TensorSpec
from mxrun.operator.kernel import BackwardRequest, ForwardRequest, Kernel, OpReqType
from mxrun.operator.native_kernel import (
    LoopPart,
    Part,
    PrimitivePart,
    Slot,
    native_kernel,
    onednn_serves,
    source,
    target,
)
from mxrun.operator.register import AnyProperty, Implementation, implement
from mxrun.ops.dropout import product_loop
from mxrun.ops.leaky_relu import SELU_SCALE, SELU_SLOPE, LeakyReLUParameters


@native
def leaky_loop(block: Block) -> None:
    """output[i] = data[i], times slope unless it is positive; the output may lie over data."""
    slope, data, output = real(block, 1), float32s(block, 2), float32s(block, 3)
    begin, end = share(block, integer(block, 0))
    # One loop per case of overlap: each is free of aliases, so that it becomes vector code.
    if integer(block, 2) == integer(block, 3):
        for i in range(begin, end):
            output[i] = output[i] if output[i] > 0 else output[i] * slope
    else:
        for i in range(begin, end):
            output[i] = data[i] if data[i] > 0 else data[i] * slope


@native
def scale_loop(block: Block) -> None:
    """output[i] *= factor."""
    factor, output = real(block, 1), float32s(block, 2)
    begin, end = share(block, integer(block, 0))
    for i in range(begin, end):
        output[i] *= factor


@native
def slope_loop(block: Block) -> None:
    """data_grad[i] = grad[i] * (above where sign[i] > 0, else below + value[i]).

    `value` may be absent (address 0): then the slope is `below`. data_grad may lie over grad.
    """
    above, below = real(block, 1), real(block, 2)
    grad, sign, value = float32s(block, 3), float32s(block, 4), float32s(block, 5)
    data_grad = float32s(block, 6)
    begin, end = share(block, integer(block, 0))
    # Working on data_grad alone keeps the loops free of aliases.
    if integer(block, 3) != integer(block, 6):
        for i in range(begin, end):
            data_grad[i] = grad[i]
    if integer(block, 5) == 0:
        for i in range(begin, end):
            data_grad[i] *= above if sign[i] > 0 else below
    else:
        for i in range(begin, end):
            data_grad[i] *= above if sign[i] > 0 else below + value[i]


@native
def rrelu_loop(block: Block) -> None:
    """output = data * mask; mask[i] = 1 where data[i] > 0, else lower + width * u.

    u is the upper 24 bits of word i, times 2^-24. The output may be absent (address 0) or lie over
    data.
    """
    count, state = integer(block, 0), int64s(block, 1)
    key, step = state[0] ^ integer(block, 2), state[1]
    lower, width, one = real(block, 3), real(block, 4), np.float32(1)
    data, output, mask = float32s(block, 5), float32s(block, 6), float32s(block, 7)
    unit, low = np.float32(2.0**-24), np.uint64(8)
    begin, end = share(block, count)
    for start in range(begin, end, 4096):
        stop = min(start + 4096, end)
        for number in range(start // 4, stop // 4):
            first, second, third, fourth = random_words(key, step, number)
            mask[4 * number] = lower + np.float32(np.int32(first >> low)) * unit * width
            mask[4 * number + 1] = lower + np.float32(np.int32(second >> low)) * unit * width
            mask[4 * number + 2] = lower + np.float32(np.int32(third >> low)) * unit * width
            mask[4 * number + 3] = lower + np.float32(np.int32(fourth >> low)) * unit * width
        for i in range(stop // 4 * 4, stop):
            word = random_words(key, step, i // 4)[i % 4]
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
    """output = values * (1 where data > 0, else gamma), seen as [rows, channels, inner].

    Forward's values are data, backward's the gradient. The output may lie over the values.
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
    """gamma_grad[c] = the sum of grad * data where data <= 0, in the order of memory.

    Each thread has channels of its own: no result depends on the team.
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
                # Four sums beside each other, because one waits for itself at every addition.
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
                kept = nothing if data[first + c] > 0 else data[first + c]
                gamma_grad[c] += grad[first + c] * kept


@implement("LeakyReLU", backend="onednn")
class OnednnLeakyReLU(Implementation):
    """elu, selu and gelu by oneDNN's elementwise primitives, in whatever layout the data come.

    oneDNN has no selu: it is an elu scaled in place. The derivatives of both follow from the
    output by a compiled loop.
    """

    def prepare_forward(self, prop: AnyProperty, request: ForwardRequest) -> Kernel | None:
        """One primitive; for selu a product after it."""
        p, data = prop.parameters, request.inputs[0]
        if p.act_type not in ("elu", "selu", "gelu") or not onednn_serves(data):
            return None
        team = team_for_elements(data.elements, request.threads)
        function = Rectifier.GELU if p.act_type == "gelu" else Rectifier.ELU
        slope = SELU_SLOPE if p.act_type == "selu" else float(p.slope)
        primitive = rectifier_forward(data, function, slope, team)
        slots = {Argument.SOURCE: source(0), Argument.OUTPUT: target(0)}
        parts: list[Part] = [PrimitivePart(primitive, slots)]
        if p.act_type == "selu":
            parts.append(LoopPart(scale_loop, (data.nbytes // 4, SELU_SCALE, target(0)), team))
        return native_kernel(
            f"onednn:{primitive.implementation}",
            parts,
            (data,),
            (data,),
            request.requests,
            request.threads,
            flops=prop.flops([data.shape], []),
        )

    def prepare_backward(self, prop: AnyProperty, request: BackwardRequest) -> Kernel | None:
        """gelu's primitive reads data; the loop of the others the output, and data for the sign."""
        p = prop.parameters
        if p.act_type != "gelu":
            return _slope_kernel(p, request)
        (data,) = request.in_data
        assert data is not None
        team = team_for_elements(data.elements, request.threads)
        primitive = rectifier_backward(data, Rectifier.GELU, float(p.slope), team)
        slots = {
            Argument.OUTPUT_GRAD: source(0),
            Argument.SOURCE: source(1),
            Argument.SOURCE_GRAD: target(0),
        }
        return native_kernel(
            f"onednn:{primitive.implementation}",
            [PrimitivePart(primitive, slots)],
            (data, data, None),
            (data,),
            request.requests,
            request.threads,
            flops=prop.flops([data.shape], []),
        )


@implement("LeakyReLU", backend="jit")
class CompiledLeakyReLU(Implementation):
    """leaky, prelu and rrelu by compiled loops; the mask of rrelu has the readable body's bits."""

    def prepare_forward(self, prop: AnyProperty, request: ForwardRequest) -> Kernel | None:
        """One loop; leaky in any layout, prelu in plain and channels-last, rrelu in plain."""
        p, data = prop.parameters, request.inputs[0]
        if data.dtype != "float32":
            return None
        if p.act_type == "prelu":
            return _prelu_forward(request)
        if p.act_type not in ("leaky", "rrelu"):
            return None
        slope = p.slope
        if p.act_type == "rrelu":
            if request.is_train:
                return _rrelu_forward(request, p.lower_bound, p.upper_bound)
            slope = p.mean_slope
            if request.requests[1] is not OpReqType.NULL:
                return _rrelu_forward(request, slope, slope)
        team = team_for_elements(data.elements, request.threads)
        count = data.nbytes // 4
        return native_kernel(
            self.name,
            [LoopPart(leaky_loop, (count, float(slope), source(0), target(0)), team)],
            (data, *(None for _ in request.inputs[1:])),
            (data, *request.outputs[1:]),
            request.requests,
            request.threads,
            flops=prop.flops([data.shape], []),
        )

    def prepare_backward(self, prop: AnyProperty, request: BackwardRequest) -> Kernel | None:
        """One loop; for prelu another one for gamma."""
        p = prop.parameters
        if p.act_type == "prelu":
            return _prelu_backward(request)
        if p.act_type == "leaky":
            return _slope_kernel(p, request)
        gradient, mask = request.in_grad[0].laid_out(PLAIN), request.out_data[1]
        assert mask is not None
        arguments = (gradient.elements, source(0), target(0), source(4))
        team = team_for_elements(gradient.elements, request.threads)
        return native_kernel(
            self.name,
            [LoopPart(product_loop, arguments, team)],
            (gradient, None, None, None, mask.laid_out(PLAIN)),
            (gradient,),
            request.requests,
            request.threads,
            flops=gradient.elements,
        )


def _slope_kernel(p: LeakyReLUParameters, request: BackwardRequest) -> Kernel:
    """The gradient of leaky, elu or selu, in the layout of the tensor that tells the sign."""
    data, output = request.in_data[0], request.out_data[0]
    sign = output if p.output_tells else data
    assert sign is not None
    above, below = (SELU_SCALE, SELU_SCALE * SELU_SLOPE) if p.act_type == "selu" else (1.0, p.slope)
    count, team = sign.nbytes // 4, team_for_elements(sign.elements, request.threads)
    arguments: tuple[Slot | int | float, ...] = (
        *(count, above, float(below), source(0), source(2 if p.output_tells else 1)),
        *(0 if p.act_type == "leaky" else source(2), target(0)),
    )
    return native_kernel(
        "jit",
        [LoopPart(slope_loop, arguments, team)],
        (sign, *(None if spec is None else sign for spec in (data, output))),
        (sign,),
        request.requests,
        request.threads,
        flops=2 * sign.elements,
    )


def _rrelu_forward(request: ForwardRequest, lower: float, upper: float) -> Kernel:
    """Draw the slopes into the mask, or into scratch where nobody wants the mask."""
    data = request.inputs[0].laid_out(PLAIN)
    output_wanted, mask_wanted = (req is not OpReqType.NULL for req in request.requests)
    # Scratch's address is a loop's last argument.
    place, scratch = ((target(1),), 0) if mask_wanted else ((), data.nbytes)
    arguments: tuple[Slot | int | float, ...] = (
        *(data.elements, source(1), request.stream),
        *(float(lower), float(upper - lower)),
        *(source(0), target(0) if output_wanted else 0, *place),
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


def _prelu_forward(request: ForwardRequest) -> Kernel:
    """data times its channel's slope, in data's layout."""
    data, gamma = _laid_out(request.inputs[0]), request.inputs[1].laid_out(PLAIN)
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
    """The gradients that are asked for, in data's layout."""
    data, gamma = request.in_data
    assert data is not None
    assert gamma is not None
    data, gamma = _laid_out(data), gamma.laid_out(PLAIN)
    geometry = _geometry(data, gamma)
    team = team_for_elements(data.elements, request.threads)
    data_grad = (*geometry, source(0), source(1), source(2), target(0))
    gamma_grad = (*geometry, source(0), source(1), target(1))
    loops = (LoopPart(prelu_loop, data_grad, team), LoopPart(prelu_gamma_loop, gamma_grad, team))
    asked = (req is not OpReqType.NULL for req in request.requests)
    return native_kernel(
        "jit",
        [loop for loop, wanted in zip(loops, asked, strict=True) if wanted],
        (data, data, gamma, None),
        (data, gamma),
        request.requests,
        request.threads,
        flops=4 * data.elements,
    )


def _geometry(data: TensorSpec, gamma: TensorSpec) -> tuple[int, int, int]:
    """data in its layout as [rows, channels, inner], with one channel where all share a slope."""
    shape = data.shape
    if gamma.elements == 1:
        return (1, 1, shape[0]) if len(shape) == 1 else (shape[0], 1, math.prod(shape[1:]))
    if data.layout == CHANNELS_LAST:
        return data.elements // shape[1], shape[1], 1
    return shape[0], shape[1], math.prod(shape[2:])


def _laid_out(data: TensorSpec) -> TensorSpec:
    """data as it comes, but plain where its layout is a kernel's own."""
    return data if data.layout == CHANNELS_LAST else data.laid_out(PLAIN)
