"""Blocks of attention in compiled loops: their sizes, their packing and their scores.

A block has up to ROWS queries, and keys in panels of PANEL, which equals ROWS: the scores of a
panel are [ROWS, PANEL]. With `causal`, the panel on the diagonal is computed in strips of STRIP
queries, which leave out most of the pairs that are not read.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from mxrun.codegen.arguments import Arguments, BFloat16s, Float32s, Floats, Int32s, Integer, Real
from mxrun.codegen.jit import inlined
from mxrun.codegen.vectors import (
    LANES,
    add_lanes,
    lanes,
    load_lanes,
    multiply_add_lanes,
    multiply_lanes,
    pair_lanes,
    store_lanes,
    stored_lanes,
    transpose_lanes,
)

ROWS = PANEL = 64
STRIP = 16
CELLS = ROWS * PANEL
LOG2_E = math.log2(math.e)
LN2 = math.log(2)


class AttentionTensors(Arguments):
    """Arguments of all loops of attention.

    query, key, value: heads side by side in rows `query_row`, `key_row` and `value_row` apart.
    scale: factor of the scores, times log2(e). mask, lengths: None if not used; the mask of a
    sequence begins `mask_sequence` elements after the one before, that of a head `mask_head`.
    scratch: `thread_words` for each thread of the team. halves: the same memory, for loops with
    products of bfloat16.
    """

    batch: Integer
    queries: Integer
    keys: Integer
    heads: Integer
    kv_heads: Integer
    head_size: Integer
    value_size: Integer
    query: Floats
    query_row: Integer
    key: Floats
    key_row: Integer
    value: Floats
    value_row: Integer
    logsumexp: Float32s
    scale: Real
    causal: Integer
    mask: Float32s
    mask_sequence: Integer
    mask_head: Integer
    lengths: Int32s
    scratch: Float32s
    thread_words: Integer
    halves: BFloat16s


@inlined
def rounded_up(count: int, multiple: int) -> int:
    """Return the smallest multiple that is not below a count."""
    return (count + multiple - 1) // multiple * multiple


@inlined
def keys_of(call: AttentionTensors, sequence: int) -> int:
    """Return the number of keys of a sequence."""
    count: int = call.keys
    if call.lengths is not None:
        count = min(max(call.lengths[sequence], 0), count)
    return count


@inlined
def keys_read(call: AttentionTensors, count: int, query: int) -> int:
    """Return the number of keys that a query reads, of a sequence with `count` keys."""
    return min(count, query + 1) if call.causal else count


@inlined
def strip_rows(call: AttentionTensors, query: int, panel: int) -> int:
    """Return the rows of a strip: few where a panel of keys reaches beyond the queries."""
    return STRIP if call.causal and panel + PANEL > query + 1 else ROWS


@inlined
def strip_keys(call: AttentionTensors, count: int, query: int, rows: int, panel: int) -> int:
    """Return the number of keys of a panel that the last of `rows` queries reads."""
    read: int = keys_read(call, count, query + rows - 1)
    return max(min(read - panel, PANEL), 0)


@inlined
def copy_rows(
    output: Any, to: int, step: int, data: Any, at: int, row: int, rows: int, columns: int
) -> None:
    """Copy rows; columns up to a multiple of 16 are filled with 0."""
    for i in range(rows):
        for j in range(0, columns, LANES):
            vector = load_lanes(data, at + i * row + j, columns - j)
            store_lanes(output, to + i * step + j, vector, LANES)


@inlined
def clear(output: Any, to: int, count: int) -> None:
    """Fill with 0."""
    for j in range(0, count, LANES):
        store_lanes(output, to + j, lanes(np.float32(0)), count - j)


@inlined
def paired(count: int, is_paired: bool) -> int:
    """Return the number of elements, or of words if two bfloat16 elements are a word."""
    return (count + 1) // 2 if is_paired else count


@inlined
def pack_left(
    call: AttentionTensors,
    to: int,
    data: Any,
    at: int,
    row: int,
    rows: int,
    columns: int,
    is_paired: bool,
) -> None:
    """Copy rows for left factors, with a row of 0 if their number is odd."""
    step = rounded_up(columns, LANES)
    if is_paired:
        copy_rows(call.halves, 2 * to, step, data, at, row, rows, columns)
    else:
        copy_rows(call.scratch, to, step, data, at, row, rows, columns)
    if rows % 2:
        words = paired(step, is_paired)
        clear(call.scratch, to + rows * words, words)


@inlined
def pack_right(
    call: AttentionTensors,
    to: int,
    data: Any,
    at: int,
    row: int,
    rows: int,
    columns: int,
    is_paired: bool,
) -> None:
    """Copy rows for right factors, two of them side by side if they are paired."""
    step = rounded_up(columns, LANES)
    if is_paired:
        for i in range(0, rows, 2):
            for j in range(0, columns, LANES):
                low = load_lanes(data, at + i * row + j, columns - j)
                high = lanes(np.float32(0))
                if i + 1 < rows:
                    high = load_lanes(data, at + (i + 1) * row + j, columns - j)
                store_lanes(call.scratch, to + i // 2 * step + j, pair_lanes(low, high), LANES)
    else:
        copy_rows(call.scratch, to, step, data, at, row, rows, columns)


@inlined
def pack_panels(
    call: AttentionTensors,
    to: int,
    stage: int,
    data: Any,
    at: int,
    row: int,
    rows: int,
    columns: int,
    is_paired: bool,
) -> None:
    """Transpose rows [rows, columns] to panels [columns, PANEL], with 0 beyond the last row.

    Two columns side by side are a word if they are paired. stage: place of a copy of sixteen rows.
    """
    step = rounded_up(columns, LANES)
    words, depth = paired(step, is_paired), paired(columns, is_paired)
    for i in range(0, rows, LANES):
        count = min(rows - i, LANES)
        if count < LANES:
            clear(call.scratch, stage, LANES * words)
        first = at + i * row
        if is_paired:
            copy_rows(call.halves, 2 * stage, step, data, first, row, count, columns)
        else:
            copy_rows(call.scratch, stage, step, data, first, row, count, columns)
        panel = to + i // PANEL * PANEL * depth + i % PANEL
        for j in range(0, depth, LANES):
            place = panel + j * PANEL
            transpose_lanes(
                *(call.scratch, stage + j, words, LANES, depth - j),
                *(call.scratch, place, PANEL),
            )


@inlined
def write_row(
    output: Any, to: int, data: Any, at: int, columns: int, factor: Any, is_added: int
) -> None:
    """Write a row times a factor, or add it after the rounding that a store performs."""
    for j in range(0, columns, LANES):
        vector = multiply_lanes(load_lanes(data, at + j, LANES), factor)
        if is_added:
            before = load_lanes(output, to + j, columns - j)
            vector = add_lanes(before, stored_lanes(output, vector))
        store_lanes(output, to + j, vector, columns - j)


@inlined
def mask_at(call: AttentionTensors, sequence: int, head: int, query: int) -> int:
    """Return the place of a query's row of the mask."""
    place: int = sequence * call.mask_sequence + head * call.mask_head + query * call.keys
    return place


@inlined
def scaled_scores(
    call: AttentionTensors, scores: Any, at: int, mask: int, key: int, valid: int
) -> Any:
    """Return sixteen scores times log2(e), with the mask."""
    vector = multiply_lanes(load_lanes(scores, at, LANES), lanes(call.scale))
    if call.mask is not None:
        added = load_lanes(call.mask, mask + key, valid)
        vector = multiply_add_lanes(added, lanes(np.float32(LOG2_E)), vector)
    return vector
