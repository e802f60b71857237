"""Compiled reductions over any axes of a strided tensor.

Totals are float64 along every axis, and each stage rounds its results once. The order in which the
elements of an output are combined depends on the shape only, not on the tasks or the machine.
If there are too few outputs for all tasks, or contiguous runs are short, a reduction has stages:
first chunks of fixed size, then their results in order.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from enum import IntEnum
from typing import Any

from mxrun.base.dataclass import dataclass
from mxrun.base.device import DeviceDescription
from mxrun.base.tensor import PLAIN, Shape, TensorSpec, align, strides_of
from mxrun.codegen.arguments import Arguments, Float32s, Float64s, Integer, Real, Table
from mxrun.codegen.intrinsics import integer, join_rows, reduced_run, share, worker
from mxrun.codegen.jit import NativeFunction, inlined, native
from mxrun.operator.kernel import Handles
from mxrun.operator.launch import Handle, Launch, LoopLaunch
from mxrun.operator.native_kernel import Scratch, Slot, bound
from mxrun.ops.rows import near_rows
from mxrun.ops.strided import Axes, collapsed


class ReductionKind(IntEnum):
    """Kind of reduction; the numbers are those of `reduced_run`."""

    SUM = 0
    MAXIMUM = 1
    MINIMUM = 2
    PRODUCT = 3
    SUM_WITHOUT_NAN = 4
    PRODUCT_WITHOUT_NAN = 5
    MAGNITUDES = 6
    ROOT_OF_SQUARES = 7
    SQUARED_DEVIATIONS = 8  # From one shift for each output.
    DEVIATIONS = 9  # From the same shift.
    PRODUCT_WITHOUT_ZERO = 10
    PRODUCT_WITHOUT_ZERO_AND_NAN = 11
    ZEROS = 12  # Number of elements that are 0.


_START = {
    ReductionKind.MAXIMUM: -math.inf,
    ReductionKind.MINIMUM: math.inf,
    ReductionKind.PRODUCT: 1.0,
    ReductionKind.PRODUCT_WITHOUT_NAN: 1.0,
    ReductionKind.PRODUCT_WITHOUT_ZERO: 1.0,
    ReductionKind.PRODUCT_WITHOUT_ZERO_AND_NAN: 1.0,
}

# Kind that combines the results of chunks, where it differs from that of elements.
_OF_CHUNKS = {
    ReductionKind.SUM_WITHOUT_NAN: ReductionKind.SUM,
    ReductionKind.PRODUCT_WITHOUT_NAN: ReductionKind.PRODUCT,
    ReductionKind.MAGNITUDES: ReductionKind.SUM,
    ReductionKind.SQUARED_DEVIATIONS: ReductionKind.SUM,
    ReductionKind.DEVIATIONS: ReductionKind.SUM,
    ReductionKind.PRODUCT_WITHOUT_ZERO: ReductionKind.PRODUCT,
    ReductionKind.PRODUCT_WITHOUT_ZERO_AND_NAN: ReductionKind.PRODUCT,
    ReductionKind.ZEROS: ReductionKind.SUM,
}

# Minimum elements and rows of a chunk, and maximum number of chunks, enough for all tasks.
_CHUNK_ELEMENTS = 32_768
_CHUNK_ROWS = 16
# A chunk of a run is a multiple of so many elements, so that all begin at the same place of a cache
# line: a sum of 12 MB takes 69 us with it and 73 without.
_CHUNK_GRAIN = 64
_CHUNKS = 32
# Columns that are reduced at a time: their float64 totals stay in the L1 cache.
_COLUMNS = 2048
# Number of adjacent outputs that suffices for all tasks.
_ENOUGH_COLUMNS = 8192
# Runs shorter than _SHORT are processed several at a time; if there are at least _MANY rows, they
# are joined into runs of up to _LONG.
_SHORT = 32
_MANY = 1024
_LONG = 128
# Runs shorter than this are reduced in memory order, because the next run of the same output is too
# far away.
_FAR = 512


class Reduction(Arguments):
    """Arguments of the loops that reduce data to output.

    kind: `ReductionKind`; shifts: one for each k, None if the kind has none; outputs: number of k;
    chunks: number of chunks of an output; length: size of a chunk, in elements or rows; inner:
    elements of the innermost run; step: distance between these; gap: elements from the end of a run
    to the next; start: the total before the first element; remaining, reduced: size and stride of
    each outer axis, innermost first; totals: scratch of `reduce_rows_loop`, `columns` for each
    thread.
    """

    output: Float32s
    data: Float32s
    shifts: Float32s
    kind: Integer
    outputs: Integer
    chunks: Integer
    length: Integer
    inner: Integer
    step: Integer
    gap: Integer
    divisor: Real
    start: Real
    remaining_axes: Integer
    reduced_axes: Integer
    remaining: Table
    reduced: Table
    totals: Float64s
    columns: Integer


@inlined
def size_of(axes: Any, axis: int) -> int:
    """Return the size of one of the axes."""
    return integer(axes, 2 * axis)


@inlined
def stride_of(axes: Any, axis: int) -> int:
    """Return the stride of one of the axes."""
    return integer(axes, 2 * axis + 1)


@inlined
def place_of(axes: Any, first: int, end: int, number: int) -> int:
    """Return the offset of element `number` along the axes from `first` to before `end`."""
    place, rest = 0, number
    for axis in range(first, end):
        place += rest % size_of(axes, axis) * stride_of(axes, axis)
        rest = rest // size_of(axes, axis)
    return place


@native
def reduce_runs_loop(call: Reduction) -> None:
    """output[k, p] = chunk p of data[k, r], reduced over r, then divided; for contiguous runs of r.

    Computed in float64, or in float32 where that is exact. Each run is reduced in separate lanes
    (`reduced_run`), and the runs are reduced in sequence. A chunk's length is in elements; the step
    is 1.
    """
    data, kind, chunks, length = call.data, call.kind, call.chunks, call.length
    inner, gap = call.inner, call.gap
    elements = inner
    for axis in range(call.reduced_axes):
        elements *= size_of(call.reduced, axis)
    # share() splits at multiples of 16, so each chunk counts as 16 elements.
    item, end = share(call.outputs * chunks * 16)
    item, end = item // 16, end // 16
    while item < end:
        k = item // chunks
        part, base = item - k * chunks, place_of(call.remaining, 0, call.remaining_axes, k)
        neighbours, stride = 1, 0
        if call.remaining_axes and chunks == 1:
            size, stride = size_of(call.remaining, 0), stride_of(call.remaining, 0)
            neighbours = min(end - item, size - k % size)
        for i in range(neighbours):
            row, first, remaining = 0, 0, min(elements, length)
            if part:
                row, remaining = part * length // inner, min(elements - part * length, length)
                first = part * length - row * inner
            shift = call.shifts[k + i] if kind == 8 or kind == 9 else call.start
            total = 1.0 * call.start + 0.0
            while remaining > 0:
                count = min(remaining, inner - first)
                place = base + first + place_of(call.reduced, 0, call.reduced_axes, row)
                total = reduced_run(kind, total, data, place, count, shift, gap)
                remaining, first, row = remaining - count, 0, row + 1
            if kind == 7:
                total = math.sqrt(total)
            call.output[item + i] = total / call.divisor
            base += stride
        item += neighbours


@native
def reduce_rows_loop(call: Reduction) -> None:
    """output[p, k] = chunk p of data[k, r], reduced over r, then divided; for adjacent k.

    Computed in float64, row by row, in blocks of columns that stay in the cache. A chunk's length
    is in rows. The innermost run is a remaining axis; the gap is not used.
    """
    output, data, shifts, kind = call.output, call.data, call.shifts, call.kind
    outputs, length, inner, step = call.outputs, call.length, call.inner, call.step
    totals, own, columns = call.totals, worker() * call.columns, call.columns
    start, divisor = call.start, call.divisor
    rows = 1
    for axis in range(call.reduced_axes):
        rows *= size_of(call.reduced, axis)
    size, stride = 1, 0
    if call.reduced_axes:
        size, stride = size_of(call.reduced, 0), stride_of(call.reduced, 0)
    most = near_rows(stride)
    at, end = share(outputs * call.chunks)
    while at < end:
        part = at // outputs
        k = at - part * outputs
        rest = k // inner
        first = k - rest * inner
        count = min(min(end - at, inner - first), columns)
        base = first * step + place_of(call.remaining, 0, call.remaining_axes, rest)
        begin, stop = part * length, min(rows, (part + 1) * length)
        row = begin
        while row < stop:
            rest = row // size
            first = row - rest * size
            lines = min(min(stop - row, size - first), most)
            place = base + first * stride + place_of(call.reduced, 1, call.reduced_axes, rest)
            is_first, is_last = int(row == begin), int(row + lines == stop)
            join_rows(
                kind,
                totals,
                own,
                count,
                data,
                place,
                step,
                stride,
                lines,
                shifts,
                k,
                start,
                is_first,
                is_last,
                output,
                at,
                divisor,
            )
            row += lines
        at += count


@dataclass(frozen=True)
class _Stage:
    """One loop; its arguments are those of the reduction, whose tensors have no places yet."""

    function: NativeFunction
    reduction: Reduction
    tasks: int
    workers: int

    @property
    def nbytes(self) -> int:
        """Bytes of its results in scratch space."""
        return align(4 * self.reduction.outputs * self.reduction.chunks)

    @property
    def totals_bytes(self) -> int:
        """Bytes of its threads' totals."""
        return 8 * self.workers * int(self.reduction.columns)


@dataclass(frozen=True)
class ReducePart:
    """Sequence of loops, each of which reduces its predecessor's results in scratch space.

    shift: the tensor whose elements the first stage subtracts from those of each output.
    """

    output: Slot
    data: Slot
    shift: Slot | None
    stages: tuple[_Stage, ...]

    @property
    def scratch_bytes(self) -> int:
        """Size of the totals of threads, then of the results of every stage but the last."""
        return self._results + sum(stage.nbytes for stage in self.stages[:-1])

    @property
    def _results(self) -> int:
        return align(max(stage.totals_bytes for stage in self.stages))

    def slots(self) -> Iterator[Slot]:
        """Yield the output and the tensors that the first stage reads."""
        yield from (self.output, self.data)
        if self.shift is not None:
            yield self.shift

    def launches(self, handles: Handles, scratch: Handle | None) -> tuple[Launch, ...]:
        """Bind the loops."""
        read = self.data.handle(handles)
        shifts = None if self.shift is None else self.shift.handle(handles)
        launches, offset = list[Launch](), self._results
        for stage in self.stages:
            written = self.output.handle(handles)
            if stage is not self.stages[-1]:
                written = bound(Scratch(offset), handles, scratch)
            totals = bound(Scratch(), handles, scratch) if stage.totals_bytes else None
            reduction = replace(
                stage.reduction, output=written, data=read, shifts=shifts, totals=totals
            )
            launches.append(LoopLaunch(stage.function, reduction, stage.tasks))
            read, offset, shifts = written, offset + stage.nbytes, None
        return tuple(launches)


def reduce_part(
    kind: ReductionKind,
    output: Slot,
    data: tuple[Slot, TensorSpec],
    axes: Sequence[int],
    device: DeviceDescription,
    divisor: float = 1.0,
    shift: Slot | None = None,
) -> ReducePart:
    """Return output = data reduced over `axes`, then divided; the output is plain.

    shift: plain tensor of the output's shape from which deviations are computed.
    """
    slot, spec = data
    stages = _stages(kind, _axes(spec, axes), device, divisor)
    return ReducePart(output, slot, shift, stages)


def _stages(
    kind: ReductionKind, axes: Axes, device: DeviceDescription, divisor: float
) -> tuple[_Stage, ...]:
    """Return the loops that reduce axes in memory order, with data's and the output's strides."""
    shifted = kind in (ReductionKind.SQUARED_DEVIATIONS, ReductionKind.DEVIATIONS)
    split = None if shifted else _joined_rows(axes) or _runs_alone(axes)
    if split is not None:
        first = _stages(kind, split.first, device, 1.0)
    else:
        outputs = math.prod(size for size, (_, moves) in axes if moves)
        by_rows, inner = _innermost(axes)
        chunks = _chunk_count(by_rows, outputs, math.prod(size for size, _ in axes))
        first = (_stage(kind, axes, inner, chunks, device, divisor if chunks == 1 else 1.0),)
        if chunks == 1:
            return first
        shape = (chunks, outputs) if by_rows else (outputs, chunks)
        split = _Split(axes, shape, (0 if by_rows else 1,))
    rest = _axes(TensorSpec(split.shape), split.reduced)
    return (*first, *_stages(_OF_CHUNKS.get(kind, kind), rest, device, divisor))


@dataclass(frozen=True)
class _Split:
    """Reduction over `first` and the axes of its result's shape that are then reduced."""

    first: Axes
    shape: Shape
    reduced: tuple[int, ...]


def _innermost(axes: Axes) -> tuple[bool, int]:
    """Return whether the loop reduces by rows, and the index of the axis it takes as runs.

    It reduces by rows if the innermost axis remains. It also does so if that axis is reduced but
    short; the next remaining axis then gives the rows' elements.
    """
    if not axes:
        return False, 0
    last = len(axes) - 1
    if axes[last][1][1]:
        return True, last
    remaining = [place for place, (_, (_, moves)) in enumerate(axes) if moves]
    if remaining and axes[last][0] < _SHORT <= axes[remaining[-1]][0]:
        return True, remaining[-1]
    return False, last


def _joined_rows(axes: Axes) -> _Split | None:
    """Join adjacent short rows into longer ones, whose parts are reduced at the end.

    The number of rows joined is a divisor of the number of rows.
    """
    if len(axes) < 2:
        return None
    (rows, (row, moves)), (columns, strides) = axes[-2:]
    if moves or not strides[1] or row != columns or columns >= _SHORT or rows < _MANY:
        return None
    max_repeats = min(_LONG // columns, rows // _CHUNK_ROWS)
    repeats = max((n for n in range(1, max_repeats + 1) if rows % n == 0), default=1)
    if repeats == 1:
        return None
    long = (repeats * columns, strides)
    outer = math.prod(size for size, (_, moves) in axes[:-2] if moves)
    first = [*axes[:-2], (rows // repeats, (row * repeats, 0)), long]
    return _Split(first, (outer, repeats, columns), (1,))


def _runs_alone(axes: Axes) -> _Split | None:
    """Reduce runs that are far apart for each output in memory order, before the other axes."""
    if len(axes) < 3 or axes[-1][1][1] or not _SHORT <= axes[-1][0] < _FAR:
        return None
    outer, shape = axes[:-1], tuple(size for size, _ in axes[:-1])
    plain = strides_of(shape, PLAIN)
    alone = [(size, (stride, own)) for (size, (stride, _)), own in zip(outer, plain, strict=True)]
    reduced = tuple(place for place, (_, (_, moves)) in enumerate(outer) if not moves)
    return _Split(collapsed([*alone, axes[-1]]), shape, reduced)


def _chunk_count(by_rows: bool, outputs: int, elements: int) -> int:
    """Return the number of chunks into which the elements of each output are divided."""
    chunks = elements // _CHUNK_ELEMENTS
    if not by_rows:
        return max(1, min(-(-_CHUNKS // outputs), chunks))
    rows = elements // outputs
    parallel = _CHUNKS if outputs < _ENOUGH_COLUMNS else 1
    return max(1, min(parallel, chunks, rows // _CHUNK_ROWS))


def _stage(
    kind: ReductionKind,
    axes: Axes,
    inner: int,
    chunks: int,
    device: DeviceDescription,
    divisor: float,
) -> _Stage:
    """Return one loop over the axes; `inner`: index of the axis taken as runs."""
    size, (step, moves) = axes[inner] if axes else (1, (1, 0))
    outer = [axis for place, axis in enumerate(axes) if place != inner][::-1]
    remaining = [(n, stride) for n, (stride, moved) in outer if moved]
    reduced = [(n, stride) for n, (stride, moved) in outer if not moved]
    outputs = math.prod(n for n, (_, moved) in axes if moved)
    elements = math.prod(n for n, _ in axes)
    following = reduced if reduced or chunks > 1 else remaining
    grain = 1 if moves else _CHUNK_GRAIN
    reduction = Reduction(
        output=None,
        data=None,
        shifts=None,
        kind=int(kind),
        outputs=outputs,
        chunks=chunks,
        length=-(-(elements // outputs) // (chunks * grain)) * grain,
        inner=size,
        step=step,
        gap=_gap(size, following),
        divisor=divisor,
        start=_START.get(kind, 0.0),
        remaining_axes=len(remaining),
        reduced_axes=len(reduced),
        remaining=tuple(itertools.chain(*remaining)),
        reduced=tuple(itertools.chain(*reduced)),
        totals=None,
        columns=min(_COLUMNS, size) if moves else 0,
    )
    loop = reduce_rows_loop if moves else reduce_runs_loop
    tasks = device.tasks_for_elements(elements)
    return _Stage(loop, reduction, tasks, device.workers(tasks))


def _gap(size: int, following: Sequence[tuple[int, int]]) -> int:
    """Return the elements from the end of a run to the next, along the first of the axes.

    The loop prefetches that far ahead. For short runs that are not adjacent the distance would
    reach a later run; the result then points back to data already in the cache.
    """
    gap = following[0][1] - size if following else 0
    return gap if gap == 0 or size >= _FAR else -_FAR


def _axes(spec: TensorSpec, axes: Sequence[int]) -> Axes:
    """Return the axes in memory order, with the strides of the tensor and of the output."""
    own = strides_of(spec.shape, spec.layout)
    sizes: Shape = tuple(1 if axis in axes else size for axis, size in enumerate(spec.shape))
    output = strides_of(sizes, PLAIN)
    order = sorted(range(len(own)), key=lambda axis: (-own[axis], axis))
    return collapsed(
        (spec.shape[axis], (own[axis], 0 if axis in axes else output[axis])) for axis in order
    )
