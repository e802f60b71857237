"""Forward pass of attention in float32 arithmetic, block by block of queries."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from mxrun.base.blocked import PANEL
from mxrun.codegen.arguments import Floats, Integer
from mxrun.codegen.intrinsics import current_task, worker
from mxrun.codegen.jit import compact, inlined
from mxrun.codegen.vectors import (
    LANES,
    add_lanes,
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
    ROWS,
    AttentionTensors,
    ScoreBlock,
    key_rows,
    keys_of,
    keys_read,
    mask_at,
    query_rows,
    scaled_scores,
    strip_keys,
    strip_rows,
    value_rows,
)
from mxrun.ops.attention.shapes import AttentionSizes, padded
from mxrun.ops.product_blocks import (
    multiply_packed,
    pack_left,
    pack_panels,
    pack_right,
    paired,
    rounded_up,
    write_row,
)
from mxrun.ops.rows import clear
from mxrun.ops.softmax.loops import exponentials

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


class ForwardScratch(NamedTuple):
    """Places in a thread's scratch space.

    Of a head: panels of keys, and values as right factors. Of a block: the scores, the maxima and
    sums of its rows, the sums of values, and the queries as left factors.
    """

    panels: int
    values: int
    scores: int
    maxima: int
    totals: int
    sums: int
    queries: int


@inlined
def scratch_of(call: AttentionForward, own: int) -> ForwardScratch:
    """Return the places in the scratch space that begins at `own`; see `forward_words`."""
    most, wide = rounded_up(call.keys, PANEL), rounded_up(call.value_size, LANES)
    values = own + most * paired(call, call.head_size)
    scores = values + paired(call, most) * wide
    maxima = scores + PANELS * CELLS
    sums = maxima + STATISTICS
    return ForwardScratch(own, values, scores, maxima, maxima + ROWS, sums, sums + ROWS * wide)


@inlined
def row_maximum(call: AttentionForward, block: ScoreBlock, scores: int, row: int) -> float:
    """Return the largest scaled score of a row; the scaled scores are stored if they are masked."""
    query = block.query + row
    last, mask = keys_read(call, block.end, query), mask_at(call, block.sequence, block.head, query)
    low = lanes(np.float32(-math.inf))
    most = low
    for panel in range(block.first, block.end, PANEL):
        height = strip_rows(call, block.query, panel)
        width = strip_keys(call, block, row // height * height, height, panel)
        at = scores + (panel - block.first) * ROWS + row * PANEL
        for j in range(0, width, LANES):
            valid = last - panel - j
            vector = scaled_scores(call, at + j, mask + panel + j, valid)
            if call.mask is not None:
                store_lanes(call.scratch, at + j, vector, LANES)
            if valid < LANES:
                vector = keep_lanes(vector, valid, low)
            most = maximum_lanes(vector, most)
    return largest_lane(most)


@inlined
def row_exponentials(
    call: AttentionForward, block: ScoreBlock, scores: int, row: int, shift: float
) -> float:
    """Replace a row of scores by exponentials relative to a score; return their sum.

    Those of keys that are not read become 0.
    """
    total, subtracted = lanes(np.float32(0)), lanes(shift)
    last = keys_read(call, block.end, block.query + row)
    for panel in range(block.first, block.end, PANEL):
        height = strip_rows(call, block.query, panel)
        width = strip_keys(call, block, row // height * height, height, panel)
        at = scores + (panel - block.first) * ROWS + row * PANEL
        for j in range(0, width, LANES):
            vector = load_lanes(call.scratch, at + j, LANES)
            if call.mask is None:
                vector = multiply_lanes(vector, lanes(call.scale))
            # Not fused: the largest exponent is 0 only if its product is rounded as the shift was.
            vector = exponentials(subtract_lanes(vector, subtracted))
            if last - panel - j < LANES:
                vector = keep_lanes(vector, last - panel - j, lanes(np.float32(0)))
            # In bfloat16 this overwrites scores that have been read.
            if call.is_paired:
                store_lanes(call.halves, 2 * at + j, vector, LANES)
            else:
                store_lanes(call.scratch, at + j, vector, LANES)
            total = add_lanes(total, vector)
    return sum_lanes(total, LANES)


@inlined
def block_row(call: AttentionForward, block: ScoreBlock, own: ForwardScratch, row: int) -> None:
    """Replace a row of scores by exponentials relative to the largest score up to now.

    Sums over the keys before the block's first are scaled likewise.
    """
    scratch = call.scratch
    highest = row_maximum(call, block, own.scores, row)
    if block.first:
        highest = max(scratch[own.maxima + row], highest)
    shift = np.float32(0)
    if highest > -math.inf:
        shift = highest
    total = row_exponentials(call, block, own.scores, row, shift)
    if block.first:
        factor = exponentials(lanes(scratch[own.maxima + row] - shift))
        total += scratch[own.totals + row] * sum_lanes(factor, 1)
        wide = rounded_up(call.value_size, LANES)
        for j in range(own.sums + row * wide, own.sums + (row + 1) * wide, LANES):
            store_lanes(scratch, j, multiply_lanes(load_lanes(scratch, j, LANES), factor), LANES)
    scratch[own.maxima + row] = highest
    scratch[own.totals + row] = total


@inlined
def store_block(call: AttentionForward, block: ScoreBlock, own: ForwardScratch) -> None:
    """Write the output and logsumexp of a block of queries."""
    scratch, size = call.scratch, call.value_size
    for row in range(block.rows):
        highest, total = scratch[own.maxima + row], scratch[own.totals + row]
        factor = np.float32(0)
        if total != 0:
            factor = np.float32(1) / total
        query = block.query + row
        if call.output is not None:
            at = ((block.sequence * call.queries + query) * call.heads + block.head) * size
            place = own.sums + row * rounded_up(size, LANES)
            write_row(call.output, at, scratch, place, size, lanes(factor), call.is_added)
        if call.logsumexp is not None:
            at = (block.sequence * call.heads + block.head) * call.queries + query
            call.logsumexp[at] = highest + math.log(np.float64(total))


@inlined
def block_scores(call: AttentionForward, block: ScoreBlock, own: ForwardScratch) -> None:
    """Compute the scores of a block."""
    depth = paired(call, call.head_size)
    step = paired(call, rounded_up(call.head_size, LANES))
    for panel in range(block.first, block.end, PANEL):
        height = strip_rows(call, block.query, panel)
        scores = own.scores + (panel - block.first) * ROWS
        for strip in range(0, block.rows, height):
            multiply_packed(
                call,
                *(scores + strip * PANEL, PANEL),
                *(own.queries + strip * step, step, 1),
                *(own.panels + panel * depth, PANEL),
                min(block.rows - strip, height),
                rounded_up(strip_keys(call, block, strip, height, panel), LANES),
                *(depth, 0),
            )


@inlined
def block_values(call: AttentionForward, block: ScoreBlock, own: ForwardScratch) -> None:
    """Add values times their probabilities to the sums; the first panel overwrites these."""
    wide = rounded_up(call.value_size, LANES)
    for panel in range(block.first, block.end, PANEL):
        height = strip_rows(call, block.query, panel)
        scores = own.scores + (panel - block.first) * ROWS
        for strip in range(0, block.rows, height):
            read = paired(call, strip_keys(call, block, strip, height, panel))
            multiply_packed(
                call,
                *(own.sums + strip * wide, wide),
                *(scores + strip * PANEL, PANEL, 1),
                *(own.values + paired(call, panel) * wide, wide),
                *(min(block.rows - strip, height), wide, read, int(panel > 0)),
            )


@inlined
def clear_block(call: AttentionForward, own: ForwardScratch) -> None:
    """Clear the sums and statistics of a block of queries that read no key."""
    clear(call.scratch, own.sums, ROWS * rounded_up(call.value_size, LANES))
    for row in range(ROWS):
        call.scratch[own.maxima + row] = -math.inf
        call.scratch[own.totals + row] = 0.0


@inlined
def query_block(
    call: AttentionForward, own: ForwardScratch, sequence: int, head: int, query: int, rows: int
) -> None:
    """Compute output and logsumexp of a block of queries."""
    pack_left(call, own.queries, query_rows(call, sequence, head, query, rows))
    keys = keys_read(call, keys_of(call, sequence), query + rows - 1)
    if keys == 0:
        clear_block(call, own)
    for first in range(0, keys, PANELS * PANEL):
        end = min(keys, first + PANELS * PANEL)
        block = ScoreBlock(sequence, head, query, rows, first, end)
        block_scores(call, block, own)
        for row in range(rows):
            block_row(call, block, own, row)
        block_values(call, block, own)
    store_block(call, ScoreBlock(sequence, head, query, rows, 0, keys), own)


@compact
def attention_loop(call: AttentionForward) -> None:
    """Compute output and logsumexp of all heads; a part is a chunk of one head's queries."""
    task, tasks = current_task()
    own = scratch_of(call, worker() * call.words_per_worker)
    chunks = (call.queries + call.chunk - 1) // call.chunk
    for part in range(task, call.batch * call.heads * chunks, tasks):
        chunk, rest = part % chunks, part // chunks
        head, sequence = rest % call.heads, rest // call.heads
        group = head // (call.heads // call.kv_heads)
        start, stop = chunk * call.chunk, min((chunk + 1) * call.chunk, call.queries)
        read = keys_read(call, keys_of(call, sequence), stop - 1)
        pack_panels(call, own.panels, own.queries, key_rows(call, sequence, group, read))
        wide = rounded_up(call.value_size, LANES)
        pack_right(call, own.values, wide, value_rows(call, sequence, group, read))
        for query in range(start, stop, ROWS):
            query_block(call, own, sequence, head, query, min(stop - query, ROWS))


def forward_words(sizes: AttentionSizes, is_paired: bool) -> int:
    """Return the words of scratch space of a thread."""
    wide, keys = padded(sizes.value_size, LANES), padded(sizes.keys, PANEL)
    step = padded(sizes.head_size, LANES)
    share = 2 if is_paired else 1
    packed = keys * (step + wide) // share
    # Sixteen rows of keys are staged where the queries are copied to.
    return packed + PANELS * CELLS + STATISTICS + ROWS * (wide + step)
