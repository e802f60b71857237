"""BatchNorm in compiled loops, for float32 or bfloat16 tensors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from mxrun.base.dataclass import dataclass
from mxrun.base.device import DeviceDescription
from mxrun.base.dtype import BFLOAT16, FLOAT32
from mxrun.base.tensor import CHANNELS_LAST, PLAIN, TensorSpec, align
from mxrun.codegen.jit import NativeFunction
from mxrun.operator.kernel import BackwardRequest, ForwardRequest, Kernel, OpReqType, adding
from mxrun.operator.native_kernel import (
    KernelPart,
    LoopPart,
    Pitch,
    Scratch,
    Slot,
    extra,
    native_kernel,
    source,
    target,
)
from mxrun.operator.register import AnyProperty, Implementation, implement
from mxrun.operator.scalar import without_add_requests
from mxrun.ops.batch_norm.channels import (
    ChannelSums,
    GradientScaling,
    Scaling,
    gradient_scale_loop,
    scale_loop,
)
from mxrun.ops.batch_norm.limited import RESIDUAL, BatchNormLimitedProperty
from mxrun.ops.batch_norm.limits import Limits
from mxrun.ops.batch_norm.loops import (
    NOT,
    READ,
    SAMPLES,
    DataGradient,
    GradientSums,
    Normalization,
    Sampling,
    Statistics,
    data_gradient_loop,
    gradient_sums_loop,
    normalize_loop,
    shift_loop,
    statistics_loop,
)
from mxrun.ops.batch_norm.operator import BETA, DATA, GAMMA, MEAN, OUTPUT, VAR
from mxrun.ops.batch_norm.pieces import Pieces
from mxrun.ops.batch_norm.walk import Walk


@dataclass(frozen=True)
class Loops:
    """Builder of one kernel's parts and the layout of their scratch space.

    Scratch space holds three arrays [C], the partial sums, their totals, and the threads' arrays.
    """

    pieces: Pieces
    tasks: int
    workers: int
    dtype: str

    @classmethod
    def of_data(cls, data: TensorSpec, axis: int, device: DeviceDescription) -> Loops:
        """Return the loops for data in its layout."""
        axis %= len(data.shape)
        before, after = math.prod(data.shape[:axis]), math.prod(data.shape[axis + 1 :])
        if data.layout == CHANNELS_LAST:
            before, after = before * after, 1
        pieces = Pieces.of(before, data.shape[axis], after)
        tasks = min(device.tasks_for_elements(data.elements), pieces.count)
        return cls(pieces, tasks, device.workers(tasks), data.dtype)

    def channels(self, number: int) -> Scratch:
        """Return the array `number` with one float per channel."""
        return Scratch(number * align(4 * self.pieces.channels))

    @property
    def sums(self) -> Scratch:
        return self.channels(3)

    @property
    def totals(self) -> Scratch:
        sums = align(8 * self.pieces.partial_sums * self.pieces.channels)
        return Scratch(self.sums.offset + sums)

    @property
    def blocks(self) -> Scratch:
        """Arrays of the threads."""
        return Scratch(self.totals.offset + align(16 * self.pieces.channels))

    def of(self, loop: NativeFunction) -> NativeFunction:
        """Return the loop for tensors of the data's dtype."""
        return loop.bfloat16 if self.dtype == BFLOAT16 else loop

    def alone(self, loop: NativeFunction, arguments: ChannelSums | Sampling) -> KernelPart:
        """Return a loop of one task."""
        return LoopPart(loop, arguments, 1, self.scratch_bytes)

    def together(self, loop: NativeFunction, arguments: Walk) -> KernelPart:
        """Return a loop of several tasks over the pieces."""
        return LoopPart(self.of(loop), arguments, self.tasks, self.scratch_bytes)

    def walk(self, *sources: Slot | Scratch | None) -> dict[str, Any]:
        """Return the first arguments of a loop over pieces, whose arrays have these sources [C]."""
        return {
            **self.pieces.arguments(),
            "arrays": self.blocks,
            "sources": sources,
            "source_count": len(sources),
        }

    @property
    def width(self) -> int:
        """Elements from one row of channels, or of planes, to the next."""
        return self.pieces.channels * self.pieces.inner

    def pitched(self, *tensors: int) -> dict[int, int]:
        """Return the row widths of tensors that may be slices of parent buffers.

        These are all given tensors if channels are adjacent in memory, else none.
        """
        return dict.fromkeys(tensors, self.width) if self.pieces.inner == 1 else {}

    def pitch(self, slot: Slot | None) -> Pitch | int:
        """Return a tensor's pitch between rows of channels; for an absent tensor the row width."""
        channels = self.pieces.channels
        return channels if slot is None else Pitch(slot, channels)

    @property
    def sampled(self) -> dict[str, int]:
        """Numbers of the loop over samples."""
        count = self.pieces.elements_per_channel
        return {
            "count": count,
            "channels": self.pieces.channels,
            "inner": self.pieces.inner,
            "samples": min(SAMPLES, count),
        }

    def summed(self, given: bool, epsilon: float) -> dict[str, Any]:
        """Return the arguments of both loops over channels; with `given` there are no sums."""
        return {
            "channels": self.pieces.channels,
            "partial_sums": 0 if given else self.pieces.partial_sums,
            "count": self.pieces.elements_per_channel,
            "epsilon": float(epsilon),
            "sums": self.sums,
            "totals": self.totals,
        }

    @property
    def scratch_bytes(self) -> int:
        return self.blocks.offset + self.workers * self.pieces.block_bytes


@implement("BatchNorm", "_batch_norm_limited", backend="jit")
class CompiledBatchNorm(Implementation):
    """Compiled loops for data in the plain or channels-last layout.

    oneDNN's own would be one task on one thread, because statistics need all images. loops: builder
    of the parts.
    """

    loops: type[Loops] = Loops

    def prepare_forward(self, prop: AnyProperty, request: ForwardRequest) -> Kernel | None:
        """Prepare the statistics, then the output.

        Statistics are computed from data minus an estimate of the mean, so that a large mean costs
        no precision. For a fused rectifier or clip without residual, scale and beta are passed to
        backward.
        """
        p = prop.parameters
        if not _serves(prop, request):
            return None
        data = _laid_out(request.inputs[DATA], p.axis)
        loops = self.loops.of_data(data, p.axis, request.device)
        output, *statistics = _requested_slots(request.requests)
        mean, scale, shift = map(loops.channels, range(3))
        limits = Limits.of(prop, data.dtype)
        handed = request.is_train and limits.kind != NOT and not _adds(prop)
        scale_and_beta = (extra(0), extra(1)) if handed else (scale, None)
        given = p.use_global_stats or not request.is_train
        states = len(prop.list_arguments())
        parts = [] if given else _statistics_parts(loops, shift)
        scaling = Scaling(
            **loops.summed(given, p.eps),
            shift=source(states) if given else shift,
            given_var=source(states + 1) if given else None,
            gamma=None if p.fix_gamma else source(GAMMA),
            mean=mean,
            scale=scale_and_beta[0],
            mean_output=statistics[0],
            var_output=statistics[1],
            beta=source(BETA),
            beta_copy=scale_and_beta[1],
        )
        parts.append(loops.alone(scale_loop, scaling))
        if output is not None:
            arrays = (mean, scale_and_beta[0], source(BETA))
            residual_slot = source(RESIDUAL) if _adds(prop) else None
            parts.append(_normalization_part(loops, limits, arrays, output, residual_slot))
        channels = request.inputs[BETA].with_layout(PLAIN)
        moving = channels if given else None
        residual = [data] if _adds(prop) else []
        kernel = native_kernel(
            self.name,
            parts,
            (data, None if p.fix_gamma else channels, channels, *residual, moving, moving),
            (data, channels, channels),
            request.requests,
            request.device,
            extra_outputs=(channels, channels) if handed else (),
            flops=prop.flops([data.shape], []),
        )
        return replace(
            kernel, pitched_inputs=loops.pitched(DATA), pitched_outputs=loops.pitched(OUTPUT)
        )

    def prepare_backward(self, prop: AnyProperty, request: BackwardRequest) -> Kernel | None:
        """Prepare the sums, which are the gradients of gamma and beta, then data's gradient."""
        data, channels = request.forward.inputs[DATA], request.in_grad[BETA].with_layout(PLAIN)
        assert data is not None
        loops = self.loops.of_data(data, prop.parameters.axis, request.device)
        limits, handed = Limits.of(prop, data.dtype), request.forward.extra_outputs
        reads_output = limits.kind != NOT and not handed
        parts = _gradient_parts(prop, request, loops, limits, reads_output)
        scales = None if prop.parameters.fix_gamma else channels
        residual = [None] if _adds(prop) else []
        outputs = (data if reads_output else None, channels, channels)
        kernel = native_kernel(
            self.name,
            parts,
            (data, None, None, data, scales, None, *residual, *outputs, *handed),
            (data, scales, channels, *([data] if _adds(prop) else [])),
            (*without_add_requests(request.requests[:GAMMA]), *request.requests[GAMMA:]),
            request.device,
            flops=prop.flops([data.shape], []),
            adding=adding(partial(self.prepare_backward, prop), request, (DATA,)),
        )
        return replace(kernel, pitched_inputs=loops.pitched(len(request.out_grad) + DATA))


def _statistics_parts(loops: Loops, shift: Scratch) -> list[KernelPart]:
    """Return the loop that estimates the mean, into `shift`, and the one that sums differences."""
    data = source(DATA)
    sampling = Sampling(
        **loops.sampled, data=data, data_pitch=Pitch(data, loops.width), shift=shift
    )
    statistics = Statistics(
        **loops.walk(shift), data=data, data_pitch=loops.pitch(data), sums=loops.sums
    )
    return [
        loops.alone(loops.of(shift_loop), sampling),
        loops.together(statistics_loop, statistics),
    ]


def _normalization_part(
    loops: Loops,
    limits: Limits,
    arrays: tuple[Slot | Scratch, ...],
    output: Slot,
    residual: Slot | None,
) -> KernelPart:
    """Return the loop that writes the output; `arrays` are mean, scale and beta of each channel."""
    normalization = Normalization(
        **loops.walk(*arrays),
        **limits.forward,
        data=source(DATA),
        data_pitch=loops.pitch(source(DATA)),
        output=output,
        output_pitch=loops.pitch(output),
        residual=residual,
    )
    return loops.together(normalize_loop, normalization)


def _gradient_parts(
    prop: AnyProperty, request: BackwardRequest, loops: Loops, limits: Limits, reads_output: bool
) -> list[KernelPart]:
    """Return the loops of backward: sums, gradients of gamma and beta, and data's gradient.

    reads_output: whether the output says which gradients pass the limits, else data does.
    """
    p = prop.parameters
    data_grad, gamma_grad, beta_grad, *residual_grad = _requested_slots(request.requests)
    scale, center, slope = map(loops.channels, range(3))
    first, second = len(request.out_grad), len(request.out_grad) + len(request.in_data)
    values, mean, var = (source(at) for at in (first + DATA, second + MEAN, second + VAR))
    last = second + len(request.out_data)
    is_handed = bool(request.forward.extra_outputs)
    normal = (source(last), source(last + 1)) if is_handed else (None, None)
    output = source(second + OUTPUT) if reads_output else None
    # residual's gradient is the gradient that passes the limits; it is not computed again.
    passed = residual_grad[0] if residual_grad else None
    tensors = {"data": values, "data_pitch": loops.pitch(values), **limits.passing}
    kind = READ if reads_output else limits.kind
    read = {**tensors, "grad": source(OUTPUT), "output": output, "limits": kind}
    again = read if passed is None else {**tensors, "grad": passed, "output": None, "limits": NOT}
    sums = GradientSums(**loops.walk(mean, *normal), **read, sums=loops.sums, passed=passed)
    scaling = GradientScaling(
        **loops.summed(False, p.eps),
        var=var,
        gamma=None if p.fix_gamma else source(first + GAMMA),
        scale=scale,
        center=center,
        slope=slope,
        gamma_grad=gamma_grad,
        beta_grad=beta_grad,
        is_given=int(p.use_global_stats),
    )
    parts = [
        loops.together(gradient_sums_loop, sums),
        loops.alone(gradient_scale_loop, scaling),
    ]
    if data_grad is not None:
        gradient = DataGradient(
            **loops.walk(mean, *normal, scale, center, slope),
            **again,
            data_grad=data_grad,
            is_added=int(request.requests[DATA] is OpReqType.ADD),
        )
        parts.append(loops.together(data_gradient_loop, gradient))
    return parts


def _serves(prop: AnyProperty, request: ForwardRequest) -> bool:
    """Return whether data, residual and output share one dtype and the rest is float32."""
    states = len(prop.list_arguments())
    tensors = (request.inputs[DATA], *request.inputs[RESIDUAL:states], request.outputs[OUTPUT])
    channels = (*request.inputs[GAMMA:RESIDUAL], *request.inputs[states:], *request.outputs[MEAN:])
    types = {spec.dtype for spec in tensors}
    if types == {BFLOAT16} and request.requests[OUTPUT] is OpReqType.ADD:
        return False
    return (
        types in ({FLOAT32}, {BFLOAT16})
        and all(spec.dtype == FLOAT32 for spec in channels)
        and all(spec.elements for spec in request.inputs)
    )


def _adds(prop: AnyProperty) -> bool:
    """Return whether the operator adds a residual."""
    return isinstance(prop, BatchNormLimitedProperty) and prop.parameters.residual


def _requested_slots(requests: Sequence[OpReqType]) -> list[Slot | None]:
    """Return the outputs' slots; None for a null request."""
    return [
        None if request is OpReqType.NULL else target(index)
        for index, request in enumerate(requests)
    ]


def _laid_out(data: TensorSpec, axis: int) -> TensorSpec:
    """Return data in its layout, or plain if channels-last has other channels than `axis`."""
    channels_last = data.layout == CHANNELS_LAST and axis % len(data.shape) == 1
    return data if channels_last else data.with_layout(PLAIN)
