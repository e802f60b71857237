"""Maps of scalar functions over strided and broadcast tensors, in one pass.

The map's machine code requires contiguous elements. An operand that is broadcast or stored in
another order is first gathered, a chunk at a time that stays in the L1 cache, so that it causes no
further memory traffic. Long contiguous runs of such an operand are read in place.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from functools import partial
from typing import Any

from mxrun.base.device import DeviceDescription
from mxrun.base.dtype import FLOAT32, item_size
from mxrun.base.tensor import PLAIN, Shape, TensorSpec, strides_of
from mxrun.codegen.arguments import Arguments, Float32s, Int64s, Integer, Table
from mxrun.codegen.intrinsics import float32s, integer, run_map, share, worker
from mxrun.codegen.jit import inlined, native
from mxrun.codegen.vectors import LANES, gather_lanes, lanes, load_lanes, store_lanes
from mxrun.operator.kernel import OpReqType
from mxrun.operator.native_kernel import LoopPart, Scratch, Slot
from mxrun.operator.scalar import MapKernel, map_of
from mxrun.ops.copy_part import COPY
from mxrun.ops.strided import Axes, collapsed, common_axes

# Maximum number of elements of a chunk: its operands and result fit into the L1 cache.
_CHUNK = 1024
# Chunks are multiples of this, so that only the last one has an incomplete vector.
_GRAIN = 32
# Minimum run length from which an incomplete vector at its end costs less than gathering it.
_LONG = 512
_ELEMENT, _WORD = 4, 8
# (size, stride) of an endless axis.
_ENDLESS = (2**60, 0)
# Argument block of a map's code, in words: after the header the number of elements, the addresses
# of the outputs and of the operands, the parameters (see `scalar_llvm`). Each thread has its own.
_BLOCK_WORDS = 16
_FIRST_OUTPUT = 1


class Gathering(Arguments):
    """Operands of a map, and scratch space for their positions and elements.

    elements: elements of an output; rank: axes of each operand; axes [operand, axis]: size and
    stride of each axis, innermost first; words_per_worker: words of a thread's scratch space;
    words, cells: that of all threads, as integers and as elements.
    """

    elements: Integer
    rank: Integer
    operands: Table
    axes: Table
    words_per_worker: Integer
    words: Int64s
    cells: Float32s


class CopiedOperand(Gathering):
    """Arguments of `copied_loop`: one operand."""

    output: Float32s


class Chunks(Gathering):
    """Arguments of `chunks_loop`.

    chunk: elements of a chunk; scratch_address: the scratch space;
    output_bytes, operand_bytes: bytes of an element of the outputs, and of each operand;
    modes: access mode of each operand (0: stored like the outputs, 1: gathered, 2: every chunk
    equals the first, 3: read in place, no chunk crosses the end of an innermost run).

    Scratch of a thread: the argument block of the map's code; for each operand its state, which is
    the offset of its row and its position in the row and on every other axis; last, the operands'
    chunks.
    """

    chunk: Integer
    scratch_address: Integer
    output_count: Integer
    outputs: Table
    output_bytes: Integer
    operand_count: Integer
    operand_bytes: Table
    modes: Table
    parameter_count: Integer
    parameters: Table


@inlined
def size_of(call: Gathering, operand: int, axis: int) -> int:
    """Return the size of an operand's axis."""
    return integer(call.axes, 2 * (operand * call.rank + axis))


@inlined
def stride_of(call: Gathering, operand: int, axis: int) -> int:
    """Return the stride of an operand's axis."""
    return integer(call.axes, 2 * (operand * call.rank + axis) + 1)


@inlined
def state_of(call: Gathering, operand: int, own: int) -> Any:
    """Return the place of an operand's state in the scratch space that starts at `own`."""
    return own + _BLOCK_WORDS + operand * (1 + call.rank)


@inlined
def advance_rows(call: Gathering, operand: int, state: int, rows: int) -> Any:
    """Advance an operand by `rows` along its second and outer axes; return the row's offset."""
    words = call.words
    row, axis = words[state], 1
    words[state + 1] = 0
    while rows:
        size, stride = size_of(call, operand, axis), stride_of(call, operand, axis)
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
def gather(call: Gathering, operand: int, state: int, cells: Any, base: int, count: int) -> None:
    """cells[base:base + count] = the operand's next elements; overwrites 16 more cells."""
    x, words = float32s(call.operands, operand), call.words
    inner, step = size_of(call, operand, 0), stride_of(call, operand, 0)
    limit, row = base + count, words[state]
    while base < limit:
        first = words[state + 1]
        rows, run = 1, min(inner - first, limit - base)
        if run == inner:
            # Rows along the second axis are a constant stride apart.
            remaining = size_of(call, operand, 1) - words[state + 2]
            rows = min(remaining, (limit - base) // inner)
        stride, place = stride_of(call, operand, 1), row + first * step
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
            row = advance_rows(call, operand, state, rows)
        else:
            words[state + 1] = first + run


@inlined
def seek(call: Gathering, operand: int, state: int, begin: int) -> None:
    """Set an operand's position to output element `begin`."""
    row, rest = 0, begin
    for axis in range(call.rank):
        size = size_of(call, operand, axis)
        call.words[state + 1 + axis] = rest % size
        if axis:
            row += rest % size * stride_of(call, operand, axis)
        rest = rest // size
    call.words[state] = row


@native
def chunks_loop(call: Chunks) -> None:
    """Run a map's code on successive chunks of the outputs' memory."""
    chunk, words = call.chunk, call.words
    own = worker() * call.words_per_worker
    behind = own + call.words_per_worker
    first_output = own + _FIRST_OUTPUT
    first_operand = first_output + call.output_count
    first_parameter = first_operand + call.operand_count
    for index in range(call.parameter_count):
        words[first_parameter + index] = integer(call.parameters, index)
    at, end = share(call.elements)
    begin = at
    for operand in range(call.operand_count):
        seek(call, operand, state_of(call, operand, own), begin)
    while at < end:
        count = min(end - at, chunk)
        for operand in range(call.operand_count):
            if integer(call.modes, operand) == 3:
                state = state_of(call, operand, own)
                count = min(count, size_of(call, operand, 0) - words[state + 1])
        for operand in range(call.operand_count):
            state = state_of(call, operand, own)
            mode, place = integer(call.modes, operand), at
            if mode == 3:
                place = words[state] + words[state + 1]
                words[state + 1] += count
                if words[state + 1] == size_of(call, operand, 0):
                    advance_rows(call, operand, state, 1)
            read = first_operand + operand
            if mode == 0 or mode == 3:
                size = integer(call.operand_bytes, operand)
                words[read] = integer(call.operands, operand) + size * place
            elif mode == 1 or at == begin:
                base = 2 * behind - (operand + 1) * (chunk + _GRAIN)
                words[read] = call.scratch_address + _ELEMENT * base
                gather(call, operand, state, call.cells, base, count)
        words[own] = count
        for output in range(call.output_count):
            words[first_output + output] = integer(call.outputs, output) + call.output_bytes * at
        run_map(call, 0, words, own)
        at += count


@native
def copied_loop(call: CopiedOperand) -> None:
    """output = the only operand, gathered directly into the output's memory.

    The scratch space is that of `chunks_loop`.
    """
    own = worker() * call.words_per_worker
    behind = own + call.words_per_worker
    state = state_of(call, 0, own)
    at, end = share(call.elements)
    seek(call, 0, state, at)
    # gather() overwrites cells after its last element, which belong to another task.
    direct = max(end - at - LANES, 0)
    gather(call, 0, state, call.output, at, direct)
    at, base = at + direct, 2 * behind - _GRAIN
    gather(call, 0, state, call.cells, base, end - at)
    store_lanes(call.output, at, load_lanes(call.cells, base, LANES), end - at)


def served(*specs: TensorSpec) -> bool:
    """Return whether the loops support these tensors: all must be float32."""
    return all(spec.dtype == "float32" for spec in specs)


def strided_part(
    kernel: MapKernel,
    outputs: Sequence[Slot],
    spec: TensorSpec,
    operands: Sequence[tuple[Slot, TensorSpec]],
    device: DeviceDescription,
    parameters: Sequence[float] = (),
    requests: Sequence[OpReqType] = (OpReqType.WRITE,),
) -> LoopPart:
    """Return outputs = map of the operands, which are broadcast to the outputs' `spec`.

    All are in one unpacked layout, and float32; the outputs and operands of their shape may also be
    bfloat16. The map serves null and add-to requests itself, as in `MapKernel.multi_output_part`.
    """
    found = [(operand, common_axes(spec, [each])) for operand, each in operands]
    stored = (*(spec.dtype for _ in outputs), *(each.dtype for _, each in operands))
    return _part(kernel, outputs, spec.elements, found, device, parameters, requests, stored)


def permuted_part(
    output: Slot, data: Slot, shape: Shape, order: Sequence[int], device: DeviceDescription
) -> LoopPart:
    """Return output = plain data of `shape` with its axes in another order."""
    strides = strides_of(shape, PLAIN)
    axes = collapsed((shape[axis], (strides[axis],)) for axis in order)
    return _part(COPY, [output], math.prod(shape), [(data, axes)], device)


def _part(
    kernel: MapKernel,
    outputs: Sequence[Slot],
    elements: int,
    operands: Sequence[tuple[Slot, Axes]],
    device: DeviceDescription,
    parameters: Sequence[float] = (),
    requests: Sequence[OpReqType] = (OpReqType.WRITE,),
    stored: Sequence[str] = (),
) -> LoopPart:
    """Return the map over the outputs' elements, with the operands' axes in their memory order.

    stored: dtypes of outputs and operands; float32 for all by default.
    """
    assert _FIRST_OUTPUT + len(outputs) + len(operands) + len(parameters) <= _BLOCK_WORDS
    slots = tuple(operand for operand, _ in operands)
    axes = tuple(own or [(1, (1,))] for _, own in operands)
    steps = [own[0][1][0] if len(own) == 1 else -1 for own in axes]
    contiguous = partial(
        kernel.multi_output_part, outputs, slots, elements, parameters, device=device
    )
    if not elements or all(step in (0, 1) for step in steps):
        return contiguous(requests=requests, steps=steps, stored=stored)
    chunk, modes = _chunks(elements, axes)
    kinds = stored or (FLOAT32,) * (len(outputs) + len(operands))
    plain = set(kinds) == {FLOAT32} and tuple(requests) == (OpReqType.WRITE,)
    copies = modes == (1,) and plain and _passes(kernel)
    sizes = tuple(item_size(dtype) for dtype in kinds)
    # Gathered elements are float32; other operands are read where they are.
    gathered = zip(modes, sizes[len(outputs) :], strict=True)
    assert all(mode == 0 or size == _ELEMENT for mode, size in gathered)
    tasks = device.tasks_for_elements(elements)
    gathering = _gathering(elements, slots, axes, (0 if copies else chunk) + _GRAIN)
    scratch_bytes = gathering["words_per_worker"] * _WORD * device.workers(tasks)
    if copies:
        copied = CopiedOperand(**gathering, output=outputs[0])
        return LoopPart(copied_loop, copied, tasks, scratch_bytes)
    pairs = zip(outputs, requests, strict=True)
    written = tuple(slot for slot, request in pairs if request is not OpReqType.NULL)
    chunks = Chunks(
        **gathering,
        chunk=chunk,
        scratch_address=Scratch(),
        output_count=len(written),
        outputs=written,
        output_bytes=sizes[0],
        operand_count=len(slots),
        operand_bytes=sizes[len(outputs) :],
        modes=modes,
        parameter_count=len(parameters),
        parameters=tuple(parameters),
    )
    loop = chunks_loop.with_maps(map_of(contiguous(requests=requests, stored=kinds)))
    return LoopPart(loop, chunks, tasks, scratch_bytes)


def _gathering(
    elements: int, slots: Sequence[Slot], axes: Sequence[Axes], gathered: int
) -> dict[str, Any]:
    """Return the arguments of `Gathering`; gathered: elements of each operand in scratch space."""
    # The last axis is endless, so that it never overflows.
    rank = 1 + max(map(len, axes))
    words = _BLOCK_WORDS + len(slots) * (1 + rank) + len(slots) * gathered * _ELEMENT // _WORD
    return {
        "elements": elements,
        "rank": rank,
        "operands": slots,
        "axes": tuple(number for own in axes for axis in _outward(own, rank) for number in axis),
        "words_per_worker": math.ceil(words / 16) * 16,
        "words": Scratch(),
        "cells": Scratch(),
    }


def _outward(axes: Axes, rank: int) -> list[tuple[int, int]]:
    """Return size and stride of an operand's axes, innermost first, and endless ones."""
    outward = [(size, strides[0]) for size, strides in reversed(axes)]
    return outward + [_ENDLESS] * (rank - len(outward))


def _passes(kernel: MapKernel) -> bool:
    """Return whether the map returns its only operand unchanged."""
    return kernel.graph.nodes[kernel.results[0]].operation == "operand"


def _chunks(elements: int, operands: Sequence[Axes]) -> tuple[int, tuple[int, ...]]:
    """Return the chunk size and the access mode of each operand (see `Chunks`).

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
