"""Products of stacks of strided matrices, for the interleaved operators, in compiled loops."""

from __future__ import annotations

from mxrun.codegen.arguments import Arguments, Float32s, Floats, Integer, Real
from mxrun.codegen.intrinsics import current_task, share, worker
from mxrun.codegen.jit import inlined, native
from mxrun.codegen.products import multiply_block
from mxrun.codegen.vectors import LANES, lanes, transpose_lanes
from mxrun.ops.attention.blocks import ROWS, copy_rows, rounded_up, write_row
from mxrun.ops.attention.shapes import padded
from mxrun.ops.rows import clear


class StackedProduct(Arguments):
    """Arguments of `stacked_product_loop`: output [count, rows, columns] of sums over `inner`.

    Each tensor's matrices are `_stack` elements apart, and their rows `_row`. is_left_turned: left
    matrices are stored [inner, rows]; is_right_turned: right ones [columns, inner]. scratch:
    `words_per_worker` for each thread.
    """

    count: Integer
    rows: Integer
    columns: Integer
    inner: Integer
    left: Floats
    left_stack: Integer
    left_row: Integer
    is_left_turned: Integer
    right: Floats
    right_stack: Integer
    right_row: Integer
    is_right_turned: Integer
    output: Floats
    output_stack: Integer
    output_row: Integer
    factor: Real
    is_added: Integer
    scratch: Float32s
    words_per_worker: Integer


@inlined
def pack_turned(call: StackedProduct, to: int, stage: int, at: int, step: int) -> None:
    """Transpose a right matrix [columns, inner] to rows of columns; those up to 16 are 0."""
    words = rounded_up(call.inner, LANES)
    for i in range(0, call.columns, LANES):
        count = min(call.columns - i, LANES)
        if count < LANES:
            clear(call.scratch, stage, LANES * words)
        first = at + i * call.right_row
        copy_rows(call.scratch, stage, words, call.right, first, call.right_row, count, call.inner)
        for j in range(0, call.inner, LANES):
            transpose_lanes(
                *(call.scratch, stage + j, words, LANES, call.inner - j),
                *(call.scratch, to + j * step + i, step),
            )


@native
def stacked_product_loop(call: StackedProduct) -> None:
    """output = factor * left x right, in blocks of rows."""
    scratch, step = call.scratch, rounded_up(call.columns, LANES)
    task, tasks = current_task()
    own = worker() * call.words_per_worker
    right = own
    left = right + call.inner * step
    words = rounded_up(call.inner, LANES)
    sums = left + ROWS * words
    for stack in range(task, call.count, tasks):
        at = stack * call.right_stack
        if call.is_right_turned:
            pack_turned(call, right, left, at, step)
        else:
            row = call.right_row
            copy_rows(scratch, right, step, call.right, at, row, call.inner, call.columns)
        for first in range(0, call.rows, ROWS):
            rows = min(call.rows - first, ROWS)
            at = stack * call.left_stack
            row_step, inner_step = words, 1
            if call.is_left_turned:
                row_step, inner_step = 1, ROWS
                at += first
                copy_rows(scratch, left, ROWS, call.left, at, call.left_row, call.inner, rows)
            else:
                at += first * call.left_row
                copy_rows(scratch, left, words, call.left, at, call.left_row, rows, call.inner)
                if rows % 2:
                    clear(scratch, left + rows * words, words)
            multiply_block(
                *(scratch, sums, step, scratch, left, row_step, inner_step),
                *(scratch, right, step, rounded_up(rows, 2), step, call.inner, 0),
            )
            for i in range(rows):
                to = stack * call.output_stack + (first + i) * call.output_row
                place = sums + i * step
                factor = lanes(call.factor)
                write_row(call.output, to, scratch, place, call.columns, factor, call.is_added)


class RowClearing(Arguments):
    """Arguments of `clear_rows_loop`: rows of `columns` elements, `step` apart."""

    rows: Integer
    columns: Integer
    step: Integer
    output: Floats


@native
def clear_rows_loop(call: RowClearing) -> None:
    """Fill the rows with 0."""
    begin, end = share(call.rows * 16)
    for row in range(begin // 16, end // 16):
        clear(call.output, row * call.step, call.columns)


def product_words(columns: int, inner: int) -> int:
    """Return the words of scratch space of a thread: a right matrix, and blocks of rows."""
    step = padded(columns, LANES)
    return padded(inner * step + ROWS * (padded(inner, LANES) + step), LANES)
