"""Backward pass of attention in float32 arithmetic, one head of keys and values after the other.

The probabilities of each block are computed again from logsumexp.
"""

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
    load_lanes,
    multiply_lanes,
    pair_lanes,
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
def output_sums(call: AttentionBackward, sums: int, sequence: int, head: int) -> None:
    """Write the sum of output times gradient of each query, and its logsumexp in base 2."""
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
        scratch[sums + 2 * query] = sum_lanes(total, LANES)
        most = call.logsumexp[statistics + query]
        # logsumexp is -inf if no key is read, and may be NaN.
        shift = most * np.float32(LOG2_E)
        if most == -math.inf:
            shift = np.float32(0)
        scratch[sums + 2 * query + 1] = shift


@inlined
def probabilities(
    call: AttentionBackward, at: int, sums: int, mask: int, j: int, last: int
) -> tuple[Any, Any]:
    """Return sixteen probabilities p, and p * (d - sum) for their gradients d."""
    scratch, zero = call.scratch, lanes(np.float32(0))
    vector = scaled_scores(call, scratch, at + j, mask, j, last - j)
    vector = exp2_lanes(subtract_lanes(vector, lanes(scratch[sums + 1])))
    if last - j < LANES:
        vector = keep_lanes(vector, last - j, zero)
    grad = subtract_lanes(load_lanes(scratch, at + CELLS + j, LANES), lanes(scratch[sums]))
    return vector, multiply_lanes(vector, grad)


@inlined
def panel_rows(
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
    """Replace scores by probabilities, and their gradients by those of the scores."""
    height = strip_rows(call, query, panel)
    for row in range(rows):
        last = keys_read(call, count, query + row) - panel
        width = strip_keys(call, count, query + row // height * height, height, panel)
        at, own = block + row * PANEL, sums + 2 * (query + row)
        mask = mask_at(call, sequence, head, query + row) + panel
        for j in range(0, width, LANES):
            vector, grad = probabilities(call, at, own, mask, j, last)
            store_lanes(call.scratch, at + j, vector, LANES)
            store_lanes(call.scratch, at + CELLS + j, grad, LANES)


@inlined
def panel_row_pairs(
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
    """Write pairs of rows of probabilities, and of gradients of the scores, behind the panels.

    The gradients' rows, in bfloat16, overwrite the scores that have been read.
    """
    height = strip_rows(call, query, panel)
    for row in range(0, rows, 2):
        last = keys_read(call, count, query + row) - panel
        width = strip_keys(call, count, query + row // height * height, height, panel)
        at, own = block + row * PANEL, sums + 2 * (query + row)
        pairs = block + 2 * CELLS + row // 2 * PANEL
        mask = mask_at(call, sequence, head, query + row) + panel
        for j in range(0, width, LANES):
            vector, grad = probabilities(call, at, own, mask, j, last)
            lower, lower_grad = lanes(np.float32(0)), lanes(np.float32(0))
            if row + 1 < rows:
                after = keys_read(call, count, query + row + 1) - panel
                lower, lower_grad = probabilities(
                    call, at + PANEL, own + 2, mask + call.keys, j, after
                )
            store_lanes(call.scratch, pairs + j, pair_lanes(vector, lower), LANES)
            store_lanes(call.scratch, pairs + CELLS // 2 + j, pair_lanes(grad, lower_grad), LANES)
            store_lanes(call.halves, 2 * at + j, grad, LANES)
            store_lanes(call.halves, 2 * (at + PANEL) + j, lower_grad, LANES)


@inlined
def panel_scores(
    call: AttentionBackward,
    query: int,
    rows: int,
    panel: int,
    count: int,
    block: int,
    lefts: int,
    left_panels: int,
    columns: int,
    multiply: Any,
    is_paired: bool,
) -> None:
    """Compute the products of a block of queries' rows and a panel of keys' rows."""
    scratch, depth = call.scratch, paired(columns, is_paired)
    step = paired(rounded_up(columns, LANES), is_paired)
    height = strip_rows(call, query, panel)
    for strip in range(0, rows, height):
        multiply(
            *(scratch, block + strip * PANEL, PANEL),
            *(scratch, lefts + (query + strip) * step, step, 1),
            *(scratch, left_panels + panel * depth, PANEL),
            rounded_up(min(rows - strip, height), 2),
            rounded_up(strip_keys(call, count, query + strip, height, panel), LANES),
            *(depth, 0),
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
    multiply: Any,
    is_paired: bool,
) -> None:
    """Add block^T x rows of `rights` to the sums of a panel of keys."""
    height = strip_rows(call, query, panel)
    for strip in range(0, count, height):
        # Queries before the strip read none of its keys.
        skipped = strip if height < ROWS else 0
        if skipped < rows:
            multiply(
                *(call.scratch, sums + (panel + strip) * step, step),
                *(call.scratch, block + paired(skipped, is_paired) * PANEL + strip, 1, PANEL),
                *(call.scratch, rights + paired(query + skipped, is_paired) * step, step),
                *(rounded_up(min(count - strip, height), 2), step),
                *(paired(rows - skipped, is_paired), 1),
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
    multiply: Any,
    is_paired: bool,
) -> None:
    """Add block x keys to the sums of a block of queries."""
    step = rounded_up(call.head_size, LANES)
    height = strip_rows(call, query, panel)
    for strip in range(0, rows, height):
        read = strip_keys(call, count, query + strip, height, panel)
        multiply(
            *(call.scratch, sums + (query + strip) * step, step),
            *(call.scratch, block + strip * PANEL, PANEL, 1),
            *(call.scratch, keys + paired(panel, is_paired) * step, step),
            *(rounded_up(min(rows - strip, height), 2), step),
            *(paired(read, is_paired), 1),
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
            at_row, place = at + i * row, sums + i * step
            write_row(output, at_row, call.scratch, place, columns, factor, is_added)


@inlined
def gradient_tasks(call: AttentionBackward, multiply: Any, is_paired: bool) -> None:
    """Compute the gradients; a task is a head of keys and values.

    multiply: product of blocks, of pairs of bfloat16 if `is_paired`: then the factors on the right
    of products over queries are copies in pairs, and those over keys have rows of pairs only.
    """
    scratch, size, width = call.scratch, call.head_size, call.value_size
    wide, step = rounded_up(width, LANES), rounded_up(size, LANES)
    most_keys, most_queries = rounded_up(call.keys, PANEL), rounded_up(call.queries, 2)
    member, team = team_member()
    own = member * call.thread_words
    keys = own
    key_panels = keys + paired(most_keys * step, is_paired)
    value_panels = key_panels + most_keys * paired(size, is_paired)
    key_sums = value_panels + most_keys * paired(width, is_paired)
    value_sums = key_sums + most_keys * step
    query_sums = value_sums + most_keys * wide
    queries = query_sums + most_queries * step
    grads = queries + paired(most_queries * step, is_paired)
    query_rights, grad_rights = queries, grads
    sums = grads + paired(most_queries * wide, is_paired)
    if is_paired:
        query_rights, grad_rights = sums, sums + paired(most_queries * step, is_paired)
        sums = grad_rights + paired(most_queries * wide, is_paired)
    block = sums + rounded_up(2 * most_queries, LANES)
    # Panels of probabilities, and of gradients of scores by queries and by keys.
    p, by_query, by_key = block, block + CELLS, block + CELLS
    if is_paired:
        p, by_query, by_key = block + 2 * CELLS, block, block + 2 * CELLS + CELLS // 2
    together, row = call.heads // call.kv_heads, call.heads * width
    factor, one = lanes(call.scale * np.float32(LN2)), lanes(np.float32(1))
    for task in range(member, call.batch * call.kv_heads, team):
        group, n = task % call.kv_heads, task // call.kv_heads
        needed = keys_read(call, keys_of(call, n), call.queries - 1)
        key_at = n * call.keys * call.key_row + group * size
        value_at = n * call.keys * call.value_row + group * width
        pack_panels(
            call, key_panels, block, call.key, key_at, call.key_row, needed, size, is_paired
        )
        pack_panels(
            call,
            value_panels,
            block,
            call.value,
            value_at,
            call.value_row,
            needed,
            width,
            is_paired,
        )
        pack_right(call, keys, call.key, key_at, call.key_row, needed, size, is_paired)
        clear(scratch, key_sums, most_keys * (step + wide))
        for head in range(group * together, (group + 1) * together):
            at = n * call.queries * call.query_row + head * size
            grad_at = n * call.queries * row + head * width
            pack_left(call, queries, call.query, at, call.query_row, call.queries, size, is_paired)
            pack_left(call, grads, call.output_grad, grad_at, row, call.queries, width, is_paired)
            if is_paired:
                pack_right(
                    call, query_rights, call.query, at, call.query_row, call.queries, size, True
                )
                pack_right(
                    call, grad_rights, call.output_grad, grad_at, row, call.queries, width, True
                )
            output_sums(call, sums, n, head)
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
                        key_panels,
                        size,
                        multiply,
                        is_paired,
                    )
                    panel_scores(
                        call,
                        query,
                        rows,
                        panel,
                        needed,
                        block + CELLS,
                        grads,
                        value_panels,
                        width,
                        multiply,
                        is_paired,
                    )
                    if is_paired:
                        panel_row_pairs(call, n, head, query, rows, panel, needed, block, sums)
                    else:
                        panel_rows(call, n, head, query, rows, panel, needed, block, sums)
                    add_key_gradients(
                        call,
                        query,
                        rows,
                        panel,
                        count,
                        p,
                        grad_rights,
                        wide,
                        value_sums,
                        multiply,
                        is_paired,
                    )
                    add_key_gradients(
                        call,
                        query,
                        rows,
                        panel,
                        count,
                        by_key,
                        query_rights,
                        step,
                        key_sums,
                        multiply,
                        is_paired,
                    )
                    add_query_gradients(
                        call,
                        query,
                        rows,
                        panel,
                        needed,
                        by_query,
                        keys,
                        query_sums,
                        multiply,
                        is_paired,
                    )
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


@native
def attention_gradient_loop(call: AttentionBackward) -> None:
    """Compute all products in float32."""
    gradient_tasks(call, multiply_block, False)


@native
def attention_gradient_pairs_loop(call: AttentionBackward) -> None:
    """Compute all products of bfloat16 factors."""
    gradient_tasks(call, multiply_pairs, True)


def backward_words(sizes: AttentionSizes, is_paired: bool) -> int:
    """Return the words of scratch space of a thread."""
    wide, step = padded(sizes.value_size, LANES), padded(sizes.head_size, LANES)
    keys, queries = padded(sizes.keys, PANEL), padded(sizes.queries, 2)
    # Packed keys and values take half the space if they are paired; queries are packed twice then.
    packed = keys * (2 * step + wide) // (2 if is_paired else 1) + queries * (step + wide)
    sums = keys * (step + wide) + queries * step + padded(2 * queries, LANES)
    blocks = (3 if is_paired else 2) * CELLS
    return packed + sums + max(blocks, LANES * max(wide, step))
