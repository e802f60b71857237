"""Blocks of attention in compiled loops: their sizes, their packing and their scores.

A block has up to ROWS queries, and keys in panels of PANEL, which equals ROWS: the scores of a
panel are [ROWS, PANEL]. With `causal`, the panel on the diagonal is computed in strips of STRIP
queries, which leave out most of the pairs that are not read.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from mxrun.codegen.arguments import BFloat16s, Float32s, Floats, Int32s, Integer, Real
from mxrun.codegen.jit import inlined
from mxrun.codegen.products import multiply_block, multiply_pairs
from mxrun.codegen.vectors import (
    LANES,
    add_lanes,
    lanes,
    load_lanes,
    multiply_lanes,
    pair_lanes,
    store_lanes,
    stored_lanes,
    transpose_lanes,
)
from mxrun.ops.attention.shapes import AttentionSizes
from mxrun.ops.rows import clear

ROWS = PANEL = 64
STRIP = 16
CELLS = ROWS * PANEL


class AttentionTensors(AttentionSizes):
    """Arguments of all loops of attention.

    query, key, value: heads side by side in rows `query_row`, `key_row` and `value_row` apart.
    scale: factor of the scores. mask, lengths: None if not used; the mask of a
    sequence begins `mask_sequence` elements after the one before, that of a head `mask_head`.
    scratch: `words_per_worker` for each thread. is_paired: whether the factors of products
    are pairs of bfloat16, in `halves`, which is the same memory.
    """

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
    words_per_worker: Integer
    halves: BFloat16s
    is_paired: Integer


class HeadRows(NamedTuple):
    """Rows of a head in a tensor: the first one begins at `at`, the next ones `step` later."""

    data: Any
    at: int
    step: int
    rows: int
    columns: int


class ScoreBlock(NamedTuple):
    """`rows` queries of a head from `query` on, and keys `first` to `end` - 1 of their sequence."""

    sequence: int
    head: int
    query: int
    rows: int
    first: int
    end: int


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
def strip_keys(call: AttentionTensors, block: ScoreBlock, row: int, height: int, panel: int) -> int:
    """Return the number of keys of a panel that a strip of queries reads: those of its last one."""
    read: int = keys_read(call, block.end, block.query + row + height - 1)
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
def paired(call: AttentionTensors, count: int) -> int:
    """Return the words of a number of elements, of which two are a word if they are paired."""
    return (count + 1) // 2 if call.is_paired else count


@inlined
def multiply(
    call: AttentionTensors,
    to: int,
    output_step: int,
    left: int,
    row_step: int,
    inner_step: int,
    right: int,
    right_step: int,
    rows: int,
    columns: int,
    inner: int,
    is_added: int,
) -> None:
    """Compute a product in scratch space, see `multiply_block`; the rows are rounded up to 2."""
    scratch, tall = call.scratch, rounded_up(rows, 2)
    if call.is_paired:
        multiply_pairs(
            *(scratch, to, output_step, scratch, left, row_step, inner_step),
            *(scratch, right, right_step, tall, columns, inner, is_added),
        )
    else:
        multiply_block(
            *(scratch, to, output_step, scratch, left, row_step, inner_step),
            *(scratch, right, right_step, tall, columns, inner, is_added),
        )


@inlined
def pack_rows(call: AttentionTensors, to: int, given: HeadRows, at: int, rows: int) -> None:
    """Copy `rows` rows from `at` on, in bfloat16 if they are paired."""
    step = rounded_up(given.columns, LANES)
    if call.is_paired:
        copy_rows(call.halves, 2 * to, step, given.data, at, given.step, rows, given.columns)
    else:
        copy_rows(call.scratch, to, step, given.data, at, given.step, rows, given.columns)


@inlined
def pack_left(call: AttentionTensors, to: int, given: HeadRows) -> None:
    """Copy rows for left factors, with a row of 0 if their number is odd."""
    pack_rows(call, to, given, given.at, given.rows)
    if given.rows % 2:
        words = paired(call, rounded_up(given.columns, LANES))
        clear(call.scratch, to + given.rows * words, words)


@inlined
def pack_right(call: AttentionTensors, to: int, given: HeadRows) -> None:
    """Copy rows for right factors, two of them side by side if they are paired."""
    step, row, columns = rounded_up(given.columns, LANES), given.step, given.columns
    if call.is_paired:
        for i in range(0, given.rows, 2):
            at = given.at + i * row
            for j in range(0, columns, LANES):
                low, high = load_lanes(given.data, at + j, columns - j), lanes(np.float32(0))
                if i + 1 < given.rows:
                    high = load_lanes(given.data, at + row + j, columns - j)
                store_lanes(call.scratch, to + i // 2 * step + j, pair_lanes(low, high), LANES)
    else:
        copy_rows(call.scratch, to, step, given.data, given.at, row, given.rows, columns)


@inlined
def pack_panels(call: AttentionTensors, to: int, stage: int, given: HeadRows) -> None:
    """Transpose rows [rows, columns] to panels [columns, PANEL], with 0 beyond the last row.

    Two columns side by side are a word if they are paired. stage: place of a copy of sixteen rows.
    """
    words = paired(call, rounded_up(given.columns, LANES))
    depth = paired(call, given.columns)
    for i in range(0, given.rows, LANES):
        count = min(given.rows - i, LANES)
        if count < LANES:
            clear(call.scratch, stage, LANES * words)
        pack_rows(call, stage, given, given.at + i * given.step, count)
        panel = to + i // PANEL * PANEL * depth + i % PANEL
        for j in range(0, depth, LANES):
            transpose_lanes(
                *(call.scratch, stage + j, words, LANES, depth - j),
                *(call.scratch, panel + j * PANEL, PANEL),
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
def scaled_scores(call: AttentionTensors, at: int, mask: int, valid: int) -> Any:
    """Return sixteen scores of scratch space times the scale, with the mask."""
    vector = multiply_lanes(load_lanes(call.scratch, at, LANES), lanes(call.scale))
    if call.mask is not None:
        vector = add_lanes(vector, load_lanes(call.mask, mask, valid))
    return vector


@inlined
def query_rows(call: AttentionTensors, sequence: int, head: int, query: int, rows: int) -> HeadRows:
    """Return rows of a head's queries."""
    at = (sequence * call.queries + query) * call.query_row + head * call.head_size
    return HeadRows(call.query, at, call.query_row, rows, call.head_size)


@inlined
def key_rows(call: AttentionTensors, sequence: int, group: int, rows: int) -> HeadRows:
    """Return rows of a head's keys."""
    at = sequence * call.keys * call.key_row + group * call.head_size
    return HeadRows(call.key, at, call.key_row, rows, call.head_size)


@inlined
def value_rows(call: AttentionTensors, sequence: int, group: int, rows: int) -> HeadRows:
    """Return rows of a head's values."""
    at = sequence * call.keys * call.value_row + group * call.value_size
    return HeadRows(call.value, at, call.value_row, rows, call.value_size)
