"""Loops between a plain tensor and its packed layout, in tiles of 16 rows and 16 columns.

A packed layout for matrix products consists of lines of sixteen words, which belong to sixteen
positions along one axis of the matrix (output or input channels): the lane axis. A word is a
float32, or two bfloat16 that are neighbours along the other axis. A tile has sixteen positions
along both axes with all taps of the kernel. It is read completely, transposed into lines in the
thread's scratch space, which stays in the L1 cache, and written completely. Therefore no cache line
is fetched twice, whichever side has the long strides.

The hardware prefetcher cannot follow so many streams: the loops prefetch the next tile while they
move the present one.
"""

from __future__ import annotations

import numpy as np

from mxrun.codegen.arguments import Arguments, Float32s, Integer, Table
from mxrun.codegen.intrinsics import integer, share, worker
from mxrun.codegen.jit import compact, inlined
from mxrun.codegen.vectors import (
    LANES,
    fetch,
    lanes,
    load_lanes,
    pair_lanes,
    store_lanes,
    transpose_lanes,
)


class Tiles(Arguments):
    """Arguments of both loops: plain_data [rows, columns, taps] and packed_data, in tiles.

    row_tiles, column_tiles: number of tiles along an axis; row_starts, column_starts: the tiles'
    offsets in packed_data, in words, which are added; lane_axis: 0 for rows, 1 for columns; word:
    elements of a word; padded: positions of the other axis in packed_data, with padding; lane, tap:
    words between lines and between taps; lines: scratch space, `floats_per_worker` for each thread.
    """

    plain_data: Float32s
    packed_data: Float32s
    rows: Integer
    columns: Integer
    taps: Integer
    row_tiles: Integer
    column_tiles: Integer
    row_starts: Table
    column_starts: Table
    lane_axis: Integer
    word: Integer
    padded: Integer
    lane: Integer
    tap: Integer
    floats_per_worker: Integer
    lines: Float32s


@inlined
def tiles_of(call: Tiles) -> tuple[int, int]:
    """Return the task's first tile and the end of its tiles."""
    # share() splits at multiples of 16, so each tile counts as 16 elements.
    begin, end = share(LANES * call.row_tiles * call.column_tiles)
    return begin // LANES, end // LANES


@inlined
def tile_at(call: Tiles, tile: int) -> tuple[int, int, int, int, int]:
    """Return a tile's offsets in plain and packed, lanes, other positions, and those with padding.

    A tile that is all padding has neither lanes nor other positions.
    """
    row = tile // call.column_tiles
    column = tile - row * call.column_tiles
    packed = integer(call.row_starts, row) + integer(call.column_starts, column)
    plain = LANES * (row * call.columns + column) * call.taps
    rows = max(min(LANES, call.rows - LANES * row), 0)
    columns = max(min(LANES, call.columns - LANES * column), 0)
    if rows * columns == 0:
        rows, columns = 0, 0
    if call.lane_axis:
        return plain, packed, columns, rows, min(LANES, call.padded - LANES * row)
    return plain, packed, rows, columns, min(LANES, call.padded - LANES * column)


@inlined
def next_of(call: Tiles, tile: int, end: int) -> tuple[int, int]:
    """Return the offsets in plain and packed of the next tile, or of the last one itself."""
    plain, packed, _, _, _ = tile_at(call, min(tile + 1, end - 1))
    return plain, packed


@inlined
def lines_of(call: Tiles, at: int, behind: int, width: int, others: int, own: int) -> None:
    """Transpose a tile of plain into lines in scratch, as wide as the tile; prefetch `behind`."""
    plain, lines, taps = call.plain_data, call.lines, call.taps
    row, run = call.columns * taps, others * taps
    if call.lane_axis == 0:
        for c in range(0, run, LANES):
            transpose_lanes(plain, at + c, row, width, run - c, lines, own + LANES * c, LANES)
            for line in range(width):
                fetch(plain, behind + c + line * row)
    else:
        for other in range(others):
            start = own + LANES * other * taps
            for c in range(0, taps, LANES):
                place = at + other * row + c
                transpose_lanes(
                    plain, place, taps, width, taps - c, lines, start + LANES * c, LANES
                )
            for k in range(taps):
                fetch(plain, behind + other * row + k * LANES)


@compact
def pack_loop(call: Tiles) -> None:
    """packed = plain, in float32 or rounded to pairs of bfloat16; padding is 0."""
    packed, lines, taps, word = call.packed_data, call.lines, call.taps, call.word
    lane, tap, row = call.lane, call.tap, call.columns * taps
    own = worker() * call.floats_per_worker
    begin, end = tiles_of(call)
    for tile in range(begin, end):
        at, to, width, others, padded = tile_at(call, tile)
        behind, further = next_of(call, tile, end)
        # If columns are the lane axis and there is one tap, plain already consists of lines.
        source, place, apart = call.plain_data, at, row
        if call.lane_axis == 0 or taps > 1 or others < padded:
            source, place, apart = lines, own, LANES * taps
            lines_of(call, at, behind, width, others, own)
            for line in range(others * taps, padded * taps):
                store_lanes(lines, own + LANES * line, lanes(np.float32(0)), LANES)
        for group in range(padded // word):
            for k in range(taps):
                position = place + group * word * apart + k * LANES
                value = load_lanes(source, position, width)
                if word == 2:
                    value = pair_lanes(value, load_lanes(source, position + apart, width))
                store_lanes(packed, to + group * lane + k * tap, value, LANES)
                fetch(packed, further + group * lane + k * tap)


@compact
def unpack_loop(call: Tiles) -> None:
    """plain = packed, both float32; rows are the lane axis."""
    plain, packed, lines, taps = call.plain_data, call.packed_data, call.lines, call.taps
    lane, tap, row = call.lane, call.tap, call.columns * taps
    own = worker() * call.floats_per_worker
    begin, end = tiles_of(call)
    for tile in range(begin, end):
        to, at, width, others, _ = tile_at(call, tile)
        further, behind = next_of(call, tile, end)
        for other in range(others):
            for k in range(taps):
                value = load_lanes(packed, at + other * lane + k * tap, LANES)
                store_lanes(lines, own + LANES * (other * taps + k), value, LANES)
                fetch(packed, behind + other * lane + k * tap)
        run = others * taps
        for c in range(0, run, LANES):
            transpose_lanes(lines, own + LANES * c, LANES, run - c, width, plain, to + c, row)
            for line in range(width):
                fetch(plain, further + c + line * row)
