"""Compiled reductions over any axes of a strided tensor, and their gradients."""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import IntEnum

from mxrun.backend.jit import (
    Block,
    float32s,
    integer,
    join_rows,
    native,
    real,
    reduced_run,
    reduction_slope,
    share,
)
from mxrun.backend.onednn.descriptor import strides_of
from mxrun.backend.team import team_for_elements
from mxrun.base.tensor import PLAIN, Shape, TensorSpec
from mxrun.operator.native_kernel import LoopPart, Slot
from mxrun.ops.strided import Axes, collapsed


class Kind(IntEnum):
    """What becomes of the elements along the reduced axes; the numbers are `reduced_run`'s."""

    SUM = 0
    MAXIMUM = 1
    MINIMUM = 2
    PRODUCT = 3
    SUM_WITHOUT_NAN = 4
    PRODUCT_WITHOUT_NAN = 5
    MAGNITUDES = 6
    ROOT_OF_SQUARES = 7


_START = {
    Kind.MAXIMUM: -math.inf,
    Kind.MINIMUM: math.inf,
    Kind.PRODUCT: 1.0,
    Kind.PRODUCT_WITHOUT_NAN: 1.0,
}


@native
def reduce_runs_loop(block: Block) -> None:
    """output[k] = data[k, r] reduced over r, then divided; for runs of r in memory.

    Taken in float64. Each run goes through 32 lanes (`reduced_run`), the runs follow one another:
    the association depends on the shape alone, not on the team or the machine.
    Slots: the kind, outputs, elements of an innermost run, output, data, divisor, start, counts of
    kept and of outer reduced axes, then size and stride of each, the innermost first, the kept ones
    before the reduced.
    """
    kind, inner, divisor = integer(block, 0), integer(block, 2), real(block, 5)
    output, data = float32s(block, 3), float32s(block, 4)
    reduced = 9 + 2 * integer(block, 7)
    last = reduced + 2 * integer(block, 8)
    runs = 1
    for axis in range(reduced, last, 2):
        runs *= integer(block, axis)
    begin, end = share(block, integer(block, 1))
    for k in range(begin, end):
        base, rest = 0, k
        for axis in range(9, reduced, 2):
            base += rest % integer(block, axis) * integer(block, axis + 1)
            rest = rest // integer(block, axis)
        total = 1.0 * real(block, 6) + 0.0
        for run in range(runs):
            at, rest = base, run
            for axis in range(reduced, last, 2):
                at += rest % integer(block, axis) * integer(block, axis + 1)
                rest = rest // integer(block, axis)
            total = reduced_run(kind, total, data, at, inner)
        if kind == 7:
            total = math.sqrt(total)
        output[k] = total / divisor


@native
def reduce_rows_loop(block: Block) -> None:
    """output[k] = data[r, k] reduced over r, then divided; for runs of k in memory.

    Taken in float32, row after row. The slots are those of `reduce_runs_loop`, but the innermost
    run is the kept one.
    """
    kind, inner, divisor = integer(block, 0), integer(block, 2), real(block, 5)
    output, data, start = float32s(block, 3), float32s(block, 4), real(block, 6)
    reduced = 9 + 2 * integer(block, 7)
    last = reduced + 2 * integer(block, 8)
    runs = 1
    for axis in range(reduced, last, 2):
        runs *= integer(block, axis)
    k, end = share(block, integer(block, 1))
    while k < end:
        rest = k // inner
        base = k - rest * inner
        count = min(end - k, inner - base)
        for axis in range(9, reduced, 2):
            base += rest % integer(block, axis) * integer(block, axis + 1)
            rest = rest // integer(block, axis)
        for i in range(count):
            output[k + i] = start
        for run in range(runs):
            at, rest = base, run
            for axis in range(reduced, last, 2):
                at += rest % integer(block, axis) * integer(block, axis + 1)
                rest = rest // integer(block, axis)
            join_rows(kind, output, k, data, at, count)
        if kind == 7:
            for i in range(count):
                output[k + i] = math.sqrt(output[k + i])
        if divisor != 1:
            for i in range(count):
                output[k + i] /= divisor
        k += count


@native
def spread_loop(block: Block) -> None:
    """gradient[i] = out_grad[k] * d output[k] / d data[i], where i was reduced to k.

    Slots: the kind, elements, elements of an innermost run, gradient, out_grad, data, output, step
    of k within a run (0 or 1), count of outer axes, then of each, the innermost first: size and
    stride of k.
    """
    kind, inner, step = integer(block, 0), integer(block, 2), integer(block, 7)
    gradient, out_grad = float32s(block, 3), float32s(block, 4)
    data, output = float32s(block, 5), float32s(block, 6)
    at, end = share(block, integer(block, 1))
    while at < end:
        row = at // inner
        first = at - row * inner
        count = min(end - at, inner - first)
        k = first * step
        for axis in range(9, 9 + 2 * integer(block, 8), 2):
            k += row % integer(block, axis) * integer(block, axis + 1)
            row = row // integer(block, axis)
        # One loop for each step: so both become vector code.
        if step == 0:
            factor, result = out_grad[k], output[k]
            for i in range(at, at + count):
                gradient[i] = factor * reduction_slope(kind, data[i], result)
        else:
            for i in range(count):
                slope = reduction_slope(kind, data[at + i], output[k + i])
                gradient[at + i] = out_grad[k + i] * slope
        at += count


def reduce_part(
    kind: Kind,
    output: Slot,
    data: tuple[Slot, TensorSpec],
    axes: Sequence[int],
    threads: int,
    divisor: float = 1.0,
) -> LoopPart:
    """output = the plain tensor of data's kept axes, reduced over `axes`, then divided."""
    slot, spec = data
    outputs = math.prod(size for axis, size in enumerate(spec.shape) if axis not in axes)
    found = _axes(spec, axes)
    inner, (_, moves) = found.pop() if found else (1, (1, 0))
    kept = [(size, strides[0]) for size, strides in reversed(found) if strides[1]]
    reduced = [(size, strides[0]) for size, strides in reversed(found) if not strides[1]]
    numbers = [number for axis in (*kept, *reduced) for number in axis]
    start = _START.get(kind, 0.0)
    return LoopPart(
        reduce_rows_loop if moves else reduce_runs_loop,
        (
            int(kind),
            outputs,
            inner,
            output,
            slot,
            divisor,
            start,
            len(kept),
            len(reduced),
            *numbers,
        ),
        team_for_elements(spec.elements, threads) if outputs > 1 else 1,
    )


def spread_part(
    kind: Kind,
    gradient: tuple[Slot, TensorSpec],
    operands: Sequence[Slot],
    axes: Sequence[int],
    threads: int,
) -> LoopPart:
    """gradient of the plain data; operands: out_grad, data and output."""
    slot, spec = gradient
    found = _axes(spec, axes)
    inner, (_, step) = found.pop() if found else (1, (1, 0))
    outer = [number for size, strides in reversed(found) for number in (size, strides[1])]
    return LoopPart(
        spread_loop,
        (int(kind), spec.elements, inner, slot, *operands, step, len(found), *outer),
        team_for_elements(spec.elements, threads),
    )


def _axes(spec: TensorSpec, axes: Sequence[int]) -> Axes:
    """The axes in the order of memory, with the strides of the tensor and of what is kept of it."""
    own = strides_of(spec.shape, spec.layout)
    sizes: Shape = tuple(1 if axis in axes else size for axis, size in enumerate(spec.shape))
    kept = strides_of(sizes, PLAIN)
    order = sorted(range(len(own)), key=lambda axis: (-own[axis], axis))
    return collapsed(
        (spec.shape[axis], (own[axis], 0 if axis in axes else kept[axis])) for axis in order
    )
