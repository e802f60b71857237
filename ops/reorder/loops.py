"""Loops between a plain tensor and its packed layout, in tiles of 16 rows and 16 columns.

A packed layout for matrix products consists of lines of sixteen words, which belong to sixteen
positions along one axis of the matrix (output or input channels): the lane axis. A word is a
float32, or two bfloat16 that are neighbours along the other axis. A tile has sixteen positions
along both axes with all taps of the kernel. It is read completely, transposed into lines in the
thread's scratch space, which stays in the L1 cache, and written completely. Therefore no cache line
is fetched twice, whichever side has the long strides.

The hardware prefetcher cannot follow so many streams: the loops prefetch the next tile while they
move the present one.

Slots of both loops: 0 plain [rows, columns, taps], 1 packed, 2 rows, 3 columns, 4 taps, 5 and 6
tiles along rows and columns, 7 whether columns are the lane axis, 8 elements per word, 9 positions
of the other axis in the packed layout (with padding), 10 words between lines, 11 words between
taps, 12 floats of the team's scratch space; then the tiles' offsets in words: one per tile along
rows, and one per tile along columns; last the scratch space.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mxrun.backend.jit import Block, float32s, inlined, integer, native, share
from mxrun.backend.vectors import (
    LANES,
    fetch,
    lanes,
    load_lanes,
    pair_lanes,
    store_lanes,
    transpose_lanes,
)

# Slots before the tables of offsets.
HEADER = 13


@inlined
def scratch_of(block: Block) -> tuple[Any, int]:
    """Return the team's scratch space and the offset of the calling thread's part."""
    begin, _ = share(block, integer(block, 12))
    return float32s(block, HEADER + integer(block, 5) + integer(block, 6)), begin


@inlined
def tiles_of(block: Block) -> tuple[int, int]:
    """Return the calling thread's first tile and the end of its tiles."""
    # share() splits at multiples of 16, so each tile counts as 16 elements.
    begin, end = share(block, LANES * integer(block, 5) * integer(block, 6))
    return begin // LANES, end // LANES


@inlined
def tile_at(block: Block, tile: int) -> tuple[int, int, int, int, int]:
    """Return a tile's offsets in plain and packed, lanes, other positions, and those with padding.

    A tile that is all padding has neither lanes nor other positions.
    """
    row, tiles = tile // integer(block, 6), integer(block, 5)
    column = tile - row * integer(block, 6)
    packed = integer(block, HEADER + row) + integer(block, HEADER + tiles + column)
    plain = LANES * (row * integer(block, 3) + column) * integer(block, 4)
    rows = max(min(LANES, integer(block, 2) - LANES * row), 0)
    columns = max(min(LANES, integer(block, 3) - LANES * column), 0)
    if rows * columns == 0:
        rows, columns = 0, 0
    if integer(block, 7):
        return plain, packed, columns, rows, min(LANES, integer(block, 9) - LANES * row)
    return plain, packed, rows, columns, min(LANES, integer(block, 9) - LANES * column)


@inlined
def next_of(block: Block, tile: int, end: int) -> tuple[int, int]:
    """Return the offsets in plain and packed of the next tile, or of the last one itself."""
    plain, packed, _, _, _ = tile_at(block, min(tile + 1, end - 1))
    return plain, packed


@inlined
def lines_of(
    block: Block, at: int, behind: int, width: int, others: int, lines: Any, own: int
) -> None:
    """Transpose a tile of plain into lines in scratch, as wide as the tile; prefetch `behind`."""
    plain, taps = float32s(block, 0), integer(block, 4)
    row, run = integer(block, 3) * taps, others * taps
    if integer(block, 7) == 0:
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


@native
def pack_loop(block: Block) -> None:
    """packed = plain, in float32 or rounded to pairs of bfloat16; padding is 0."""
    plain, packed, (lines, own) = float32s(block, 0), float32s(block, 1), scratch_of(block)
    taps, word = integer(block, 4), integer(block, 8)
    lane, tap, row = integer(block, 10), integer(block, 11), integer(block, 3) * taps
    begin, end = tiles_of(block)
    for tile in range(begin, end):
        at, to, width, others, padded = tile_at(block, tile)
        behind, further = next_of(block, tile, end)
        # If columns are the lane axis and there is one tap, plain already consists of lines.
        source, place, apart = plain, at, row
        if integer(block, 7) == 0 or taps > 1 or others < padded:
            source, place, apart = lines, own, LANES * taps
            lines_of(block, at, behind, width, others, lines, own)
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


@native
def unpack_loop(block: Block) -> None:
    """plain = packed, both float32; rows are the lane axis."""
    plain, packed, (lines, own) = float32s(block, 0), float32s(block, 1), scratch_of(block)
    taps, lane, tap = integer(block, 4), integer(block, 10), integer(block, 11)
    row = integer(block, 3) * taps
    begin, end = tiles_of(block)
    for tile in range(begin, end):
        to, at, width, others, _ = tile_at(block, tile)
        further, behind = next_of(block, tile, end)
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
