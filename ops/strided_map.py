"""Maps of scalar functions over strided tensors: one pass, whatever the operands' repetitions.

The map's machine code runs over elements that lie one behind the other. An operand that repeats,
or lies otherwise, is first brought into that order, a chunk at a time that stays in the innermost
cache: the memory sees nothing of it. Long runs of one that repeats are read where they lie.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mxrun.backend import jit
from mxrun.backend.call import HEADER_SLOTS, NativeCall
from mxrun.backend.jit import Block, call_address, float32s, int64s, integer, native, piece, share
from mxrun.backend.onednn.descriptor import strides_of
from mxrun.backend.scalar_value import LoopForm
from mxrun.backend.team import team_for_elements
from mxrun.backend.vectors import LANES, gather_lanes, lanes, load_lanes, store_lanes
from mxrun.base.tensor import PLAIN, Shape, TensorSpec
from mxrun.operator import scalar
from mxrun.operator.kernel import Buffers, OpReqType
from mxrun.operator.native_kernel import KernelPart, Slot
from mxrun.operator.scalar import MapKernel, MapLoop
from mxrun.ops.strided import Axes, collapsed, common_axes

# The most elements of a chunk. Its operands and what the map makes of it fit the innermost cache.
_CHUNK = 1024
# Every chunk but the last is whole vectors of the map's code.
_GRAIN = 32
# Runs from which on an incomplete vector at the end costs less than to bring them in order.
_LONG = 512
_ELEMENT, _WORD = 4, 8
# Words of a thread's argument block for the map's code, and of an axis that goes on without end.
_BLOCK_WORDS = 16
_ENDLESS = (2**60, 0)

_COPY = scalar.compile(lambda x: x)


@piece
def moved(block: Block, words: Any, slot: int, state: int, rows: int) -> Any:
    """The place of an operand's row so many rows on, along its second axis and those outside."""
    row, axis = words[state], 1
    words[state + 1] = 0
    while rows:
        size, stride = integer(block, slot + 2 + 2 * axis), integer(block, slot + 3 + 2 * axis)
        position = words[state + 1 + axis] + rows
        row += rows * stride
        rows = 0
        if position == size:
            row -= size * stride
            position, rows = 0, 1
        words[state + 1 + axis] = position
        axis += 1
    words[state] = row
    return row


@piece
def gather(
    block: Block, words: Any, slot: int, state: int, cells: Any, base: int, count: int
) -> None:
    """cells[base:base + count] = the operand's next elements; 16 cells behind them are spoilt."""
    x, inner, step = float32s(block, slot), integer(block, slot + 2), integer(block, slot + 3)
    limit, row = base + count, words[state]
    while base < limit:
        first = words[state + 1]
        rows, run = 1, min(inner - first, limit - base)
        if run == inner:
            # Along the second axis the rows follow one another at a stride.
            left = integer(block, slot + 4) - words[state + 2]
            rows = min(left, (limit - base) // inner)
        stride, place = integer(block, slot + 5), row + first * step
        # Of a long run, all stores but the first are whole lines of the cache.
        second = LANES - base % LANES if run > LANES else LANES
        if step == 0:
            for i in range(rows):
                value, to = lanes(x[place + i * stride]), base + i * inner
                store_lanes(cells, to, value, LANES)
                for j in range(second, run, LANES):
                    store_lanes(cells, to + j, value, LANES)
        elif step == 1:
            for i in range(rows):
                at, to = place + i * stride, base + i * inner
                store_lanes(cells, to, load_lanes(x, at, run), LANES)
                for j in range(second, run, LANES):
                    store_lanes(cells, to + j, load_lanes(x, at + j, run - j), LANES)
        else:
            for i in range(rows):
                at, to = place + i * stride, base + i * inner
                for j in range(0, run, LANES):
                    part = gather_lanes(x, at + j * step, step, run - j)
                    store_lanes(cells, to + j, part, LANES)
        base += rows * run
        if first + run == inner:
            row = moved(block, words, slot, state, rows)
        else:
            words[state + 1] = first + run


@piece
def begun(block: Block, words: Any, states: int, begin: int) -> None:
    """The operands' positions, from `states` on, at one place of the output."""
    operands, axes = integer(block, 7), integer(block, 8)
    for operand in range(operands):
        slot = 9 + integer(block, 6) + operand * (2 + 2 * axes)
        state, row, rest = states + operand * (1 + axes), 0, begin
        for axis in range(axes):
            size = integer(block, slot + 2 + 2 * axis)
            words[state + 1 + axis] = rest % size
            if axis:
                row += rest % size * integer(block, slot + 3 + 2 * axis)
            rest = rest // size
        words[state] = row


@native
def chunks_loop(block: Block) -> None:
    """A map's code on one chunk of the output's memory after the other.

    Slots: elements, elements of a chunk, the code, the team's words of scratch, output, scratch,
    counts of parameters, operands and axes, the parameters, then of each operand: address, way (0:
    lies as the output does, 1: gathered, 2: every chunk is like the first, 3: read where it lies,
    no chunk going beyond an innermost run), and of each axis, the innermost first, size and stride.
    Scratch of a thread: the code's argument block, then of each operand its row's place, the place
    within it and on every other axis; last, their chunks.
    """
    chunk, code, scratch = integer(block, 1), integer(block, 2), integer(block, 5)
    operands, record = integer(block, 7), 2 + 2 * integer(block, 8)
    words, cells = int64s(block, 5), float32s(block, 5)
    own, behind = share(block, integer(block, 3))
    records, states = 9 + integer(block, 6), own + _BLOCK_WORDS
    words[own], words[own + 1] = 0, 0
    for index in range(integer(block, 6)):
        words[own + 4 + operands + index] = integer(block, 9 + index)
    at, end = share(block, integer(block, 0))
    begin = at
    begun(block, words, states, begin)
    while at < end:
        count = min(end - at, chunk)
        for operand in range(operands):
            slot, state = records + operand * record, states + operand * (record // 2)
            if integer(block, slot + 1) == 3:
                count = min(count, integer(block, slot + 2) - words[state + 1])
        for operand in range(operands):
            slot, state = records + operand * record, states + operand * (record // 2)
            way, place = integer(block, slot + 1), at
            if way == 3:
                place = words[state] + words[state + 1]
                words[state + 1] += count
                if words[state + 1] == integer(block, slot + 2):
                    moved(block, words, slot, state, 1)
            if way == 0 or way == 3:
                words[own + 4 + operand] = integer(block, slot) + 4 * place
            elif way == 1 or at == begin:
                base = 2 * behind - (operand + 1) * (chunk + _GRAIN)
                words[own + 4 + operand] = scratch + 4 * base
                gather(block, words, slot, state, cells, base, count)
        words[own + 2], words[own + 3] = count, integer(block, 4) + 4 * at
        call_address(code, scratch + 8 * own, 0, 0, 0, 0, 0)
        at += count


@native
def copied_loop(block: Block) -> None:
    """output = the one operand, brought into the order of the output's memory at once.

    Slots and scratch: those of `chunks_loop`; neither code nor chunk is asked for.
    """
    words, cells, output = int64s(block, 5), float32s(block, 5), float32s(block, 4)
    own, behind = share(block, integer(block, 3))
    slot, state = 9 + integer(block, 6), own + _BLOCK_WORDS
    at, end = share(block, integer(block, 0))
    begun(block, words, state, at)
    # What is spoilt behind the last elements would be another thread's.
    whole = max(end - at - LANES, 0)
    gather(block, words, slot, state, output, at, whole)
    at, base = at + whole, 2 * behind - _GRAIN
    gather(block, words, slot, state, cells, base, end - at)
    store_lanes(output, at, load_lanes(cells, base, LANES), end - at)


@dataclass(frozen=True)
class ChunksPart:
    """A map some of whose operands do not lie in memory as the output does.

    loop: None for the one operand as it is; axes: of each operand its own; way: see `chunks_loop`.
    """

    loop: MapLoop | None
    output: Slot
    operands: tuple[Slot, ...]
    axes: tuple[Axes, ...]
    ways: tuple[int, ...]
    parameters: tuple[float, ...]
    elements: int
    chunk: int
    threads: int

    @property
    def team(self) -> None:
        """None: the loop starts its own."""
        return

    @property
    def scratch_bytes(self) -> int:
        """Every thread's argument block, positions and chunks."""
        return self.threads * self._thread_words * _WORD

    @property
    def _rank(self) -> int:
        """Axes of a record: the last is endless for all, which the position never leaves."""
        return 1 + max(map(len, self.axes))

    @property
    def _thread_words(self) -> int:
        # `share` cuts at multiples of 16 words.
        count = len(self.operands)
        words = _BLOCK_WORDS + count * (1 + self._rank)
        words += count * (self.chunk + _GRAIN) * _ELEMENT // _WORD
        return math.ceil(words / 16) * 16

    def calls(self, buffers: Buffers, scratch: int) -> tuple[NativeCall, ...]:
        """Bind the loop."""
        counts = (len(self.parameters), len(self.operands), self._rank)
        code = 0 if self.loop is None else self.loop.address
        arguments: list[int | float] = [self.elements, self.chunk, code]
        arguments += [self.threads * self._thread_words, self.output.address(buffers), scratch]
        arguments += [*counts, *self.parameters]
        for operand, way, axes in zip(self.operands, self.ways, self.axes, strict=True):
            arguments += [operand.address(buffers), way]
            inward = [(size, strides[0]) for size, strides in reversed(axes)]
            for size, stride in (*inward, *(_ENDLESS,) * (self._rank - len(inward))):
                arguments += [size, stride]
        function = copied_loop if self.loop is None else chunks_loop
        return (jit.bind(function, tuple(arguments), self.threads),)


def served(*specs: TensorSpec) -> bool:
    """Whether the loops take these tensors: float32 throughout."""
    return all(spec.dtype == "float32" for spec in specs)


def strided_part(
    kernel: MapKernel,
    output: tuple[Slot, TensorSpec],
    operands: Sequence[tuple[Slot, TensorSpec]],
    threads: int,
    parameters: Sequence[float] = (),
    request: OpReqType = OpReqType.WRITE,
) -> KernelPart:
    """output = map of the operands, which broadcast to its shape; float32, in one unpacked layout.

    As of `MapKernel.part`, an add-to request is the map's own affair.
    """
    slot, spec = output
    found = [(operand, common_axes(spec, [each])) for operand, each in operands]
    return _part(kernel, (slot, spec.elements), found, threads, parameters, request)


def permuted_part(
    output: Slot, data: Slot, shape: Shape, order: Sequence[int], threads: int
) -> KernelPart:
    """output = plain data of `shape`, its axes in another order."""
    strides = strides_of(shape, PLAIN)
    axes = collapsed((shape[axis], (strides[axis],)) for axis in order)
    return _part(_COPY, (output, math.prod(shape)), [(data, axes)], threads)


def _part(
    kernel: MapKernel,
    output: tuple[Slot, int],
    operands: Sequence[tuple[Slot, Axes]],
    threads: int,
    parameters: Sequence[float] = (),
    request: OpReqType = OpReqType.WRITE,
) -> KernelPart:
    """The map over so many elements, of operands with the axes of the output's memory."""
    assert HEADER_SLOTS + 2 + len(operands) + len(parameters) <= _BLOCK_WORDS
    (slot, elements), slots = output, tuple(operand for operand, _ in operands)
    axes = tuple(own or [(1, (1,))] for _, own in operands)
    steps = [own[0][1][0] if len(own) == 1 else -1 for own in axes]
    if not elements or all(step in (0, 1) for step in steps):
        return kernel.part(
            slot, slots, elements, parameters, threads=threads, request=request, steps=steps
        )
    chunk, ways = _chunks(elements, axes)
    team, loop = team_for_elements(elements, threads), None
    if ways == (1,) and request is OpReqType.WRITE and _passes(kernel):
        chunk = 0
    else:
        form = LoopForm(kernel.dtype, (1,) * len(slots), request is OpReqType.ADD)
        loop = MapLoop(kernel.graph, kernel.result, form)
    return ChunksPart(loop, slot, slots, axes, ways, tuple(parameters), elements, chunk, team)


def _passes(kernel: MapKernel) -> bool:
    """Whether a map of one operand gives it as it is."""
    return kernel.graph.nodes[kernel.result].operation == "operand"


def _chunks(elements: int, operands: Sequence[Axes]) -> tuple[int, tuple[int, ...]]:
    """The size of a chunk, and what is to be done for each of the operands' chunks.

    Of an operand that is the same over and over again, all chunks are alike where they hold it so
    many times; else long runs are read where they lie, in chunks of about one size.
    """
    grain, ways = _GRAIN, []
    for axes in operands:
        outermost, (stride,) = axes[0]
        period = math.lcm(grain, elements // outermost)
        if axes == [(elements, (1,))]:
            ways.append(0)
        elif stride == 0 and period <= _CHUNK:
            ways.append(2)
            grain = period
        else:
            ways.append(1)
    runs = [axes[-1][0] if axes[-1][1] == (1,) else 0 for axes in operands]
    long = [way == 1 and run >= _LONG for way, run in zip(ways, runs, strict=True)]
    if 2 in ways or not any(long):
        return _CHUNK // grain * grain, tuple(ways)
    run = min(itertools.compress(runs, long))
    chunk = math.ceil(run / math.ceil(run / _CHUNK) / grain) * grain
    return chunk, tuple(3 if own else way for own, way in zip(long, ways, strict=True))
