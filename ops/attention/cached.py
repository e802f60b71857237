"""Attention over a cache as a compiled loop over the heads of keys and values.

It computes in float32; the tensors are float32, or all bfloat16.

The keys of 16 positions are stored element by element, so that the products with all of them are
sums of vectors. Neither product sums within a vector, and nothing depends on the tasks. The
exponentials are a map, which runs for all positions of a head.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from mxrun.codegen.arguments import Float32s, Floats, Int32s, Int64s, Integer
from mxrun.codegen.intrinsics import reduced_run, run_map, share, worker
from mxrun.codegen.jit import inlined, native
from mxrun.codegen.vectors import (
    LANES,
    add_lanes,
    keep_lanes,
    lanes,
    load_lanes,
    multiply_lanes,
    store_lanes,
)
from mxrun.ops.attention.blocks import AttentionProjections
from mxrun.ops.positions import first_position

# Argument block of the map, exp(x - shift), in words: the number of elements, the addresses of
# output and operand, and the shift. A thread's scores follow, then a row of a head.
BLOCK_WORDS = 16


class CachedHeads(AttentionProjections):
    """Attention of `queries` positions from `position` on, and the caches of `keys` positions,
    which hold the earlier ones.

    words, cells, address: the scratch space,
    `words_per_worker` words for each thread.
    """

    position: Int32s
    key_cache: Floats
    value_cache: Floats
    output: Floats
    words_per_worker: Integer
    words: Int64s
    cells: Float32s
    address: Integer


@inlined
def scores_of(own: int) -> int:
    """Return where a thread's scores begin, in float32 elements."""
    begin: int = 2 * (own + BLOCK_WORDS)
    return begin


@inlined
def widened(call: CachedHeads, data: Any, at: int, own: int) -> int:
    """Copy a row of a head, as float32, to the thread's space; return where it begins there."""
    to: int = scores_of(own) + (call.keys + LANES - 1) // LANES * LANES
    for d in range(0, call.head_size, LANES):
        count = call.head_size - d
        store_lanes(call.cells, to + d, load_lanes(data, at + d, count), count)
    return to


@inlined
def store_head(
    call: CachedHeads, row: int, group: int, keys: int, values: int, last: int, own: int
) -> None:
    """Store the key and the value of one head of a row at their position."""
    source = row * call.key_row + group * call.head_size
    key = widened(call, call.key, source, own)
    to, lane = keys + last // LANES * call.head_size * LANES, last % LANES
    for d in range(call.head_size):
        # Whole vectors: the masked store of a single bfloat16 lane writes two with some compilers.
        before = load_lanes(call.key_cache, to + d * LANES, LANES)
        after = keep_lanes(lanes(call.cells[key + d]), lane + 1, before)
        store_lanes(call.key_cache, to + d * LANES, keep_lanes(before, lane, after), LANES)
    source = row * call.value_row + group * call.value_size
    to = values + last * call.value_size
    for d in range(0, call.value_size, LANES):
        count = call.value_size - d
        store_lanes(call.value_cache, to + d, load_lanes(call.value, source + d, count), count)


@inlined
def score_head(call: CachedHeads, query: int, keys: int, scores: int, count: int) -> None:
    """Write scale * (query x key) of `count` positions to the scores; query: in the cells."""
    factor = lanes(call.scale)
    for first in range(0, count, LANES):
        at = keys + first * call.head_size
        even, odd = lanes(0.0), lanes(0.0)
        for d in range(0, call.head_size - 1, 2):
            term = multiply_lanes(
                lanes(call.cells[query + d]), load_lanes(call.key_cache, at + d * LANES, LANES)
            )
            even = add_lanes(even, term)
            term = multiply_lanes(
                lanes(call.cells[query + d + 1]),
                load_lanes(call.key_cache, at + (d + 1) * LANES, LANES),
            )
            odd = add_lanes(odd, term)
        if call.head_size % 2 > 0:
            d = call.head_size - 1
            term = multiply_lanes(
                lanes(call.cells[query + d]), load_lanes(call.key_cache, at + d * LANES, LANES)
            )
            even = add_lanes(even, term)
        total = multiply_lanes(add_lanes(even, odd), factor)
        store_lanes(call.cells, scores + first, total, count - first)


@inlined
def mix_columns(
    call: CachedHeads, to: int, values: int, scores: int, count: int, total: float, width: int
) -> None:
    """Write up to 16 columns of the values, weighted by the exponentials of the scores."""
    even, odd = lanes(0.0), lanes(0.0)
    for t in range(0, count - 1, 2):
        at = values + t * call.value_size
        term = multiply_lanes(
            lanes(call.cells[scores + t]), load_lanes(call.value_cache, at, width)
        )
        even = add_lanes(even, term)
        term = multiply_lanes(
            lanes(call.cells[scores + t + 1]),
            load_lanes(call.value_cache, at + call.value_size, width),
        )
        odd = add_lanes(odd, term)
    if count % 2 > 0:
        at = values + (count - 1) * call.value_size
        term = multiply_lanes(
            lanes(call.cells[scores + count - 1]), load_lanes(call.value_cache, at, width)
        )
        even = add_lanes(even, term)
    factor = lanes(np.float32(1 / total))
    store_lanes(call.output, to, multiply_lanes(add_lanes(even, odd), factor), width)


@inlined
def attend(
    call: CachedHeads, query: int, keys: int, values: int, to: int, own: int, count: int
) -> None:
    """Compute one head of the output from `count` positions; own: the thread's argument block."""
    scores = scores_of(own)
    score_head(call, widened(call, call.query, query, own), keys, scores, count)
    most = np.float32(reduced_run(1, -math.inf, call.cells, scores, count, 0.0, 0))
    address = call.address + 4 * scores
    call.words[own] = count
    call.words[own + 1] = address
    call.words[own + 2] = address
    call.cells[2 * (own + 3)] = most
    run_map(call, 0, call.words, own)
    total = reduced_run(0, 0.0, call.cells, scores, count, 0.0, 0)
    for first in range(0, call.value_size, LANES):
        width = min(call.value_size - first, LANES)
        mix_columns(call, to + first, values + first, scores, count, total, width)


@native
def cached_attention_loop(call: CachedHeads) -> None:
    """Store each head's keys and values; then each query attends to the positions that it reads."""
    first = first_position(call.position, call.queries, call.keys)
    blocks, shared = (call.keys + LANES - 1) // LANES, call.heads // call.kv_heads
    own = worker() * call.words_per_worker
    # share() splits at multiples of 16, so each head counts as 16 elements.
    begin, end = share(call.batch * call.kv_heads * 16)
    for head in range(begin // 16, end // 16):
        n, group = head // call.kv_heads, head % call.kv_heads
        keys = head * blocks * call.head_size * LANES
        values = head * call.keys * call.value_size
        for t in range(call.queries):
            store_head(call, n * call.queries + t, group, keys, values, first + t, own)
        if call.output is None:
            continue
        for t in range(call.queries):
            row, read = n * call.queries + t, first + (t + 1 if call.causal else call.queries)
            for each in range(group * shared, (group + 1) * shared):
                query = row * call.query_row + each * call.head_size
                to = (row * call.heads + each) * call.value_size
                attend(call, query, keys, values, to, own, read)
