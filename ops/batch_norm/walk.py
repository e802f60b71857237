"""Iteration over the pieces of batch normalisation's loops, and running sums."""

from __future__ import annotations

from typing import Any

import numpy as np

from mxrun.codegen.arguments import Arguments, Float32s, Floats, Integer, Table
from mxrun.codegen.intrinsics import float32s, share, worker
from mxrun.codegen.jit import inlined
from mxrun.codegen.vectors import add_lanes, load_lanes, store_lanes


class Walk(Arguments):
    """Arguments of every loop of several tasks: its pieces (`Pieces.arguments`) and its arrays.

    stride: columns between rows. lines, line, cuts, width: as in `Pieces`. unit: columns between
    two of one channel; a plane has one channel. channels_per_cut, sums_per_block, sums_per_cut:
    channels between cuts, and partial sums between blocks of rows and between cuts. array_pitch,
    floats_per_worker: floats between a thread's arrays and in all of them.

    data_pitch: elements of data from one row of channels to the next.

    arrays: the arrays of all threads. sources: what the first `source_count` arrays of a thread are
    filled from, [channels]; None for an array that is not filled.
    """

    pieces: Integer
    stride: Integer
    rows: Integer
    rows_per_block: Integer
    lines: Integer
    line: Integer
    cuts: Integer
    width: Integer
    channels: Integer
    unit: Integer
    channels_per_cut: Integer
    sums_per_block: Integer
    sums_per_cut: Integer
    array_pitch: Integer
    floats_per_worker: Integer
    arrays: Float32s
    sources: Table
    source_count: Integer
    data: Floats
    data_pitch: Integer


@inlined
def piece_at(call: Walk, piece: int) -> tuple[int, int, int, int, int]:
    """Return a piece's offset, rows, columns, first channel and offset in the partial sums."""
    rest = piece // call.cuts
    cut, row_block = piece - rest * call.cuts, rest // call.lines
    number = rest - row_block * call.lines
    first_row = row_block * call.rows_per_block
    at = first_row * call.stride + number * call.line + cut * call.width
    rows = min(call.rows_per_block, call.rows - first_row)
    columns = min(call.width, call.line - cut * call.width)
    sums = row_block * call.sums_per_block + cut * call.sums_per_cut
    first_channel = number + cut * call.channels_per_cut
    return at, rows, columns, first_channel, sums * 2 * call.channels


@inlined
def pieces_of(call: Walk) -> tuple[int, int, int]:
    """Return the task's first piece, the end of its pieces and the thread's arrays' offset."""
    # share() splits at multiples of 16, so each piece counts as 16 elements.
    begin, end = share(16 * call.pieces)
    return begin // 16, end // 16, worker() * call.floats_per_worker


@inlined
def runs_of(columns: int, channels: int, pitch: int, other: int) -> tuple[int, int]:
    """Return the number of columns that are contiguous in all tensors, and the number of such runs.

    If a tensor's rows of channels are not contiguous, a run is one of these rows.
    """
    if pitch == channels and other == channels:
        return columns, 1
    run = min(columns, channels)
    return run, columns // run


@inlined
def place(at: int, channels: int, pitch: int) -> int:
    """Return the offset of element `at` in a tensor whose rows of channels have that pitch."""
    found = at
    if pitch != channels:
        found = at // channels * pitch + at % channels
    return found


@inlined
def spread(call: Walk, own: int, first: int) -> None:
    """Copy the arrays [C] to one value per column: channels repeat; a plane has one value."""
    for array in range(call.source_count):
        values, to = float32s(call.sources, array), own + array * call.array_pitch
        if values is not None:
            for group in range(max(call.width // call.unit, 1)):
                for c in range(call.unit):
                    if first + c < call.channels:
                        call.arrays[to + group * call.unit + c] = values[first + c]


@inlined
def clear(call: Walk, own: int, columns: int) -> None:
    """Set both running sums to zero."""
    pitch = call.array_pitch
    for j in range(own + 3 * pitch, own + 3 * pitch + columns):
        call.arrays[j] = np.float32(0)
        call.arrays[j + pitch] = np.float32(0)


@inlined
def accumulate(sums: Any, place: int, count: int, value: Any) -> None:
    """Add a vector to a running sum."""
    store_lanes(sums, place, add_lanes(load_lanes(sums, place, count), value), count)


@inlined
def store_sums(call: Walk, own: int, columns: int, sums: Any, at: int) -> None:
    """sums[at + c] and sums[at + C + c] = pairwise sums over the columns of each channel."""
    mine, unit, pitch = call.arrays, call.unit, call.array_pitch
    begin, groups = own + 3 * pitch, columns // unit
    while groups > 1:
        half = (groups + 1) // 2
        for j in range(begin, begin + (groups - half) * unit):
            mine[j] += mine[j + half * unit]
            mine[j + pitch] += mine[j + pitch + half * unit]
        groups = half
    for c in range(min(unit, columns)):
        sums[at + c] = mine[begin + c]
        sums[at + call.channels + c] = mine[begin + pitch + c]
