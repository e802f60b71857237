"""Products of matrices as a block kernel, for GPUs whose library does not multiply them.

A block computes a tile of 64 rows and 64 columns, a thread 16 elements of it, whose sums are in
registers; sixteen terms of both factors at a time are in shared memory. The terms of a sum are
added as on the CPU: by fused multiply-adds in their order, in blocks that are added in order.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mxrun.codegen.arguments import Arguments, Float32s, Floats, Integer, Real
from mxrun.codegen.block_function import block_of
from mxrun.codegen.blocks import multiply_add, private, shared, stored, threads
from mxrun.codegen.intrinsics import current_task
from mxrun.codegen.jit import inlined

THREADS = 256
# Rows and columns of a tile, terms that are loaded at a time, and rows and columns of threads.
TILE, _TERMS, _SIDE = 64, 16, 16
_PER_SIDE = TILE // _SIDE
_LOADED, _OWN = TILE * _TERMS, _PER_SIDE * _PER_SIDE


class BlockProduct(Arguments):
    """Arguments of `product_block`: output = factor * left x right + bias, for each stack.

    output [count, rows, columns], which is float32 memory as `total` if that is not None. Elements
    of left are `left_row` apart from row to row and `left_term` from term to term; those of right
    `right_term` and `right_column`. Matrices are `_stack` elements apart. block_terms: terms of a
    block. bias [columns]: None if there is none. is_added: whether the product is added to the
    output.
    """

    rows: Integer
    columns: Integer
    inner: Integer
    block_terms: Integer
    left: Floats
    left_stack: Integer
    left_row: Integer
    left_term: Integer
    right: Floats
    right_stack: Integer
    right_term: Integer
    right_column: Integer
    bias: Float32s
    factor: Real
    output: Floats
    total: Float32s
    output_stack: Integer
    output_row: Integer
    is_added: Integer


@inlined
def load_tile(
    tile: Any, data: Any, at: int, along: int, term: int, count: int, terms: int, t: int
) -> None:
    """Set tile[k * 64 + i] to data[at + i * along + k * term], or to 0 beyond count and terms.

    Adjacent threads read adjacent elements.
    """
    for part in range(_LOADED // THREADS):
        i, k = t % TILE, t // TILE + part * (THREADS // TILE)
        if term == 1:
            i, k = t // _TERMS + part * (THREADS // _TERMS), t % _TERMS
        value = np.float32(0)
        if i < count and k < terms:
            value = data[at + i * along + k * term]
        tile[k * TILE + i] = value


@inlined
def write_element(call: BlockProduct, output: Any, at: int, total: Any) -> None:
    """Write a sum times the factor, or add it after the rounding that a store performs."""
    value = total * call.factor
    if call.is_added:
        value = output[at] + stored(output, value)
    output[at] = value


@block_of(THREADS)
def product_block(call: BlockProduct) -> None:
    """Compute the tile of the task; those of adjacent columns follow each other."""
    x, y = shared(_LOADED), shared(_LOADED)
    sums, totals = private(_OWN), private(_OWN)
    task, _tasks = current_task()
    down, across = (call.rows + TILE - 1) // TILE, (call.columns + TILE - 1) // TILE
    stack = task // across // down
    row, column = task // across % down * TILE, task % across * TILE
    rows, columns = call.rows - row, call.columns - column
    left = stack * call.left_stack + row * call.left_row
    right = stack * call.right_stack + column * call.right_column
    for t in threads(THREADS):
        for j in range(_PER_SIDE):
            begin = np.float32(0)
            if call.bias is not None and t % _SIDE + _SIDE * j < columns:
                begin = call.bias[column + t % _SIDE + _SIDE * j]
            for i in range(_PER_SIDE):
                totals[_PER_SIDE * i + j] = begin
    for first in range(0, call.inner, call.block_terms):
        beyond = min(first + call.block_terms, call.inner)
        for _ in threads(THREADS):
            for i in range(_OWN):
                sums[i] = np.float32(0)
        for start in range(first, beyond, _TERMS):
            terms = beyond - start
            for t in threads(THREADS):
                at = left + start * call.left_term
                load_tile(x, call.left, at, call.left_row, call.left_term, rows, terms, t)
                at = right + start * call.right_term
                load_tile(y, call.right, at, call.right_column, call.right_term, columns, terms, t)
            for t in threads(THREADS):
                for k in range(_TERMS):
                    for i in range(_PER_SIDE):
                        for j in range(_PER_SIDE):
                            n = _PER_SIDE * i + j
                            u = x[k * TILE + t // _SIDE + _SIDE * i]
                            v = y[k * TILE + t % _SIDE + _SIDE * j]
                            sums[n] = multiply_add(u, v, sums[n])
        for _ in threads(THREADS):
            for i in range(_OWN):
                totals[i] += sums[i]
    for t in threads(THREADS):
        for i in range(_PER_SIDE):
            for j in range(_PER_SIDE):
                r, c = t // _SIDE + _SIDE * i, t % _SIDE + _SIDE * j
                if r < rows and c < columns:
                    at = stack * call.output_stack + (row + r) * call.output_row + column + c
                    if call.total is not None:
                        write_element(call, call.total, at, totals[_PER_SIDE * i + j])
                    else:
                        write_element(call, call.output, at, totals[_PER_SIDE * i + j])
