"""Forward pass of attention in float32 arithmetic, block by block of queries."""

from __future__ import annotations

import math

import numpy as np

from mxrun.codegen.arguments import Floats, Integer
from mxrun.codegen.jit import inlined, native, share
from mxrun.codegen.products import multiply_block
from mxrun.codegen.vectors import (
    LANES,
    add_lanes,
    exp2_lanes,
    keep_lanes,
    lanes,
    largest_lane,
    load_lanes,
    maximum_lanes,
    multiply_lanes,
    store_lanes,
    subtract_lanes,
    sum_lanes,
)
from mxrun.ops.attention.blocks import (
    CELLS,
    LN2,
    PANEL,
    ROWS,
    AttentionTensors,
    clear,
    copy_rows,
    keys_of,
    keys_read,
    mask_at,
    pack_panels,
    rounded_up,
    scaled_scores,
    strip_keys,
    strip_rows,
    write_row,
)

# Panels of scores that are in memory at a time.
PANELS = 8
# Statistics of a block's rows: maximum and sum.
_STATISTICS = 2 * ROWS


class AttentionForward(AttentionTensors):
    """Arguments of `attention_loop`.

    output: None if not requested. chunk: queries of a task, a multiple of 64.
    """

    output: Floats
    is_added: Integer
    chunk: Integer


@inlined
def block_row(
    call: AttentionForward,
    row: int,
    first: int,
    query: int,
    sequence: int,
    head: int,
    block: int,
    sums: int,
) -> None:
    """Replace a row of scores by exponentials relative to the largest score up to now.

    Those of keys that are not read become 0. Sums of earlier keys are scaled likewise.
    """
    scratch = call.scratch
    count = keys_of(call, sequence)
    last = keys_read(call, count, query + row)
    end = min(count, first + PANELS * PANEL)
    mask = mask_at(call, sequence, head, query + row)
    scores, statistics = block + row * PANEL, block + PANELS * CELLS + row
    low = lanes(np.float32(-math.inf))
    most = low
    for panel in range(first, end, PANEL):
        rows = strip_rows(call, query, panel)
        strip = query + row // rows * rows
        width = strip_keys(call, count, strip, rows, panel)
        at = scores + (panel - first) * ROWS
        for j in range(0, width, LANES):
            key = panel + j
            vector = scaled_scores(call, scratch, at + j, mask, key, last - key)
            if last - key < LANES:
                vector = keep_lanes(vector, last - key, low)
            store_lanes(scratch, at + j, vector, LANES)
            most = maximum_lanes(vector, most)
    before = scratch[statistics]
    highest = max(before, largest_lane(most))
    shift = np.float32(0)
    if highest > -math.inf:
        shift = highest
    total = lanes(np.float32(0))
    for panel in range(first, end, PANEL):
        rows = strip_rows(call, query, panel)
        strip = query + row // rows * rows
        width = strip_keys(call, count, strip, rows, panel)
        at = scores + (panel - first) * ROWS
        for j in range(0, width, LANES):
            vector = exp2_lanes(subtract_lanes(load_lanes(scratch, at + j, LANES), lanes(shift)))
            store_lanes(scratch, at + j, vector, LANES)
            total = add_lanes(total, vector)
    factor = exp2_lanes(lanes(before - shift))
    lost = sum_lanes(factor, 1)
    scratch[statistics] = highest
    scratch[statistics + ROWS] = scratch[statistics + ROWS] * lost + sum_lanes(total, LANES)
    if first:
        for j in range(sums, sums + rounded_up(call.value_size, LANES), LANES):
            scaled = multiply_lanes(load_lanes(scratch, j, LANES), factor)
            store_lanes(scratch, j, scaled, LANES)


@inlined
def store_block(
    call: AttentionForward, sequence: int, head: int, query: int, rows: int, block: int, sums: int
) -> None:
    """Write the output and logsumexp of a block of queries."""
    scratch = call.scratch
    statistics = block + PANELS * CELLS
    wide = rounded_up(call.value_size, LANES)
    for row in range(rows):
        highest, total = scratch[statistics + row], scratch[statistics + ROWS + row]
        factor = np.float32(0)
        if total != 0:
            factor = np.float32(1) / total
        if call.output is not None:
            at = ((sequence * call.queries + query + row) * call.heads + head) * call.value_size
            write_row(
                call.output,
                at,
                scratch,
                sums + row * wide,
                call.value_size,
                lanes(factor),
                call.is_added,
            )
        if call.logsumexp is not None:
            at = (sequence * call.heads + head) * call.queries + query + row
            call.logsumexp[at] = highest * LN2 + math.log(np.float64(total))


@inlined
def block_scores(
    call: AttentionForward,
    query: int,
    rows: int,
    first: int,
    end: int,
    packed: int,
    panels: int,
    block: int,
) -> None:
    """Compute the scores of a block of queries and the keys from `first` to `end`."""
    scratch, size = call.scratch, call.head_size
    step = rounded_up(size, LANES)
    for panel in range(first, end, PANEL):
        height = strip_rows(call, query, panel)
        scores = block + (panel - first) * ROWS
        for strip in range(0, rows, height):
            tall = rounded_up(min(rows - strip, height), 2)
            read = rounded_up(strip_keys(call, end, query + strip, height, panel), LANES)
            multiply_block(
                *(scratch, scores + strip * PANEL, PANEL),
                *(scratch, packed + strip * step, step, 1),
                *(scratch, panels + panel * size, PANEL),
                *(tall, read, size, 0),
            )


@inlined
def block_values(
    call: AttentionForward,
    query: int,
    rows: int,
    first: int,
    end: int,
    block: int,
    values: int,
    sums: int,
) -> None:
    """Add the values of the keys from `first` to `end`, times their probabilities, to the sums."""
    scratch = call.scratch
    wide = rounded_up(call.value_size, LANES)
    for panel in range(first, end, PANEL):
        height = strip_rows(call, query, panel)
        scores = block + (panel - first) * ROWS
        for strip in range(0, rows, height):
            tall = rounded_up(min(rows - strip, height), 2)
            read = strip_keys(call, end, query + strip, height, panel)
            multiply_block(
                *(scratch, sums + strip * wide, wide),
                *(scratch, scores + strip * PANEL, PANEL, 1),
                *(scratch, values + panel * wide, wide),
                *(tall, wide, read, 1),
            )


@inlined
def start_block(
    call: AttentionForward,
    sequence: int,
    head: int,
    query: int,
    rows: int,
    packed: int,
    block: int,
    sums: int,
) -> None:
    """Copy the queries of a block; clear its sums."""
    scratch, size = call.scratch, call.head_size
    step = rounded_up(size, LANES)
    at = (sequence * call.queries + query) * call.query_row + head * size
    copy_rows(scratch, packed, step, call.query, at, call.query_row, rows, size)
    if rows % 2:
        clear(scratch, packed + rows * step, step)
    clear(scratch, sums, ROWS * rounded_up(call.value_size, LANES))
    for row in range(ROWS):
        scratch[block + PANELS * CELLS + row] = -math.inf
        scratch[block + PANELS * CELLS + ROWS + row] = 0.0


@native
def attention_loop(call: AttentionForward) -> None:
    """output and logsumexp of all heads; a task is a chunk of one head's queries."""
    scratch, size, width = call.scratch, call.head_size, call.value_size
    wide = rounded_up(width, LANES)
    most = rounded_up(call.keys, PANEL)
    own, _ = share(call.scratch_words)
    panels = own
    values = panels + most * size
    block = values + most * wide
    sums = block + PANELS * CELLS + _STATISTICS
    packed = sums + ROWS * wide
    chunks = (call.queries + call.chunk - 1) // call.chunk
    for task in range(own // call.thread_words, call.batch * call.heads * chunks, call.team):
        part, rest = task % chunks, task // chunks
        head, sequence = rest % call.heads, rest // call.heads
        group = head // (call.heads // call.kv_heads)
        start, stop = part * call.chunk, min((part + 1) * call.chunk, call.queries)
        count = keys_of(call, sequence)
        needed = keys_read(call, count, stop - 1)
        at = sequence * call.keys * call.key_row + group * size
        pack_panels(scratch, panels, packed, call.key, at, call.key_row, needed, size)
        at = sequence * call.keys * call.value_row + group * width
        copy_rows(scratch, values, wide, call.value, at, call.value_row, needed, width)
        for query in range(start, stop, ROWS):
            rows = min(stop - query, ROWS)
            start_block(call, sequence, head, query, rows, packed, block, sums)
            keys = keys_read(call, count, query + rows - 1)
            for first in range(0, keys, PANELS * PANEL):
                end = min(keys, first + PANELS * PANEL)
                block_scores(call, query, rows, first, end, packed, panels, block)
                for row in range(rows):
                    place = sums + row * wide
                    block_row(call, row, first, query, sequence, head, block, place)
                block_values(call, query, rows, first, end, block, values, sums)
            store_block(call, sequence, head, query, rows, block, sums)
