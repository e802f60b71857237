"""Backward pass of attention in float32 arithmetic, one head of keys and values after the other.

The probabilities of each block are computed again from logsumexp.
"""

from __future__ import annotations

import math
from typing import Any

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
    load_lanes,
    multiply_lanes,
    store_lanes,
    subtract_lanes,
    sum_lanes,
)
from mxrun.ops.attention.blocks import (
    CELLS,
    LN2,
    LOG2_E,
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


class AttentionBackward(AttentionTensors):
    """Arguments of `attention_gradient_loop`.

    output and its gradient: heads side by side. query_grad, key_grad, value_grad: None if not
    requested; their rows are as far apart as those of query, key and value.
    """

    output: Floats
    output_grad: Floats
    query_grad: Floats
    key_grad: Floats
    value_grad: Floats
    is_query_added: Integer
    is_key_added: Integer
    is_value_added: Integer


@inlined
def pack_gradients(
    call: AttentionBackward, grads: int, step: int, sums: int, sequence: int, head: int
) -> None:
    """Copy the output's gradient; sums: its products with the output, and logsumexp in base 2."""
    scratch, width = call.scratch, call.value_size
    row = call.heads * width
    first = sequence * call.queries * row + head * width
    copy_rows(scratch, grads, step, call.output_grad, first, row, call.queries, width)
    statistics = (sequence * call.heads + head) * call.queries
    for query in range(call.queries):
        total = lanes(np.float32(0))
        at = first + query * row
        for j in range(0, width, LANES):
            output = load_lanes(call.output, at + j, width - j)
            grad = load_lanes(scratch, grads + query * step + j, LANES)
            total = add_lanes(total, multiply_lanes(output, grad))
        scratch[sums + 2 * query] = sum_lanes(total, LANES)
        most = call.logsumexp[statistics + query]
        # logsumexp is -inf if no key is read, and may be NaN.
        shift = most * np.float32(LOG2_E)
        if most == -math.inf:
            shift = np.float32(0)
        scratch[sums + 2 * query + 1] = shift


@inlined
def panel_probabilities(
    call: AttentionBackward,
    sequence: int,
    head: int,
    query: int,
    rows: int,
    panel: int,
    count: int,
    block: int,
    sums: int,
) -> None:
    """Replace scores by probabilities p, and their gradients d by p * (d - sum)."""
    scratch, zero = call.scratch, lanes(np.float32(0))
    height = strip_rows(call, query, panel)
    for row in range(rows):
        last = keys_read(call, count, query + row) - panel
        width = strip_keys(call, count, query + row // height * height, height, panel)
        at = block + row * PANEL
        total = lanes(scratch[sums + 2 * (query + row)])
        shift = lanes(scratch[sums + 2 * (query + row) + 1])
        mask = mask_at(call, sequence, head, query + row) + panel
        for j in range(0, width, LANES):
            vector = scaled_scores(call, scratch, at + j, mask, j, last - j)
            vector = exp2_lanes(subtract_lanes(vector, shift))
            if last - j < LANES:
                vector = keep_lanes(vector, last - j, zero)
            grad = subtract_lanes(load_lanes(scratch, at + CELLS + j, LANES), total)
            store_lanes(scratch, at + j, vector, LANES)
            store_lanes(scratch, at + CELLS + j, multiply_lanes(vector, grad), LANES)


@inlined
def panel_scores(
    call: AttentionBackward,
    query: int,
    rows: int,
    panel: int,
    count: int,
    block: int,
    queries: int,
    grads: int,
    key_panels: int,
    value_panels: int,
) -> None:
    """Compute the scores of a block of queries and a panel of keys, and their gradients."""
    scratch, size, width = call.scratch, call.head_size, call.value_size
    step, wide = rounded_up(size, LANES), rounded_up(width, LANES)
    height = strip_rows(call, query, panel)
    for strip in range(0, rows, height):
        tall = rounded_up(min(rows - strip, height), 2)
        read = rounded_up(strip_keys(call, count, query + strip, height, panel), LANES)
        multiply_block(
            *(scratch, block + strip * PANEL, PANEL),
            *(scratch, queries + (query + strip) * step, step, 1),
            *(scratch, key_panels + panel * size, PANEL),
            *(tall, read, size, 0),
        )
        multiply_block(
            *(scratch, block + CELLS + strip * PANEL, PANEL),
            *(scratch, grads + (query + strip) * wide, wide, 1),
            *(scratch, value_panels + panel * width, PANEL),
            *(tall, read, width, 0),
        )


@inlined
def add_key_gradients(
    call: AttentionBackward,
    query: int,
    rows: int,
    panel: int,
    count: int,
    block: int,
    rights: int,
    step: int,
    sums: int,
) -> None:
    """Add block^T x rows of `rights` to the sums of a panel of keys."""
    scratch = call.scratch
    height = strip_rows(call, query, panel)
    for strip in range(0, count, height):
        tall = rounded_up(min(count - strip, height), 2)
        # Queries before the strip read none of its keys.
        skipped = strip if height < ROWS else 0
        if skipped < rows:
            multiply_block(
                *(scratch, sums + (panel + strip) * step, step),
                *(scratch, block + skipped * PANEL + strip, 1, PANEL),
                *(scratch, rights + (query + skipped) * step, step),
                *(tall, step, rows - skipped, 1),
            )


@inlined
def add_query_gradients(
    call: AttentionBackward,
    query: int,
    rows: int,
    panel: int,
    count: int,
    block: int,
    keys: int,
    sums: int,
) -> None:
    """Add block x keys to the sums of a block of queries."""
    scratch = call.scratch
    step = rounded_up(call.head_size, LANES)
    height = strip_rows(call, query, panel)
    for strip in range(0, rows, height):
        tall = rounded_up(min(rows - strip, height), 2)
        read = strip_keys(call, count, query + strip, height, panel)
        multiply_block(
            *(scratch, sums + (query + strip) * step, step),
            *(scratch, block + strip * PANEL, PANEL, 1),
            *(scratch, keys + panel * step, step),
            *(tall, step, read, 1),
        )


@inlined
def write_rows(
    call: AttentionBackward,
    output: Any,
    at: int,
    row: int,
    sums: int,
    rows: int,
    columns: int,
    factor: Any,
    is_added: int,
) -> None:
    """Write rows of sums times a factor; None is not requested."""
    if output is not None:
        step = rounded_up(columns, LANES)
        for i in range(rows):
            write_row(
                output, at + i * row, call.scratch, sums + i * step, columns, factor, is_added
            )


@native
def attention_gradient_loop(call: AttentionBackward) -> None:
    """Gradients of query, key and value; a task is a head of keys and values."""
    scratch, size, width = call.scratch, call.head_size, call.value_size
    wide, step = rounded_up(width, LANES), rounded_up(size, LANES)
    most_keys, most_queries = rounded_up(call.keys, PANEL), rounded_up(call.queries, 2)
    own, _ = share(call.scratch_words)
    keys = own
    key_panels = keys + most_keys * step
    value_panels = key_panels + most_keys * size
    key_sums = value_panels + most_keys * width
    value_sums = key_sums + most_keys * step
    queries = value_sums + most_keys * wide
    grads = queries + most_queries * step
    query_sums = grads + most_queries * wide
    sums = query_sums + most_queries * step
    block = sums + rounded_up(2 * most_queries, LANES)
    together = call.heads // call.kv_heads
    factor, one = lanes(call.scale * np.float32(LN2)), lanes(np.float32(1))
    for task in range(own // call.thread_words, call.batch * call.kv_heads, call.team):
        group, sequence = task % call.kv_heads, task // call.kv_heads
        needed = keys_read(call, keys_of(call, sequence), call.queries - 1)
        key_at = sequence * call.keys * call.key_row + group * size
        value_at = sequence * call.keys * call.value_row + group * width
        pack_panels(scratch, key_panels, block, call.key, key_at, call.key_row, needed, size)
        pack_panels(
            scratch, value_panels, block, call.value, value_at, call.value_row, needed, width
        )
        copy_rows(scratch, keys, step, call.key, key_at, call.key_row, needed, size)
        clear(scratch, key_sums, most_keys * (step + wide))
        for head in range(group * together, (group + 1) * together):
            at = sequence * call.queries * call.query_row + head * size
            copy_rows(scratch, queries, step, call.query, at, call.query_row, call.queries, size)
            pack_gradients(call, grads, wide, sums, sequence, head)
            if call.queries % 2:
                clear(scratch, queries + call.queries * step, step)
                clear(scratch, grads + call.queries * wide, wide)
            clear(scratch, query_sums, most_queries * step)
            for panel in range(0, needed, PANEL):
                begin, count = panel if call.causal else 0, min(needed - panel, PANEL)
                for query in range(begin, call.queries, ROWS):
                    rows = min(call.queries - query, ROWS)
                    panel_scores(
                        call,
                        query,
                        rows,
                        panel,
                        needed,
                        block,
                        queries,
                        grads,
                        key_panels,
                        value_panels,
                    )
                    panel_probabilities(
                        call, sequence, head, query, rows, panel, needed, block, sums
                    )
                    add_key_gradients(
                        call, query, rows, panel, count, block, grads, wide, value_sums
                    )
                    scores = block + CELLS
                    add_key_gradients(
                        call, query, rows, panel, count, scores, queries, step, key_sums
                    )
                    add_query_gradients(call, query, rows, panel, needed, scores, keys, query_sums)
            write_rows(
                call,
                call.query_grad,
                at,
                call.query_row,
                query_sums,
                call.queries,
                size,
                factor,
                call.is_query_added,
            )
        write_rows(
            call,
            call.key_grad,
            key_at,
            call.key_row,
            key_sums,
            call.keys,
            size,
            factor,
            call.is_key_added,
        )
        write_rows(
            call,
            call.value_grad,
            value_at,
            call.value_row,
            value_sums,
            call.keys,
            width,
            one,
            call.is_value_added,
        )
