"""Forward pass of attention in float32 arithmetic, block by block of queries."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from mxrun.codegen.arguments import Floats, Integer
from mxrun.codegen.jit import inlined, native, team_member
from mxrun.codegen.products import multiply_block, multiply_pairs
from mxrun.codegen.vectors import (
    LANES,
    add_lanes,
    exp2_lanes,
    keep_lanes,
    lanes,
    largest_lane,
    load_lanes,
    maximum_lanes,
    multiply_add_lanes,
    multiply_lanes,
    store_lanes,
    sum_lanes,
)
from mxrun.ops.attention.blocks import (
    CELLS,
    LN2,
    PANEL,
    ROWS,
    AttentionTensors,
    clear,
    keys_of,
    keys_read,
    mask_at,
    pack_left,
    pack_panels,
    pack_right,
    paired,
    rounded_up,
    scaled_scores,
    strip_keys,
    strip_rows,
    write_row,
)
from mxrun.ops.attention.shapes import AttentionSizes, padded

# Panels of scores that are in memory at a time.
PANELS = 8
# Statistics of a block's rows: maximum and sum.
STATISTICS = 2 * ROWS


class AttentionForward(AttentionTensors):
    """Arguments of `attention_loop`.

    output: None if not requested. chunk: queries of a task, a multiple of 64.
    """

    output: Floats
    is_added: Integer
    chunk: Integer


@inlined
def row_maximum(
    call: AttentionForward, row: int, first: int, query: int, mask: int, count: int, scores: int
) -> float:
    """Return the largest scaled score of a row; the scaled scores are stored if they are masked."""
    scratch = call.scratch
    last, end = keys_read(call, count, query + row), min(count, first + PANELS * PANEL)
    low = lanes(np.float32(-math.inf))
    most = low
    for panel in range(first, end, PANEL):
        rows = strip_rows(call, query, panel)
        width = strip_keys(call, count, query + row // rows * rows, rows, panel)
        at = scores + (panel - first) * ROWS
        for j in range(0, width, LANES):
            valid = last - panel - j
            vector = scaled_scores(call, scratch, at + j, mask, panel + j, valid)
            if call.mask is not None:
                store_lanes(scratch, at + j, vector, LANES)
            if valid < LANES:
                vector = keep_lanes(vector, valid, low)
            most = maximum_lanes(vector, most)
    return largest_lane(most)


@inlined
def row_exponentials(
    call: AttentionForward,
    row: int,
    first: int,
    query: int,
    count: int,
    scores: int,
    shift: float,
    is_paired: bool,
) -> float:
    """Replace a row of scores by exponentials relative to a score; return their sum.

    Those of keys that are not read become 0.
    """
    scratch, total, subtracted = call.scratch, lanes(np.float32(0)), lanes(-shift)
    last, end = keys_read(call, count, query + row), min(count, first + PANELS * PANEL)
    factor = lanes(call.scale if call.mask is None else np.float32(1))
    for panel in range(first, end, PANEL):
        rows = strip_rows(call, query, panel)
        width = strip_keys(call, count, query + row // rows * rows, rows, panel)
        at = scores + (panel - first) * ROWS
        for j in range(0, width, LANES):
            vector = load_lanes(scratch, at + j, LANES)
            vector = exp2_lanes(multiply_add_lanes(vector, factor, subtracted))
            if last - panel - j < LANES:
                vector = keep_lanes(vector, last - panel - j, lanes(np.float32(0)))
            # In bfloat16 this overwrites scores that have been read.
            if is_paired:
                store_lanes(call.halves, 2 * at + j, vector, LANES)
            else:
                store_lanes(scratch, at + j, vector, LANES)
            total = add_lanes(total, vector)
    return sum_lanes(total, LANES)


@inlined
def block_row(
    call: AttentionForward,
    row: int,
    first: int,
    query: int,
    sequence: int,
    head: int,
    count: int,
    block: int,
    sums: int,
    is_paired: bool,
) -> None:
    """Replace a row of scores by exponentials relative to the largest score up to now.

    Sums over the keys before `first` are scaled likewise.
    """
    scratch = call.scratch
    mask = mask_at(call, sequence, head, query + row)
    scores, statistics = block + row * PANEL, block + PANELS * CELLS + row
    highest = row_maximum(call, row, first, query, mask, count, scores)
    if first:
        highest = max(scratch[statistics], highest)
    shift = np.float32(0)
    if highest > -math.inf:
        shift = highest
    total = row_exponentials(call, row, first, query, count, scores, shift, is_paired)
    if first:
        factor = exp2_lanes(lanes(scratch[statistics] - shift))
        total += scratch[statistics + ROWS] * sum_lanes(factor, 1)
        for j in range(sums, sums + rounded_up(call.value_size, LANES), LANES):
            scaled = multiply_lanes(load_lanes(scratch, j, LANES), factor)
            store_lanes(scratch, j, scaled, LANES)
    scratch[statistics] = highest
    scratch[statistics + ROWS] = total


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
    queries: int,
    panels: int,
    block: int,
    multiply: Any,
    is_paired: bool,
) -> None:
    """Compute the scores of a block of queries and the keys from `first` to `end`."""
    scratch, depth = call.scratch, paired(call.head_size, is_paired)
    step = paired(rounded_up(call.head_size, LANES), is_paired)
    for panel in range(first, end, PANEL):
        height = strip_rows(call, query, panel)
        scores = block + (panel - first) * ROWS
        for strip in range(0, rows, height):
            tall = rounded_up(min(rows - strip, height), 2)
            read = rounded_up(strip_keys(call, end, query + strip, height, panel), LANES)
            multiply(
                *(scratch, scores + strip * PANEL, PANEL),
                *(scratch, queries + strip * step, step, 1),
                *(scratch, panels + panel * depth, PANEL),
                *(tall, read, depth, 0),
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
    multiply: Any,
    is_paired: bool,
) -> None:
    """Add values of keys from `first` to `end`, times their probabilities, to the sums.

    The first panel overwrites the sums.
    """
    scratch = call.scratch
    wide = rounded_up(call.value_size, LANES)
    for panel in range(first, end, PANEL):
        height = strip_rows(call, query, panel)
        scores = block + (panel - first) * ROWS
        for strip in range(0, rows, height):
            tall = rounded_up(min(rows - strip, height), 2)
            read = strip_keys(call, end, query + strip, height, panel)
            multiply(
                *(scratch, sums + strip * wide, wide),
                *(scratch, scores + strip * PANEL, PANEL, 1),
                *(scratch, values + paired(panel, is_paired) * wide, wide),
                *(tall, wide, paired(read, is_paired), int(panel > 0)),
            )


@inlined
def attention_tasks(call: AttentionForward, multiply: Any, is_paired: bool) -> None:
    """Compute output and logsumexp of all heads; a task is a chunk of one head's queries.

    multiply: product of blocks, of pairs of bfloat16 if `is_paired`.
    """
    size, width = call.head_size, call.value_size
    wide = rounded_up(width, LANES)
    most = rounded_up(call.keys, PANEL)
    member, team = team_member()
    own = member * call.thread_words
    panels = own
    values = panels + most * paired(size, is_paired)
    block = values + paired(most, is_paired) * wide
    sums = block + PANELS * CELLS + STATISTICS
    queries = sums + ROWS * wide
    chunks = (call.queries + call.chunk - 1) // call.chunk
    for task in range(member, call.batch * call.heads * chunks, team):
        part, rest = task % chunks, task // chunks
        head, sequence = rest % call.heads, rest // call.heads
        group = head // (call.heads // call.kv_heads)
        start, stop = part * call.chunk, min((part + 1) * call.chunk, call.queries)
        count = keys_of(call, sequence)
        needed = keys_read(call, count, stop - 1)
        at = sequence * call.keys * call.key_row + group * size
        pack_panels(call, panels, queries, call.key, at, call.key_row, needed, size, is_paired)
        at = sequence * call.keys * call.value_row + group * width
        pack_right(call, values, call.value, at, call.value_row, needed, width, is_paired)
        for query in range(start, stop, ROWS):
            rows = min(stop - query, ROWS)
            at = (sequence * call.queries + query) * call.query_row + head * size
            pack_left(call, queries, call.query, at, call.query_row, rows, size, is_paired)
            keys = keys_read(call, count, query + rows - 1)
            if keys == 0:
                clear_block(call, block, sums)
            for first in range(0, keys, PANELS * PANEL):
                end = min(keys, first + PANELS * PANEL)
                block_scores(
                    call, query, rows, first, end, queries, panels, block, multiply, is_paired
                )
                for row in range(rows):
                    place = sums + row * wide
                    block_row(
                        call, row, first, query, sequence, head, count, block, place, is_paired
                    )
                block_values(
                    call, query, rows, first, end, block, values, sums, multiply, is_paired
                )
            store_block(call, sequence, head, query, rows, block, sums)


@inlined
def clear_block(call: AttentionForward, block: int, sums: int) -> None:
    """Clear the sums and statistics of a block of queries that read no key."""
    clear(call.scratch, sums, ROWS * rounded_up(call.value_size, LANES))
    for row in range(ROWS):
        call.scratch[block + PANELS * CELLS + row] = -math.inf
        call.scratch[block + PANELS * CELLS + ROWS + row] = 0.0


@native
def attention_loop(call: AttentionForward) -> None:
    """Compute all products in float32."""
    attention_tasks(call, multiply_block, False)


@native
def attention_pairs_loop(call: AttentionForward) -> None:
    """Compute all products of bfloat16 factors."""
    attention_tasks(call, multiply_pairs, True)


def forward_words(sizes: AttentionSizes, is_paired: bool) -> int:
    """Return the words of scratch space of a thread."""
    wide, keys = padded(sizes.value_size, LANES), padded(sizes.keys, PANEL)
    step = padded(sizes.head_size, LANES)
    share = 2 if is_paired else 1
    packed = keys * (step + wide) // share
    # Sixteen rows of keys are staged where the queries are copied to.
    return packed + PANELS * CELLS + STATISTICS + ROWS * (wide + step)
