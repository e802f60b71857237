"""Backward pass of attention in float32 arithmetic, one head of keys and values after the other.

The probabilities of each block are computed again from logsumexp.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from mxrun.base.blocked import PANEL
from mxrun.codegen.arguments import Float32s, Floats, Integer
from mxrun.codegen.intrinsics import current_task, worker
from mxrun.codegen.jit import compact, inlined
from mxrun.codegen.vectors import (
    LANES,
    add_lanes,
    keep_lanes,
    lanes,
    load_lanes,
    multiply_lanes,
    pair_lanes,
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
    MatrixRows,
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


class AttentionBackward(AttentionTensors):
    """Arguments of `attention_gradient_loop`.

    output and its gradient: heads side by side. query_grad, key_grad, value_grad: None if not
    requested; their rows are as far apart as those of query, key and value. mask_grad: likewise, of
    the mask. sequence_sets, group_sets: numbers of sets of sequences, and of heads of keys and
    values, that share no sum.
    """

    output: Floats
    output_grad: Floats
    query_grad: Floats
    key_grad: Floats
    value_grad: Floats
    is_query_added: Integer
    is_key_added: Integer
    is_value_added: Integer
    mask_grad: Float32s
    sequence_sets: Integer
    group_sets: Integer


class BackwardScratch(NamedTuple):
    """Places in a thread's scratch space.

    Of a head of keys and values: keys as right factors, panels of both, and the sums of their
    gradients. Of a head of queries: the sums of its gradient; queries and output gradients as left
    and as right factors, which are the same unless paired; statistics, the sum of output times
    gradient and logsumexp of each query. Of a block: scores, which the probabilities
    overwrite unless paired, and behind them the gradients of the probabilities; the gradients of
    the scores as left factors over keys and, turned, over queries.
    """

    keys: int
    key_panels: int
    value_panels: int
    key_sums: int
    value_sums: int
    query_sums: int
    queries: int
    grads: int
    right_queries: int
    right_grads: int
    statistics: int
    scores: int
    probabilities: int
    by_query: int
    by_key: int


@inlined
def scratch_of(call: AttentionBackward, own: int) -> BackwardScratch:
    """Return the places in the scratch space that begins at `own`; see `backward_words`."""
    size, width = call.head_size, call.value_size
    step, wide = rounded_up(size, LANES), rounded_up(width, LANES)
    most_keys, most_queries = rounded_up(call.keys, PANEL), rounded_up(call.queries, 2)
    key_panels = own + paired(call, most_keys * step)
    value_panels = key_panels + most_keys * paired(call, size)
    key_sums = value_panels + most_keys * paired(call, width)
    value_sums = key_sums + most_keys * step
    query_sums = value_sums + most_keys * wide
    queries = query_sums + most_queries * step
    grads = queries + paired(call, most_queries * step)
    after = grads + paired(call, most_queries * wide)
    right_queries, right_grads, statistics = queries, grads, after
    if call.is_paired:
        right_queries, right_grads = after, after + paired(call, most_queries * step)
        statistics = right_grads + paired(call, most_queries * wide)
    scores = statistics + rounded_up(2 * most_queries, LANES)
    probabilities, by_query, by_key = scores, scores + CELLS, scores + CELLS
    if call.is_paired:
        probabilities, by_query = scores + 2 * CELLS, scores
        by_key = probabilities + CELLS // 2
    return BackwardScratch(
        *(own, key_panels, value_panels, key_sums, value_sums, query_sums),
        *(queries, grads, right_queries, right_grads, statistics),
        *(scores, probabilities, by_query, by_key),
    )


@inlined
def output_statistics(call: AttentionBackward, to: int, sequence: int, head: int) -> None:
    """Write the sum of output times gradient of each query, and its logsumexp."""
    scratch, width = call.scratch, call.value_size
    row = call.heads * width
    first = sequence * call.queries * row + head * width
    statistics = (sequence * call.heads + head) * call.queries
    for query in range(call.queries):
        total = lanes(np.float32(0))
        at = first + query * row
        for j in range(0, width, LANES):
            output = load_lanes(call.output, at + j, width - j)
            grad = load_lanes(call.output_grad, at + j, width - j)
            total = add_lanes(total, multiply_lanes(output, grad))
        scratch[to + 2 * query] = sum_lanes(total, LANES)
        shift = call.logsumexp[statistics + query]
        # It is -inf if no key is read, and may be NaN.
        if shift == -math.inf:
            shift = np.float32(0)
        scratch[to + 2 * query + 1] = shift


@inlined
def block_scores(
    call: AttentionBackward, block: ScoreBlock, to: int, lefts: int, panels: int, columns: int
) -> None:
    """Compute the products of rows of left factors and a panel of keys or values."""
    depth, step = paired(call, columns), paired(call, rounded_up(columns, LANES))
    height = strip_rows(call, block.query, block.first)
    for strip in range(0, block.rows, height):
        multiply_packed(
            call,
            *(to + strip * PANEL, PANEL),
            *(lefts + (block.query + strip) * step, step, 1),
            *(panels + block.first * depth, PANEL),
            min(block.rows - strip, height),
            rounded_up(strip_keys(call, block, strip, height, block.first), LANES),
            *(depth, 0),
        )


@inlined
def probabilities_of(
    call: AttentionBackward, at: int, statistics: int, mask: int, valid: int
) -> tuple[Any, Any]:
    """Return sixteen probabilities p, and p * (d - sum) for their gradients d."""
    scratch, zero = call.scratch, lanes(np.float32(0))
    vector = scaled_scores(call, at, mask, valid)
    vector = exponentials(subtract_lanes(vector, lanes(scratch[statistics + 1])))
    if valid < LANES:
        vector = keep_lanes(vector, valid, zero)
    grad = subtract_lanes(load_lanes(scratch, at + CELLS, LANES), lanes(scratch[statistics]))
    return vector, multiply_lanes(vector, grad)


@inlined
def block_gradients(call: AttentionBackward, block: ScoreBlock, own: BackwardScratch) -> None:
    """Replace scores by probabilities, and their gradients by those of the scores.

    This is done for two rows at a time, which are side by side in paired factors.
    """
    height = strip_rows(call, block.query, block.first)
    for row in range(0, block.rows, 2):
        query = block.query + row
        last = keys_read(call, block.end, query) - block.first
        after = keys_read(call, block.end, query + 1) - block.first
        width = strip_keys(call, block, row // height * height, height, block.first)
        at, statistics = own.scores + row * PANEL, own.statistics + 2 * query
        mask = mask_at(call, block.sequence, block.head, query) + block.first
        for j in range(0, width, LANES):
            upper, upper_grad = probabilities_of(call, at + j, statistics, mask + j, last - j)
            lower, lower_grad = lanes(np.float32(0)), lanes(np.float32(0))
            if row + 1 < block.rows:
                lower, lower_grad = probabilities_of(
                    call, at + PANEL + j, statistics + 2, mask + call.keys + j, after - j
                )
            store_rows(call, own.probabilities, row, j, upper, lower)
            store_rows(call, own.by_key, row, j, upper_grad, lower_grad)
            if call.mask_grad is not None:
                add_lanes_to(call.mask_grad, mask + j, upper_grad, last - j)
                if row + 1 < block.rows:
                    add_lanes_to(call.mask_grad, mask + call.keys + j, lower_grad, after - j)
            if call.is_paired:
                # In bfloat16 these overwrite scores that have been read.
                place = 2 * (own.by_query + row * PANEL) + j
                store_lanes(call.halves, place, upper_grad, LANES)
                store_lanes(call.halves, place + 2 * PANEL, lower_grad, LANES)


@inlined
def add_lanes_to(output: Any, at: int, vector: Any, count: int) -> None:
    """Add the first `count` lanes to memory."""
    store_lanes(output, at, add_lanes(load_lanes(output, at, count), vector), count)


@inlined
def store_rows(
    call: AttentionBackward, panel: int, row: int, j: int, upper: Any, lower: Any
) -> None:
    """Store sixteen columns of two rows of a panel, side by side if they are paired."""
    if call.is_paired:
        place = panel + row // 2 * PANEL + j
        store_lanes(call.scratch, place, pair_lanes(upper, lower), LANES)
    else:
        store_lanes(call.scratch, panel + row * PANEL + j, upper, LANES)
        store_lanes(call.scratch, panel + (row + 1) * PANEL + j, lower, LANES)


@inlined
def add_key_gradients(
    call: AttentionBackward, block: ScoreBlock, panel: int, rights: int, step: int, sums: int
) -> None:
    """Add panel^T x rows of right factors to the sums of a panel of keys."""
    count = block.end - block.first
    height = strip_rows(call, block.query, block.first)
    for strip in range(0, count, height):
        # Queries before the strip read none of its keys.
        skipped = strip if height < ROWS else 0
        if skipped < block.rows:
            multiply_packed(
                call,
                *(sums + (block.first + strip) * step, step),
                *(panel + paired(call, skipped) * PANEL + strip, 1, PANEL),
                *(rights + paired(call, block.query + skipped) * step, step),
                *(min(count - strip, height), step, paired(call, block.rows - skipped), 1),
            )


@inlined
def add_query_gradients(
    call: AttentionBackward, block: ScoreBlock, panel: int, keys: int, sums: int
) -> None:
    """Add panel x keys to the sums of a block of queries."""
    step = rounded_up(call.head_size, LANES)
    height = strip_rows(call, block.query, block.first)
    for strip in range(0, block.rows, height):
        read = strip_keys(call, block, strip, height, block.first)
        multiply_packed(
            call,
            *(sums + (block.query + strip) * step, step),
            *(panel + strip * PANEL, PANEL, 1),
            *(keys + paired(call, block.first) * step, step),
            *(min(block.rows - strip, height), step, paired(call, read), 1),
        )


@inlined
def clear_mask_gradient(call: AttentionBackward, sequence: int, head: int) -> None:
    """Clear the mask's gradient for a head, unless it has sums of sequences or heads before it."""
    is_first_sequence = sequence == 0 or call.mask_sequence > 0
    if is_first_sequence and (head == 0 or call.mask_head > 0):
        clear(call.mask_grad, mask_at(call, sequence, head, 0), call.queries * call.keys)


@inlined
def write_rows(
    call: AttentionBackward, output: MatrixRows, sums: int, factor: Any, is_added: int
) -> None:
    """Write rows of sums times a factor; None is not requested."""
    if output.data is not None:
        step = rounded_up(output.columns, LANES)
        for i in range(output.rows):
            to, place = output.at + i * output.step, sums + i * step
            write_row(output.data, to, call.scratch, place, output.columns, factor, is_added)


@inlined
def query_head_gradients(
    call: AttentionBackward, own: BackwardScratch, sequence: int, head: int, keys: int
) -> None:
    """Compute the gradient of a head of queries, and add to those of its keys and values."""
    size, width, row = call.head_size, call.value_size, call.heads * call.value_size
    wide, step = rounded_up(width, LANES), rounded_up(size, LANES)
    queries = query_rows(call, sequence, head, 0, call.queries)
    at = sequence * call.queries * row + head * width
    grads = MatrixRows(call.output_grad, at, row, call.queries, width)
    pack_left(call, own.queries, queries)
    pack_left(call, own.grads, grads)
    if call.is_paired:
        pack_right(call, own.right_queries, step, queries)
        pack_right(call, own.right_grads, wide, grads)
    output_statistics(call, own.statistics, sequence, head)
    clear(call.scratch, own.query_sums, rounded_up(call.queries, 2) * step)
    if call.mask_grad is not None:
        clear_mask_gradient(call, sequence, head)
    for panel in range(0, keys, PANEL):
        for query in range(panel if call.causal else 0, call.queries, ROWS):
            rows, end = min(call.queries - query, ROWS), min(keys, panel + PANEL)
            block = ScoreBlock(sequence, head, query, rows, panel, end)
            block_scores(call, block, own.scores, own.queries, own.key_panels, size)
            block_scores(call, block, own.scores + CELLS, own.grads, own.value_panels, width)
            block_gradients(call, block, own)
            add_key_gradients(call, block, own.probabilities, own.right_grads, wide, own.value_sums)
            add_key_gradients(call, block, own.by_key, own.right_queries, step, own.key_sums)
            add_query_gradients(call, block, own.by_query, own.keys, own.query_sums)
    output = MatrixRows(call.query_grad, queries.at, call.query_row, call.queries, size)
    factor = lanes(call.scale)
    write_rows(call, output, own.query_sums, factor, call.is_query_added)


@inlined
def shared_head_gradients(
    call: AttentionBackward, own: BackwardScratch, sequence: int, group: int
) -> None:
    """Compute the gradients of a head of keys and values, and of the queries that read it."""
    size, width, together = call.head_size, call.value_size, call.heads // call.kv_heads
    wide, step = rounded_up(width, LANES), rounded_up(size, LANES)
    read = keys_read(call, keys_of(call, sequence), call.queries - 1)
    keys, values = key_rows(call, sequence, group, read), value_rows(call, sequence, group, read)
    pack_panels(call, own.key_panels, own.scores, keys)
    pack_panels(call, own.value_panels, own.scores, values)
    pack_right(call, own.keys, step, keys)
    clear(call.scratch, own.key_sums, rounded_up(call.keys, PANEL) * (step + wide))
    for head in range(group * together, (group + 1) * together):
        query_head_gradients(call, own, sequence, head, read)
    output = MatrixRows(call.key_grad, keys.at, call.key_row, call.keys, size)
    factor, one = lanes(call.scale), lanes(np.float32(1))
    write_rows(call, output, own.key_sums, factor, call.is_key_added)
    output = MatrixRows(call.value_grad, values.at, call.value_row, call.keys, width)
    write_rows(call, output, own.value_sums, one, call.is_value_added)


@compact
def attention_gradient_loop(call: AttentionBackward) -> None:
    """Compute the gradients; a part is a set of heads of keys and values, in their order."""
    task, tasks = current_task()
    own = scratch_of(call, worker() * call.words_per_worker)
    for part in range(task, call.sequence_sets * call.group_sets, tasks):
        for sequence in range(part // call.group_sets, call.batch, call.sequence_sets):
            for group in range(part % call.group_sets, call.kv_heads, call.group_sets):
                shared_head_gradients(call, own, sequence, group)


def backward_words(sizes: AttentionSizes, is_paired: bool) -> int:
    """Return the words of scratch space of a thread."""
    wide, step = padded(sizes.value_size, LANES), padded(sizes.head_size, LANES)
    keys, queries = padded(sizes.keys, PANEL), padded(sizes.queries, 2)
    # Packed keys and values take half the space if they are paired; queries are packed twice then.
    packed = keys * (2 * step + wide) // (2 if is_paired else 1) + queries * (step + wide)
    sums = keys * (step + wide) + queries * step + padded(2 * queries, LANES)
    blocks = (3 if is_paired else 2) * CELLS
    return packed + sums + max(blocks, LANES * max(wide, step))
