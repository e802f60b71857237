"""Blocks of attention in compiled loops: their sizes, their packing and their scores.

A block has up to ROWS queries, and keys in panels of PANEL, which equals ROWS: the scores of a
panel are [ROWS, PANEL]. With `causal`, the panel on the diagonal is computed in strips of STRIP
queries, which leave out most of the pairs that are not read.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from mxrun.base.blocked import PANEL
from mxrun.codegen.arguments import Float32s, Floats, Int32s, Integer, Real
from mxrun.codegen.jit import inlined
from mxrun.codegen.vectors import (
    LANES,
    add_lanes,
    lanes,
    load_lanes,
    multiply_lanes,
)
from mxrun.ops.attention.shapes import AttentionSizes
from mxrun.ops.product_blocks import MatrixRows, ProductScratch

ROWS = PANEL
STRIP = 16
CELLS = ROWS * PANEL


class AttentionProjections(AttentionSizes):
    """Query, key and value of attention.

    Heads are side by side in rows `query_row`, `key_row` and `value_row` apart. scale: factor of
    the scores.
    """

    query: Floats
    query_row: Integer
    key: Floats
    key_row: Integer
    value: Floats
    value_row: Integer
    scale: Real
    causal: Integer


class AttentionTensors(AttentionProjections, ProductScratch):
    """Arguments of the loops over blocks.

    mask, lengths: None if not used; the mask of a sequence begins `mask_sequence` elements after
    the one before, that of a head `mask_head`.
    """

    logsumexp: Float32s
    mask: Float32s
    mask_sequence: Integer
    mask_head: Integer
    lengths: Int32s


class ScoreBlock(NamedTuple):
    """`rows` queries of a head from `query` on, and keys `first` to `end` - 1 of their sequence."""

    sequence: int
    head: int
    query: int
    rows: int
    first: int
    end: int


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
def query_rows(
    call: AttentionTensors, sequence: int, head: int, query: int, rows: int
) -> MatrixRows:
    """Return rows of a head's queries."""
    at = (sequence * call.queries + query) * call.query_row + head * call.head_size
    return MatrixRows(call.query, at, call.query_row, rows, call.head_size)


@inlined
def key_rows(call: AttentionTensors, sequence: int, group: int, rows: int) -> MatrixRows:
    """Return rows of a head's keys."""
    at = sequence * call.keys * call.key_row + group * call.head_size
    return MatrixRows(call.key, at, call.key_row, rows, call.head_size)


@inlined
def value_rows(call: AttentionTensors, sequence: int, group: int, rows: int) -> MatrixRows:
    """Return rows of a head's values."""
    at = sequence * call.keys * call.value_row + group * call.value_size
    return MatrixRows(call.value, at, call.value_row, rows, call.value_size)
