"""Maps of scalar functions over strided and broadcast tensors, in one pass.

The map's machine code requires contiguous elements. An operand that is broadcast or stored in
another order is first gathered, a chunk at a time that stays in the L1 cache, so that it causes no
further memory traffic. Long contiguous runs of such an operand are read in place.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mxrun.backend import jit
from mxrun.backend.call import HEADER_SLOTS, NativeCall
from mxrun.backend.jit import Block, call_address, float32s, inlined, int64s, integer, native, share
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

# Maximum number of elements of a chunk: its operands and result fit into the L1 cache.
_CHUNK = 1024
# Chunks are multiples of this, so that only the last one has an incomplete vector.
_GRAIN = 32
# Minimum run length from which an incomplete vector at its end costs less than gathering it.
_LONG = 512
_ELEMENT, _WORD = 4, 8
# Words of a thread's argument block for the map's code, and (size, stride) of an endless axis.
_BLOCK_WORDS = 16
_ENDLESS = (2**60, 0)

_COPY = scalar.compile(lambda x: x)


@inlined
def advance_rows(block: Block, words: Any, slot: int, state: int, rows: int) -> Any:
    """Advance an operand by `rows` along its second and outer axes; return the row's offset."""
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


@inlined
def gather(
    block: Block, words: Any, slot: int, state: int, cells: Any, base: int, count: int
) -> None:
    """cells[base:base + count] = the operand's next elements; overwrites 16 more cells."""
    x, inner, step = float32s(block, slot), integer(block, slot + 2), integer(block, slot + 3)
    limit, row = base + count, words[state]
    while base < limit:
        first = words[state + 1]
        rows, run = 1, min(inner - first, limit - base)
        if run == inner:
            # Rows along the second axis are a constant stride apart.
            remaining = integer(block, slot + 4) - words[state + 2]
            rows = min(remaining, (limit - base) // inner)
        stride, place = integer(block, slot + 5), row + first * step
        # In a long run, every store after the first fills complete cache lines.
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
            row = advance_rows(block, words, slot, state, rows)
        else:
            words[state + 1] = first + run


@inlined
def seek(block: Block, words: Any, states: int, begin: int) -> None:
    """Set the operands' positions, stored from `states` on, to output element `begin`."""
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
    """Run a map's code on successive chunks of the output's memory.

    Slots: number of elements, elements per chunk, address of the code, words of scratch for the
    team, output, scratch, numbers of parameters, operands and axes, the parameters; then for each
    operand its address, its access mode (0: stored like the output, 1: gathered, 2: every chunk
    equals the first, 3: read in place, no chunk crosses the end of an innermost run), and size and
    stride of each axis, innermost first.

    Scratch of a thread: the code's argument block; for each operand the offset of its row and its
    position in the row and on every other axis; last, the operands' chunks.
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
    seek(block, words, states, begin)
    while at < end:
        count = min(end - at, chunk)
        for operand in range(operands):
            slot, state = records + operand * record, states + operand * (record // 2)
            if integer(block, slot + 1) == 3:
                count = min(count, integer(block, slot + 2) - words[state + 1])
        for operand in range(operands):
            slot, state = records + operand * record, states + operand * (record // 2)
            mode, place = integer(block, slot + 1), at
            if mode == 3:
                place = words[state] + words[state + 1]
                words[state + 1] += count
                if words[state + 1] == integer(block, slot + 2):
                    advance_rows(block, words, slot, state, 1)
            if mode == 0 or mode == 3:
                words[own + 4 + operand] = integer(block, slot) + 4 * place
            elif mode == 1 or at == begin:
                base = 2 * behind - (operand + 1) * (chunk + _GRAIN)
                words[own + 4 + operand] = scratch + 4 * base
                gather(block, words, slot, state, cells, base, count)
        words[own + 2], words[own + 3] = count, integer(block, 4) + 4 * at
        call_address(code, scratch + 8 * own, 0, 0, 0, 0, 0)
        at += count


@native
def copied_loop(block: Block) -> None:
    """output = the only operand, gathered directly into the output's memory.

    Slots and scratch are those of `chunks_loop`; code and chunk size are not used.
    """
    words, cells, output = int64s(block, 5), float32s(block, 5), float32s(block, 4)
    own, behind = share(block, integer(block, 3))
    slot, state = 9 + integer(block, 6), own + _BLOCK_WORDS
    at, end = share(block, integer(block, 0))
    seek(block, words, state, at)
    # gather() overwrites cells after its last element, which belong to another thread.
    direct = max(end - at - LANES, 0)
    gather(block, words, slot, state, output, at, direct)
    at, base = at + direct, 2 * behind - _GRAIN
    gather(block, words, slot, state, cells, base, end - at)
    store_lanes(output, at, load_lanes(cells, base, LANES), end - at)


@dataclass(frozen=True)
class ChunksPart:
    """Map with operands that are not stored in the output's order.

    loop: None for a copy of the only operand; axes: those of each operand; modes: access modes, see
    `chunks_loop`.
    """

    loop: MapLoop | None
    output: Slot
    operands: tuple[Slot, ...]
    axes: tuple[Axes, ...]
    modes: tuple[int, ...]
    parameters: tuple[float, ...]
    elements: int
    chunk: int
    threads: int

    @property
    def team(self) -> None:
        """None: the loop starts its own team."""
        return

    @property
    def scratch_bytes(self) -> int:
        """Size of every thread's argument block, positions and chunks."""
        return self.threads * self._thread_words * _WORD

    @property
    def _rank(self) -> int:
        """Number of axes of a record: the last one is endless, so it never overflows."""
        return 1 + max(map(len, self.axes))

    @property
    def _thread_words(self) -> int:
        # `share` splits at multiples of 16 words.
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
        for operand, mode, axes in zip(self.operands, self.modes, self.axes, strict=True):
            arguments += [operand.address(buffers), mode]
            inward = [(size, strides[0]) for size, strides in reversed(axes)]
            for size, stride in (*inward, *(_ENDLESS,) * (self._rank - len(inward))):
                arguments += [size, stride]
        function = copied_loop if self.loop is None else chunks_loop
        return (jit.bind(function, tuple(arguments), self.threads),)


def served(*specs: TensorSpec) -> bool:
    """Return whether the loops support these tensors: all must be float32."""
    return all(spec.dtype == "float32" for spec in specs)


def strided_part(
    kernel: MapKernel,
    output: tuple[Slot, TensorSpec],
    operands: Sequence[tuple[Slot, TensorSpec]],
    threads: int,
    parameters: Sequence[float] = (),
    request: OpReqType = OpReqType.WRITE,
) -> KernelPart:
    """Return output = map of the operands, which are broadcast to its shape.

    All are float32, in one unpacked layout. The map serves an add-to request itself, as in
    `MapKernel.part`.
    """
    slot, spec = output
    found = [(operand, common_axes(spec, [each])) for operand, each in operands]
    return _part(kernel, (slot, spec.elements), found, threads, parameters, request)


def permuted_part(
    output: Slot, data: Slot, shape: Shape, order: Sequence[int], threads: int
) -> KernelPart:
    """Return output = plain data of `shape` with its axes in another order."""
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
    """Return the map over `output`'s elements, with the operands' axes in its memory order."""
    assert HEADER_SLOTS + 2 + len(operands) + len(parameters) <= _BLOCK_WORDS
    (slot, elements), slots = output, tuple(operand for operand, _ in operands)
    axes = tuple(own or [(1, (1,))] for _, own in operands)
    steps = [own[0][1][0] if len(own) == 1 else -1 for own in axes]
    if not elements or all(step in (0, 1) for step in steps):
        return kernel.part(
            slot, slots, elements, parameters, threads=threads, request=request, steps=steps
        )
    chunk, modes = _chunks(elements, axes)
    team, loop = team_for_elements(elements, threads), None
    if modes == (1,) and request is OpReqType.WRITE and _passes(kernel):
        chunk = 0
    else:
        form = LoopForm(kernel.dtype, (1,) * len(slots), request is OpReqType.ADD)
        loop = MapLoop(kernel.graph, kernel.result, form)
    return ChunksPart(loop, slot, slots, axes, modes, tuple(parameters), elements, chunk, team)


def _passes(kernel: MapKernel) -> bool:
    """Return whether the map returns its only operand unchanged."""
    return kernel.graph.nodes[kernel.result].operation == "operand"


def _chunks(elements: int, operands: Sequence[Axes]) -> tuple[int, tuple[int, ...]]:
    """Return the chunk size and the access mode of each operand (see `chunks_loop`).

    If a chunk holds a multiple of a repeating operand's period, all its chunks are equal. Otherwise
    long runs are read in place, in chunks of about equal size.
    """
    grain, modes = _GRAIN, []
    for axes in operands:
        outermost, (stride,) = axes[0]
        period = math.lcm(grain, elements // outermost)
        if axes == [(elements, (1,))]:
            modes.append(0)
        elif stride == 0 and period <= _CHUNK:
            modes.append(2)
            grain = period
        else:
            modes.append(1)
    runs = [axes[-1][0] if axes[-1][1] == (1,) else 0 for axes in operands]
    long = [mode == 1 and run >= _LONG for mode, run in zip(modes, runs, strict=True)]
    if 2 in modes or not any(long):
        return _CHUNK // grain * grain, tuple(modes)
    run = min(itertools.compress(runs, long))
    chunk = math.ceil(run / math.ceil(run / _CHUNK) / grain) * grain
    return chunk, tuple(3 if own else mode for own, mode in zip(long, modes, strict=True))
