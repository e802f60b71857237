"""Blocks of matrices in scratch space, packed as factors of products, for compiled loops.

Left factors are rows; right factors are rows or panels of PANEL columns. In bfloat16, where the
processor multiplies pairs, two terms of the inner axis side by side are a word of 32 bits;
otherwise elements are widened to float32.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from mxrun.base.blocked import PANEL
from mxrun.base.device import DeviceDescription
from mxrun.codegen.arguments import Arguments, BFloat16s, Float32s, Integer
from mxrun.codegen.jit import inlined
from mxrun.codegen.loops import vectors
from mxrun.codegen.products import multiply_block, multiply_pairs
from mxrun.codegen.vectors import (
    LANES,
    add_lanes,
    join_lanes,
    lanes,
    load_lanes,
    multiply_lanes,
    store_lanes,
    stored_lanes,
    transpose_lanes,
)
from mxrun.ops.rows import clear

# Parts of the names of instruction sets with products of bfloat16 vectors.
_PAIRS = ("bf16", "fp16", "amx", "avx10")


class ProductScratch(Arguments):
    """Arguments of loops that multiply blocks in scratch space.

    scratch: `words_per_worker` for each thread; halves: the same memory. is_paired: whether the
    factors are pairs of bfloat16.
    """

    scratch: Float32s
    halves: BFloat16s
    words_per_worker: Integer
    is_paired: Integer


class MatrixRows(NamedTuple):
    """Rows of a matrix in a tensor: the first one begins at `at`, the next ones `step` later."""

    data: Any
    at: int
    step: int
    rows: int
    columns: int


@inlined
def rounded_up(count: int, multiple: int) -> int:
    """Return the smallest multiple that is not below a count."""
    return (count + multiple - 1) // multiple * multiple


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
def paired(call: ProductScratch, count: int) -> int:
    """Return the words of a number of elements, of which two are a word if they are paired."""
    return (count + 1) // 2 if call.is_paired else count


@inlined
def multiply(
    call: ProductScratch,
    output: Any,
    to: int,
    output_step: int,
    left: Any,
    left_at: int,
    row_step: int,
    inner_step: int,
    right: Any,
    right_at: int,
    right_step: int,
    rows: int,
    columns: int,
    inner: int,
    begin: Any,
    begin_at: int,
    begin_step: int,
    is_begun: int,
) -> None:
    """Compute a product as pairs where the factors are paired, see `multiply_block`."""
    if call.is_paired:
        multiply_pairs(
            *(output, to, output_step, left, left_at, row_step, inner_step),
            *(right, right_at, right_step, rows, columns, inner),
            *(begin, begin_at, begin_step, is_begun),
        )
    else:
        multiply_block(
            *(output, to, output_step, left, left_at, row_step, inner_step),
            *(right, right_at, right_step, rows, columns, inner),
            *(begin, begin_at, begin_step, is_begun),
        )


@inlined
def multiply_packed(
    call: ProductScratch,
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
    """Compute a product in scratch space, or add it to what is there; see `multiply_block`."""
    scratch = call.scratch
    multiply(
        call,
        *(scratch, to, output_step, scratch, left, row_step, inner_step),
        *(scratch, right, right_step, rows, columns, inner, scratch, to, output_step, is_added),
    )


@inlined
def pack_left(call: ProductScratch, to: int, given: MatrixRows) -> None:
    """Copy rows for left factors; their columns up to a multiple of 16 are filled with 0."""
    step, row, columns = rounded_up(given.columns, LANES), given.step, given.columns
    if call.is_paired:
        copy_rows(call.halves, 2 * to, step, given.data, given.at, row, given.rows, columns)
    else:
        copy_rows(call.scratch, to, step, given.data, given.at, row, given.rows, columns)


@inlined
def pack_right(call: ProductScratch, to: int, step: int, given: MatrixRows) -> None:
    """Copy rows for right factors to words `step` apart, two side by side if they are paired."""
    row, columns = given.step, given.columns
    if call.is_paired:
        for i in range(0, given.rows, 2):
            at = given.at + i * row
            for j in range(0, columns, LANES):
                low, high = load_lanes(given.data, at + j, columns - j), lanes(np.float32(0))
                if i + 1 < given.rows:
                    high = load_lanes(given.data, at + row + j, columns - j)
                store_lanes(call.scratch, to + i // 2 * step + j, join_lanes(low, high), LANES)
    else:
        copy_rows(call.scratch, to, step, given.data, given.at, row, given.rows, columns)


@inlined
def pack_panels(call: ProductScratch, to: int, stage: int, given: MatrixRows) -> None:
    """Transpose rows [rows, columns] to panels [columns, PANEL], with 0 beyond the last row.

    Two columns side by side are a word if they are paired. stage: place of a copy of sixteen rows.
    """
    words = paired(call, rounded_up(given.columns, LANES))
    depth = paired(call, given.columns)
    for i in range(0, given.rows, LANES):
        count = min(given.rows - i, LANES)
        if count < LANES:
            clear(call.scratch, stage, LANES * words)
        at = given.at + i * given.step
        pack_left(call, stage, MatrixRows(given.data, at, given.step, count, given.columns))
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
    for j, count in vectors(0, columns):
        vector = multiply_lanes(load_lanes(data, at + j, LANES), factor)
        if is_added:
            before = load_lanes(output, to + j, count)
            vector = add_lanes(before, stored_lanes(output, vector))
        store_lanes(output, to + j, vector, count)


def multiplies_pairs(device: DeviceDescription) -> bool:
    """Return whether the processor has products of bfloat16 vectors."""
    return any(name in device.instruction_set for name in _PAIRS)
