"""BatchNorm in compiled loops, for float32 or bfloat16 tensors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from mxrun.backend.jit import NativeFunction
from mxrun.backend.team import team_for_elements
from mxrun.base.dtype import BFLOAT16, FLOAT32
from mxrun.base.tensor import CHANNELS_LAST, PLAIN, TensorSpec, align
from mxrun.operator.kernel import BackwardRequest, ForwardRequest, Kernel, OpReqType, adding
from mxrun.operator.native_kernel import (
    KernelPart,
    Pitch,
    Slot,
    extra,
    native_kernel,
    source,
    target,
)
from mxrun.operator.register import AnyProperty, Implementation, implement
from mxrun.operator.scalar import without_add_requests
from mxrun.ops.batch_norm import loops as compiled
from mxrun.ops.batch_norm.channels import gradient_scale_loop, scale_loop
from mxrun.ops.batch_norm.limited import RESIDUAL, BatchNormLimitedProperty
from mxrun.ops.batch_norm.limits import Limits
from mxrun.ops.batch_norm.loops import NOT, READ, SAMPLES
from mxrun.ops.batch_norm.operator import BETA, DATA, GAMMA, MEAN, OUTPUT, VAR
from mxrun.ops.batch_norm.tasks import ARRAYS, Tasks
from mxrun.ops.gradient_norm import Scratch, ScratchLoopPart


@dataclass(frozen=True)
class _TensorLoops:
    """Loops for tensors of one dtype."""

    shift: NativeFunction
    statistics: NativeFunction
    normalize: NativeFunction
    gradient_sums: NativeFunction
    data_gradient: NativeFunction


_LOOPS = {
    FLOAT32: _TensorLoops(
        compiled.shift_loop,
        compiled.statistics_loop,
        compiled.normalize_loop,
        compiled.gradient_sums_loop,
        compiled.data_gradient_loop,
    ),
    BFLOAT16: _TensorLoops(
        compiled.shift_bfloat16_loop,
        compiled.statistics_bfloat16_loop,
        compiled.normalize_bfloat16_loop,
        compiled.gradient_sums_bfloat16_loop,
        compiled.data_gradient_bfloat16_loop,
    ),
}


@dataclass(frozen=True)
class _Loops:
    """Builder of one kernel's parts and the layout of their scratch space.

    Scratch space holds three arrays [C], the partial sums, their totals, and the threads' arrays.
    """

    tasks: Tasks
    team: int
    of: _TensorLoops

    def channels(self, number: int) -> Scratch:
        """Return the array `number` with one float per channel."""
        return Scratch(number * align(4 * self.tasks.channels))

    @property
    def sums(self) -> Scratch:
        return self.channels(3)

    @property
    def totals(self) -> Scratch:
        sums = align(8 * self.tasks.partial_sums * self.tasks.channels)
        return Scratch(self.sums.offset + sums)

    @property
    def blocks(self) -> Scratch:
        """Arrays of the threads."""
        return Scratch(self.totals.offset + align(16 * self.tasks.channels))

    def alone(
        self, loop: NativeFunction, *arguments: Slot | Pitch | Scratch | int | float
    ) -> KernelPart:
        """Return a loop that runs on one thread."""
        return ScratchLoopPart(loop, arguments, 1, self._scratch_bytes)

    def together(
        self,
        loop: NativeFunction,
        arrays: Sequence[Slot | Scratch | int],
        *arguments: Slot | Pitch | Scratch | int | float,
    ) -> KernelPart:
        """Return a loop that the team runs over the tasks, with its arrays [C]."""
        absent = (0,) * (ARRAYS - len(arrays))
        shared = (*self.tasks.arguments(self.team), self.blocks, len(arrays), *arrays, *absent)
        return ScratchLoopPart(loop, (*shared, *arguments), self.team, self._scratch_bytes)

    @property
    def width(self) -> int:
        """Elements from one row of channels, or of planes, to the next."""
        return self.tasks.channels * self.tasks.inner

    def pitched(self, *tensors: int) -> dict[int, int]:
        """Return the row widths of tensors that may be slices of parent buffers.

        These are all given tensors if channels are adjacent in memory, else none.
        """
        return dict.fromkeys(tensors, self.width) if self.tasks.inner == 1 else {}

    def pitch(self, slot: Slot | int) -> Pitch | int:
        """Return a tensor's pitch between rows of channels; for an absent tensor the row width."""
        channels = self.tasks.channels
        return Pitch(slot, channels) if isinstance(slot, Slot) else channels

    @property
    def samples(self) -> tuple[int, ...]:
        """Elements per channel, channels, elements between a channel's elements, samples."""
        count = self.tasks.elements_per_channel
        return count, self.tasks.channels, self.tasks.inner, min(SAMPLES, count)

    def summed(self, given: bool, epsilon: float) -> tuple[Scratch | int | float, ...]:
        """Return the first slots of both loops over channels; with `given` there are no sums."""
        count, channels = self.tasks.elements_per_channel, self.tasks.channels
        partial_sums = 0 if given else self.tasks.partial_sums
        return channels, partial_sums, count, float(epsilon), self.sums, self.totals

    @property
    def _scratch_bytes(self) -> int:
        return self.blocks.offset + self.team * self.tasks.block_bytes


@implement("BatchNorm", "_batch_norm_limited", backend="jit")
class CompiledBatchNorm(Implementation):
    """Compiled loops for data in the plain or channels-last layout.

    Between the loops the team waits in the OpenMP runtime, which yields the core after a while.
    oneDNN's batch normalisation spins at its own barriers instead: with two cores and one busy
    process, 64x16x8x8 takes 49 ms on average there and 0.9 ms here; on idle cores 15 and 11 us.
    """

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
        loops = _loops(data, p.axis, request.threads)
        output, *statistics = _requested_slots(request.requests)
        mean, scale, shift = map(loops.channels, range(3))
        limits = Limits.of(prop, data.dtype)
        handed = request.is_train and limits.kind != NOT and not _adds(prop)
        scale_and_beta = (extra(0), extra(1)) if handed else (scale, 0)
        given = p.use_global_stats or not request.is_train
        pitch, data_rows = loops.pitch(source(DATA)), Pitch(source(DATA), loops.width)
        parts: list[KernelPart] = []
        found: tuple[Slot | Scratch | int, ...]
        if given:
            states = len(prop.list_arguments())
            found = (source(states), source(states + 1))
        else:
            parts = [
                loops.alone(loops.of.shift, *loops.samples, source(DATA), shift, data_rows),
                loops.together(loops.of.statistics, (shift,), source(DATA), loops.sums, pitch),
            ]
            found = (shift, 0)
        gamma = 0 if p.fix_gamma else source(GAMMA)
        places = (gamma, mean, scale_and_beta[0], *statistics, source(BETA), scale_and_beta[1])
        parts.append(loops.alone(scale_loop, *loops.summed(given, p.eps), *found, *places))
        if output:
            arrays = (mean, scale_and_beta[0], source(BETA))
            further = (source(RESIDUAL) if _adds(prop) else 0, *limits.forward)
            slots = (source(DATA), output, *further, pitch, loops.pitch(output))
            parts.append(loops.together(loops.of.normalize, arrays, *slots))
        channels = request.inputs[BETA].with_layout(PLAIN)
        moving = channels if given else None
        residual = [data] if _adds(prop) else []
        kernel = native_kernel(
            self.name,
            parts,
            (data, None if p.fix_gamma else channels, channels, *residual, moving, moving),
            (data, channels, channels),
            request.requests,
            request.threads,
            extra_outputs=(channels, channels) if handed else (),
            flops=prop.flops([data.shape], []),
        )
        return replace(
            kernel, pitched_inputs=loops.pitched(DATA), pitched_outputs=loops.pitched(OUTPUT)
        )

    def prepare_backward(self, prop: AnyProperty, request: BackwardRequest) -> Kernel | None:
        """Prepare the sums, which are the gradients of gamma and beta, then data's gradient."""
        p = prop.parameters
        data, channels = request.forward.inputs[DATA], request.in_grad[BETA].with_layout(PLAIN)
        assert data is not None
        loops = _loops(data, p.axis, request.threads)
        data_grad, gamma_grad, beta_grad, *residual_grad = _requested_slots(request.requests)
        scale, center, slope = map(loops.channels, range(3))
        first, second = len(request.out_grad), len(request.out_grad) + len(request.in_data)
        values, mean, var = (source(at) for at in (first + DATA, second + MEAN, second + VAR))
        gamma, pitch = 0 if p.fix_gamma else source(first + GAMMA), loops.pitch(values)
        handed = request.forward.extra_outputs
        limits = Limits.of(prop, data.dtype)
        kind = READ if limits.kind != NOT and not handed else limits.kind
        last = second + len(request.out_data)
        normal = (source(last), source(last + 1)) if handed else (0, 0)
        output = source(second + OUTPUT) if kind == READ else 0
        # residual's gradient is the gradient that passes the limits; it is not computed again.
        passed = residual_grad[0] if residual_grad else 0
        arrays, read = (mean, *normal), (values, source(OUTPUT), output, kind, *limits.passing)
        again = (values, passed, 0, NOT, *limits.passing) if passed else read
        places = (var, gamma, scale, center, slope, gamma_grad, beta_grad)
        summed = (*loops.summed(False, p.eps), *places, int(p.use_global_stats))
        parts = [
            loops.together(loops.of.gradient_sums, arrays, *read, loops.sums, passed, pitch),
            loops.alone(gradient_scale_loop, *summed),
        ]
        if data_grad:
            arrays += (scale, center, slope)
            adds = int(request.requests[DATA] is OpReqType.ADD)
            further = (data_grad, adds, pitch)
            parts.append(loops.together(loops.of.data_gradient, arrays, *again, *further))
        scales = None if p.fix_gamma else channels
        residual = [None] if _adds(prop) else []
        outputs = (data if output else None, channels, channels)
        kernel = native_kernel(
            self.name,
            parts,
            (data, None, None, data, scales, None, *residual, *outputs, *handed),
            (data, scales, channels, *([data] if _adds(prop) else [])),
            (*without_add_requests(request.requests[:GAMMA]), *request.requests[GAMMA:]),
            request.threads,
            flops=prop.flops([data.shape], []),
            adding=adding(partial(self.prepare_backward, prop), request, (DATA,)),
        )
        return replace(kernel, pitched_inputs=loops.pitched(first + DATA))


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


def _requested_slots(requests: Sequence[OpReqType]) -> list[Slot | int]:
    """Return the outputs' slots; 0 for a null request."""
    return [
        0 if request is OpReqType.NULL else target(index) for index, request in enumerate(requests)
    ]


def _laid_out(data: TensorSpec, axis: int) -> TensorSpec:
    """Return data in its layout, or plain if channels-last has other channels than `axis`."""
    channels_last = data.layout == CHANNELS_LAST and axis % len(data.shape) == 1
    return data if channels_last else data.with_layout(PLAIN)


def _loops(data: TensorSpec, axis: int, threads: int) -> _Loops:
    """Return the loops for data in its layout."""
    axis %= len(data.shape)
    before, after = math.prod(data.shape[:axis]), math.prod(data.shape[axis + 1 :])
    if data.layout == CHANNELS_LAST:
        before, after = before * after, 1
    team = team_for_elements(data.elements, threads)
    return _Loops(Tasks.of(before, data.shape[axis], after), team, _LOOPS[data.dtype])
